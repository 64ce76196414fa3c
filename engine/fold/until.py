"""Up to where a history is folded: a position or a moment."""

from typing import Final

import msgspec

from events.clock import parse_time
from events.errors import UnreadableInput

_LAST: Final = 2**63 - 1
"""No history has a greater position."""


class Until(msgspec.Struct, frozen=True, kw_only=True):
    """The last position, or the last `observed_at` (microseconds UTC), still folded."""

    position: int | None = None
    at: int | None = None

    def passed(self, position: int, observed_at: int) -> bool:
        """Whether a poll lies behind the limit."""
        if self.position is not None and position > self.position:
            return True
        return self.at is not None and observed_at > self.at


def parse_until(text: str) -> Until:
    """The limit a user typed: digits are a position, anything else an ISO 8601 time.

    Raises:
        UnreadableInput: it is neither.
    """
    try:
        if text.isdecimal():
            return Until(position=min(int(text), _LAST))
        return Until(at=parse_time(text))
    except ValueError:
        raise UnreadableInput(
            f"{text[:40]!r} is neither a position nor a time. Use a number or e.g. 2026-01-31T12:00:00Z."
        ) from None
