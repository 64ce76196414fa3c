"""The state of a source: its last answer, its answered time, its blind times, and which lists were read to
their end: only if these omit a run or machine does that mean anything.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from steno.engine.state.changes import Blind, GapKind
from steno.engine.state.reading import Listing, Scope, Tick
from steno.events.clock import SECOND, SKEW

STALE_AFTER: Final = 30 * SECOND
BLIND_AFTER: Final = 60 * SECOND
LOST_AFTER: Final = 600 * SECOND
"""Answered time without a run after which it is lost, and without a machine after which its existence is unknown."""


class Observability(StrEnum):
    """How a source answers now, apart from its last answer."""

    FRESH = "fresh"
    STALE = "stale"
    BLIND = "blind"


class Source(msgspec.Struct, kw_only=True):
    """A source. Times are microseconds UTC."""

    name: str
    last_answered: int | None = None  # `observed_at` of the newest answered poll
    answered_time: int = 0
    """Microseconds in which it has been answering: gaps over 60 s and gaps with a failure in them do not count."""
    failed: bool = False  # a poll has failed since the last answered one
    failed_at: int = 0  # `observed_at` of the newest failed poll; 0: none has
    unpolled: int = 0  # how long nobody polled it since the last answered poll, up to `failed_at`
    silent: dict[str, int] = {}  # witness → since when it does not answer, though others of the source may
    outage: tuple[int, int] | None = None  # the newest time in which a witness did not
    skew: int = 0  # how far its clock is ahead of ours, microseconds; 0: unknown
    ahead: int | None = None  # the newest difference of both clocks that was read; None: it dates no answers
    machines_at: int | None = None
    """When the newest first page of its machines was asked: newest first, so all machines of that time were seen."""
    machines_position: int = 0
    """The start of that poll. Both are needed: after a clock jumped back, what follows a list seems to come before it.
    """
    archive: bool | None = None  # its polls are imported, not live; None: not polled yet
    imported_to: int | None = None  # `observed_at` of the newest poll imported; None: nothing was
    imported_at: tuple[tuple[int, int], ...] = ()  # the first and the last position of each import
    hidden: bool = False  # lists leave out what was imported


def lists_newest(scope: Scope) -> bool:
    """True if an answer lists the newest machines of all: they come newest first."""
    return scope.listing is Listing.VMS and not scope.filtered and scope.page_after is None


def heard(source: Source, tick: Tick) -> Blind | None:
    """Apply one poll of the source; the blind time it ends, if any. While a witness is silent, that goes on."""
    last, witness = source.last_answered, tick.scope.witness
    # A witness that only adds to what the others say, and proves no absence, need not answer.
    if not tick.scope.watched or (witness is not None and tick.scope.covers is None and not tick.answered):
        return None
    since = None
    if witness is not None and not tick.answered:
        source.silent.setdefault(witness, tick.started_at if last is None else min(last, tick.started_at))
    elif witness in source.silent:
        since = source.silent.pop(witness)
        source.outage = (since, tick.observed_at)
    if not tick.answered:
        if last is not None and tick.observed_at >= last:
            source.unpolled, source.failed = _unpolled(source, tick.started_at), True
        source.failed_at = max(source.failed_at, tick.observed_at)
        return None
    if last is None:
        source.last_answered = tick.observed_at
        return None
    if tick.observed_at < last:
        return None
    blind = _blind(source, tick.started_at, tick.observed_at)
    if blind is None:
        source.answered_time += tick.observed_at - last
    source.last_answered = tick.observed_at
    source.failed, source.unpolled = False, 0
    if since is not None:
        blind = _since(source, since, blind)
    return None if blind is None or source.silent else replace(blind, until=tick.observed_at)


def _since(source: Source, since: int, blind: Blind | None) -> Blind:
    """The blind time in which a witness was silent; `blind`: that of the source."""
    return Blind(source=source.name, since=since, until=None) if blind is None else replace(blind, since=since)


def _blind(source: Source, polled_at: int, now: int) -> Blind | None:
    """The blind time the source is in; `polled_at`: when the poll started that may end it."""
    last = source.last_answered
    if last is None or not (source.failed or now - last > BLIND_AFTER):
        return None
    kind = GapKind.NOT_POLLED if 2 * _unpolled(source, polled_at) > now - last else GapKind.NO_ANSWER
    return Blind(source=source.name, since=last, until=None, kind=kind)


def _unpolled(source: Source, until: int) -> int:
    """How long nobody polled the source since its last answered poll: pauses of more than 60 s, microseconds."""
    pause = until - max(source.last_answered or 0, source.failed_at)
    return source.unpolled + (pause if pause > BLIND_AFTER else 0)


def is_back(source: Source, asked_at: int) -> bool:
    """True if one of its witnesses was silent until a moment ago, and may answer what was true before."""
    return source.outage is not None and asked_at - source.outage[1] < STALE_AFTER


def surely_until(source: Source, ended_at: int) -> int:
    """Up to when a thing was there for certain that ended at `ended_at`, by a provider that has several witnesses: what
    ended while one of them was silent is dated when that one is back, and for some time behind.
    """
    times = [(since, ended_at) for since in source.silent.values()]
    if source.outage is not None:
        times.append((source.outage[0], source.outage[1] + BLIND_AFTER))
    return min([ended_at, *(since for since, until in times if since < ended_at <= until)])


def open_blind(source: Source, now: int | None = None) -> Blind | None:
    """The blind time a source is in `now`, by default at its newest poll; None if it never answered."""
    at = max(source.last_answered or 0, source.failed_at) if now is None else now
    blind = _blind(source, at, at)
    return _since(source, min(source.silent.values()), blind) if source.silent and source.last_answered else blind


def observability(source: Source | None, now: int) -> Observability:
    if source is None or source.last_answered is None:
        return Observability.BLIND
    age = now - source.last_answered
    if age > BLIND_AFTER:
        return Observability.BLIND
    return Observability.STALE if age > STALE_AFTER else Observability.FRESH


_LISTS = (Listing.RUNS, Listing.VMS)
_KEPT = 16  # unfinished sweeps of a source remembered; a recorder has one at a time


class Sweep(msgspec.Struct, kw_only=True):
    started_at: int  # of the first page: what came later need not be in it
    ids: set[str]


def is_page(scope: Scope, listed: int) -> bool:
    """True if an unfiltered answer of `listed` items is one page of several."""
    return scope.listing in _LISTS and not scope.filtered and (scope.page_after is not None or listed >= scope.limit)


def sweep_ended(
    open_sweeps: dict[str, Sweep], scope: Scope, source: str, started_at: int, ids: Sequence[str]
) -> Sweep | None:
    """The sweep that a page completes, if any; unfinished sweeps are kept in `open_sweeps` by the id they continue
    after. `ids`: those of the page, in order. A page shorter than its limit is the last.
    """
    if scope.filtered or scope.listing not in _LISTS:
        return None
    if scope.page_after is None and len(ids) < scope.limit:  # most lists have one page
        return Sweep(started_at=started_at, ids=set(ids))
    lane = f"{source}\0{scope.listing}\0{scope.project}\0"
    sweep: Sweep | None = Sweep(started_at=started_at, ids=set())
    if scope.page_after is not None:
        sweep = open_sweeps.pop(f"{lane}{scope.page_after}", None)
    if sweep is None:
        return None
    sweep.ids.update(ids)
    if len(ids) < scope.limit:
        return sweep
    if ids:
        open_sweeps.pop(f"{lane}{ids[-1]}", None)
        open_sweeps[f"{lane}{ids[-1]}"] = sweep
        own = [key for key in open_sweeps if key.startswith(f"{source}\0")]
        for forgotten in own[:-_KEPT]:
            del open_sweeps[forgotten]
    return None


RENEWED: Final = SECOND  # how old a `Date` usually is at most

OLDEST: Final = 60 * SECOND  # how old a `Date` is at most: a source silent for so long is blind


def skew_of(server_time: int, started_at: int, observed_at: int, *, known: int = 0) -> int:
    """How far (microseconds) a provider's clock is ahead of ours, negative: behind; 0 if that may be at most 2 s.
    `known` stays if the answer does not contradict it. `server_time` was cut to the second and taken before the end of
    the answer, seldom long before the question. Gives the largest skew that agrees with it: a machine then seems made
    too early rather than too late, and is never billed short.
    """
    least, most = server_time - observed_at, server_time + SECOND + RENEWED - started_at
    if least > SKEW or most < -SKEW - OLDEST:
        return known if known and least - SKEW <= known <= most + SKEW + OLDEST else most
    # The clocks may be equal. Only a fresh date shows that they are closer than before.
    return known if least - SKEW <= known <= most + SKEW or (known > 0 and most < -SKEW) else 0
