"""What the fold keeps of a run and of a machine alike: which polls showed it, and since when none does."""

import msgspec


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Its source no longer lists it."""

    source: str
    since: int
    """The source's answered time (`engine.fold.sources`) when a complete sweep first left it out."""
    at: int = 0
    """When that was."""
    not_exists: bool = False
    """The source said of the id that it does not exist."""


class Tracked(msgspec.Struct, kw_only=True):
    """One run or machine. Times are microseconds UTC."""

    provider: str
    first_position: int
    first_at: int
    """`observed_at` of the first poll that showed it, or when it was requested."""
    last_position: int
    last_at: int
    """Of the newest poll that showed it."""
    started: dict[str, int] = {}
    """Source → the newest `started_at` of a poll of it that showed it."""
    missing: Missing | None = None
    noted: tuple[str, ...] = ()
    """Anomalies already written down for it."""
    archive: str | None = None
    """The archive that alone shows it; None: a live source does, or it was requested here."""
    hidden: bool = False
    """Lists leave it out."""

    @property
    def subject(self) -> str:
        """`run/<run_id>` or `vm/<vm_id>`: what an anomaly is about."""
        raise NotImplementedError

    @property
    def asked_at(self) -> int | None:
        """When the newest poll that showed it was asked; None: none showed it."""
        return max(self.started.values(), default=None)

    def shown_again(self, source: str, started_at: int, position: int, at: int) -> None:
        """Repeated polls, up to the one at `position`, showed it with nothing new."""
        self.started[source] = max(self.started.get(source, started_at), started_at)
        if position > self.last_position:
            self.last_position, self.last_at = position, at
