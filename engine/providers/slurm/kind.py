"""Slurm, as the registry knows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine.providers.kind import Checkup, Option, ProviderKind
from engine.providers.slurm.settings import BLOCK, site_of
from engine.providers.task import complete_plain

if TYPE_CHECKING:
    from engine.providers.slurm.provider import SlurmProvider
    from engine.providers.slurm.reading import SlurmReading
    from engine.providers.task import Draft
    from engine.rules.sets import RuleSet
    from engine.settings.settings import Settings
    from events.clock import Clock, Ids
    from events.store.store import Store


class SlurmKind(ProviderKind):
    name = "slurm"
    summary = "jobs of your Slurm cluster"
    settings = BLOCK
    repeats_names = True
    commands = "engine.providers.slurm.commands:slurm"
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
        from engine.providers.slurm.caller import in_folder, with_variables
        from engine.providers.slurm.shell import Shell

        task, variables = with_variables(task, draft.environ)
        client = Shell(site_of(settings))
        task, place = in_folder(task, client, str(Path.cwd()))
        client.keep()
        for line in filter(None, (variables, place)):
            draft.notify(line)
        return task

    def reading(self) -> SlurmReading:
        from engine.providers.slurm.reading import SlurmReading

        return SlurmReading()

    def rule_sets(self) -> tuple[RuleSet, ...]:
        """That of February 2026, which judges Slurm's own words."""
        from engine.providers.slurm import rules_2026

        return rules_2026.RULE_SETS

    def open(self, settings: Settings, *, clock: Clock, ids: Ids, record: Store | None) -> SlurmProvider:
        from engine.providers.slurm.provider import SlurmProvider

        return SlurmProvider(site_of(settings), clock=clock)

    def checkup(self, settings: Settings, *, clock: Clock, ids: Ids, wanted: bool, trial: bool = False) -> Checkup:
        from engine.providers.slurm.doctor import checkup

        return checkup(site_of(settings), clock) if wanted else Checkup()

    def project(self, settings: Settings) -> str:
        return site_of(settings).cluster


KIND = SlurmKind()
