"""Slurm, as the registry knows it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from steno.engine.providers.kind import Checkup, Option, ProviderKind
from steno.engine.providers.slurm.settings import BLOCK, site_of
from steno.engine.providers.task import complete_plain

if TYPE_CHECKING:
    from steno.engine.providers.slurm.provider import SlurmProvider
    from steno.engine.providers.slurm.reading import SlurmReading
    from steno.engine.providers.task import Draft
    from steno.engine.rules.sets import RuleSet
    from steno.engine.settings.settings import Settings
    from steno.events.clock import Clock, Ids
    from steno.events.store.store import Store


@cache
def _reading() -> SlurmReading:
    """The process shares it: it caches the rows of lines, which the provider and the fold both read."""
    from steno.engine.providers.slurm.reading import SlurmReading

    return SlurmReading()


class SlurmKind(ProviderKind):
    name = "slurm"
    summary = "jobs of your Slurm cluster"
    settings = BLOCK
    repeats_names = True
    commands = "steno.engine.providers.slurm.commands:slurm"
    options = (
        Option(flag="--partition", field="partition", metavar="NAME", help="The partition of a Slurm job."),
        Option(flag="--account", field="account", metavar="NAME", help="The account that a Slurm job is charged to."),
        Option(flag="--qos", field="qos", metavar="NAME", help="The job's quality of service."),
    )

    def complete(self, draft: Draft, settings: Settings) -> dict[str, object]:
        """A task from a user's shell also gets what `SBATCH_*` say and, if the cluster has it, the current folder."""
        task = complete_plain(draft)
        if draft.folder is None or draft.recorded:
            return task
        from steno.engine.providers.slurm.shell import Shell
        from steno.engine.providers.slurm.spec import in_folder, with_variables

        task, variables = with_variables(task, draft.environ)
        client = Shell(site_of(settings))
        task, place = in_folder(task, client, str(Path.cwd()))
        client.keep()
        for line in filter(None, (variables, place)):
            draft.notify(line)
        return task

    def reading(self) -> SlurmReading:
        return _reading()

    def rule_sets(self) -> tuple[RuleSet, ...]:
        """That of February 2026, which judges Slurm's own words."""
        from steno.engine.providers.slurm import rules_2026

        return rules_2026.RULE_SETS

    def open(self, settings: Settings, *, clock: Clock, ids: Ids, record: Store | None) -> SlurmProvider:
        from steno.engine.providers.slurm.provider import SlurmProvider

        return SlurmProvider(site_of(settings), clock=clock, reading=_reading())

    def checkup(self, settings: Settings, *, clock: Clock, ids: Ids, wanted: bool, trial: bool = False) -> Checkup:
        from steno.engine.providers.slurm.doctor import checkup

        return checkup(site_of(settings), clock) if wanted else Checkup()

    def project(self, settings: Settings) -> str:
        return site_of(settings).cluster


KIND = SlurmKind()
