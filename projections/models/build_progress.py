"""How far read models are that are being built."""

import msgspec


class Building(msgspec.Struct, frozen=True, kw_only=True):
    """Read models on their way, counted in positions of the record."""

    done: int | None
    """None: another process builds them, and tells nobody how far it is."""
    total: int
    """The record's head when they were begun."""

    @property
    def left(self) -> int:
        """What is still to be read."""
        return self.total - (self.done or 0)

    @property
    def percent(self) -> int | None:
        """Whole ones, rounded down; None where nobody knows."""
        return None if self.done is None else 100 * self.done // max(1, self.total)

    def __str__(self) -> str:
        if self.done is None:
            return f"another process reads the {self.total:,} events of the record"
        return f"{self.percent} %, {self.done:,} of {self.total:,} events"
