"""How fast one caller may ask for runs: a bucket of allowances that fills again with time."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

_CALLERS: Final = 1_000
"""Buckets kept; the one not asked for longest is forgotten, and a forgotten one is full."""


class Rate:
    """At most `most` at once, and `most` more in every `span` microseconds; for the loop's thread alone."""

    def __init__(self, most: int, span: int) -> None:
        self.most = most
        self.span = span
        self._spent: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By caller: how many are spent, and when that was so."""

    def take(self, caller: str, now: int) -> int:
        """Take one; 0 if there was one, else for how many microseconds to wait until there is."""
        spent, at = self._spent.get(caller, (0.0, now))
        spent = max(0.0, spent - max(0, now - at) * self.most / self.span)
        over = spent + 1 - self.most
        if over <= 1e-9:
            spent += 1
        self._spent[caller] = (spent, now)
        self._spent.move_to_end(caller)
        if len(self._spent) > _CALLERS:
            self._spent.popitem(last=False)
        return 0 if over <= 1e-9 else max(1, round(over * self.span / self.most))
