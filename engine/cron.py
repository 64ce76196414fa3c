"""When a cron expression is due, in UTC. Days of the week count from Monday = 0, and day of month and day of week must
both fit: that is how the parser that providers use reads it.
"""

from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from events.clock import SECOND

if TYPE_CHECKING:
    from apscheduler.triggers.cron import CronTrigger

_DAY: Final = 86_400 * SECOND


@lru_cache(maxsize=256)
def _trigger(cron: str) -> "CronTrigger | None":
    from apscheduler.triggers.cron import CronTrigger  # 20 ms: only records with a schedule need it

    with suppress(ValueError):
        return CronTrigger.from_crontab(cron, timezone=UTC)
    return None


@lru_cache(maxsize=1024)
def next_due(crons: tuple[str, ...], since: int) -> int | None:
    """The first moment at or after `since` (microseconds) at which one of them is due; None: never, or unreadable."""
    now, found = datetime.fromtimestamp(since / SECOND, UTC), list[int]()
    for trigger in map(_trigger, crons):
        due = None if trigger is None else trigger.get_next_fire_time(None, now)
        if due is not None:
            found.append(round(due.timestamp()) * SECOND)
    return min(found, default=None)


def count_due(crons: tuple[str, ...], since: int, until: int) -> int:
    """How often they are due from `since` on, before `until` (microseconds)."""
    total = 0
    while since < until:
        end = min(until, since - since % _DAY + _DAY)
        total += _due_within(crons, since, end)
        since = end
    return total


@lru_cache(maxsize=1024)
def _due_within(crons: tuple[str, ...], since: int, until: int) -> int:
    number = 0
    while (due := next_due(crons, since)) is not None and due < until:
        number, since = number + 1, due + SECOND
    return number
