"""Slurm, as the registry knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.providers.kind import Checkup, Option, ProviderKind
from engine.providers.slurm.settings import BLOCK, site_of

if TYPE_CHECKING:
    from engine.providers.slurm.provider import SlurmProvider
    from engine.providers.slurm.reading import SlurmReading
    from engine.rules.sets import RuleSet
    from engine.settings.settings import Settings
    from events.clock import Clock, Ids
    from events.store.store import Store


class SlurmKind(ProviderKind):
    name = "slurm"
    summary = "jobs of your Slurm cluster"
    settings = BLOCK
    commands = "engine.providers.slurm.commands:slurm"
    options = (
        Option(flag="--partition", field="partition", metavar="NAME", help="The partition of a Slurm job."),
        Option(flag="--account", field="account", metavar="NAME", help="The account that a Slurm job is charged to."),
        Option(flag="--qos", field="qos", metavar="NAME", help="The job's quality of service."),
    )

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

    def checkup(self, settings: Settings, *, clock: Clock, ids: Ids, wanted: bool) -> Checkup:
        from engine.providers.slurm.doctor import checkup

        return checkup(site_of(settings), clock) if wanted else Checkup()

    def project(self, settings: Settings) -> str:
        return site_of(settings).cluster


KIND = SlurmKind()
