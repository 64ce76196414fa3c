"""The run and machine objects: what a program is told, by the command line and by the API alike.

Keys, their order and their meaning are public; a key is added at the end of its object or not at all.
"""

import msgspec

TERMINAL = frozenset({"succeeded", "failed", "stopped"})
"""States that only a contradiction of the provider's leaves."""


class ReportedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job in the provider's own words."""

    status: str | None
    reason: str | None
    exit_status: int | None


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """The provider's own words about a run, verbatim."""

    status: str | None
    reason: str | None
    jobs: tuple[ReportedJob, ...]


class Transition(msgspec.Struct, frozen=True, kw_only=True, rename={"origin": "from", "target": "to"}):
    """One change of state, at the poll that moved it."""

    position: int
    at: str
    origin: str | None
    target: str
    rule: str | None


class RunObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run; times are ISO 8601 UTC, money is decimal strings of US dollars, None is unknown."""

    run_id: str
    provider_id: str | None
    name: str | None
    provider: str
    state: str
    reason: str | None
    exit_status: int | None
    rule: str | None
    evidence: tuple[int, ...]
    reported: Reported | None
    attempts: int
    vm_id: str | None
    start: str | None
    submitted_at: str | None
    started_at: str | None
    finished_at: str | None
    execution_seconds: float | None
    cost_usd: str | None
    provider_cost_usd: str | None
    transitions: tuple[Transition, ...]
    archive: str | None = None
    """The archive that alone shows it; left out of a run that is live."""

    @property
    def ended(self) -> bool:
        """Whether the verdict is in."""
        return self.state in TERMINAL


class Interval(msgspec.Struct, frozen=True, kw_only=True, rename={"start": "from", "end": "to"}):
    """A stretch of a machine's life in one phase at one price; `to` is None while it lasts."""

    phase: str
    start: str
    end: str | None
    cost_usd: str | None


class VmObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One machine with its bill; an open one is costed to the last poll."""

    vm_id: str
    provider_id: str
    name: str | None
    state: str
    reason: str | None
    price_usd_per_hour: str | None
    runs: tuple[str, ...]
    """Run ids, in the order they were on it."""
    cost_usd: str | None
    cost_low_usd: str | None
    cost_high_usd: str | None
    intervals: tuple[Interval, ...]
    source: str
    """Whose polls show it: a blind time of another source says nothing of it."""
    archive: str | None = None
    """The archive that alone shows it; left out of a machine that is live."""


class Blind(msgspec.Struct, frozen=True, kw_only=True, rename={"start": "from", "end": "to"}):
    """A gap in which a source told us nothing; `to` is None while it lasts."""

    source: str
    start: str
    end: str | None


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """Something the provider said or did that it should not."""

    kind: str
    subject: str
    position: int
    detail: str
