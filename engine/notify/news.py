"""The facts of a world that are news for the webhook and the collector: ends of runs, anomalies, orphans; by the rules
of docs/adr/0024. Everything is decided from the record, so every process finds the same news.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile

import msgspec

from steno.engine.fold.record_time import record_time
from steno.engine.money.reconcile import divergences, is_cut, is_settled
from steno.engine.replay.result import fill_costs
from steno.engine.state.changes import Anomaly, AnomalyKind
from steno.engine.state.inventory import Inventory
from steno.engine.state.outbox import NoticeMark, Outbox
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.events.clock import SECOND, foreign_run_id
from steno.events.store.record import Record, Stored

RUN_END, ANOMALY, BUDGET, ORPHAN, TRACE = "run_end", "anomaly", "budget", "orphan", "trace"

AT_ONCE = 60 * SECOND  # the end of a run that no poll showed before is news for this long; later the source is blind
TOO_OLD = 24 * 3600 * SECOND  # older facts, left by a killed process, are dropped

_ORPHANS = frozenset({AnomalyKind.ORPHAN, AnomalyKind.ORPHAN_SUSPECTED})
_POLLS = frozenset({"PollRecorded", "PollFailed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewsItem:
    fact_id: str  # equal for the same fact in every process
    kind: str
    subject: Run | Anomaly


class News:
    """Finds the news of one source, each time what is new since the last call."""

    def __init__(self, record: Record, source: str, made_again: Callable[[str], bool]) -> None:
        """`source`: other sources' facts are reported by the processes that watch those. `made_again`: whether a run
        (by id) that ended may be submitted again, so that this is not its end.
        """
        self._record = record
        self._source = source
        self._made_again = made_again
        self.forget()

    def forget(self) -> None:
        """Start from the beginning at the next call: another process may have reported meanwhile."""
        self._open: set[str] = set()
        self._position = 0
        self._anomalies = 0
        self._waiting: dict[str, NewsItem] = {}
        self._figures: dict[str, None] = {}
        """Runs whose end is news, until the provider's cost figure is final: an impossible figure is news too."""

    def collect(self, state: World, outbox: Outbox, kinds: frozenset[str], now: int) -> list[NewsItem]:
        """The facts not reported yet, oldest first; those that stay unreported are found again."""
        self._state = state
        facts = self._waiting | {fact.fact_id: fact for fact in self._new(state, outbox, kinds, now)}
        self._waiting = {
            fact_id: fact
            for fact_id, fact in facts.items()
            if fact_id not in outbox.noticed and self._stands(fact, state)
        }
        return list(self._waiting.values())

    def _new(self, state: World, outbox: Outbox, kinds: frozenset[str], now: int) -> Iterator[NewsItem]:
        marks = {kind: mark for kind, mark in outbox.told.get(self._source, {}).items() if kind in kinds}
        runs = [(run, run.transitions[-1].position if run.transitions else 0) for run in self._ended(state, now)]
        for kind in (RUN_END, TRACE):
            if (mark := marks.get(kind)) is not None:
                for run, position in runs:
                    if self._is_live(run, position, mark, now):
                        yield self._fact(kind, f"{kind}/{_name(run)}/{position}", run)
        anomalies = state.anomalies[self._anomalies :]
        self._anomalies = len(state.anomalies)
        for anomaly in anomalies:
            if anomaly.kind in _ORPHANS:
                vm = state.vms.get(anomaly.subject.removeprefix("vm/"))
                if ORPHAN in kinds and vm is not None and vm.source == self._source:
                    yield self._fact(ORPHAN, f"{anomaly.kind.value}/{anomaly.subject}/{anomaly.position}", anomaly)
            elif (mark := marks.get(ANOMALY)) is not None:
                kind, _, name = anomaly.subject.partition("/")
                subject = state.vms.get(name) if kind == "vm" else state.runs.get(name)
                if self._is_live(subject, anomaly.position, mark, now):
                    yield self._fact(
                        ANOMALY, f"{anomaly.kind.value}/{anomaly.subject}/{anomaly.position}/{anomaly.detail}", anomaly
                    )
        if (mark := marks.get(ANOMALY)) is not None:
            ended = (run.run_id for run, position in runs if self._is_live(run, position, mark, now))
            self._figures |= dict.fromkeys(ended)
            for anomaly in self._wrong_figures(state, now - TOO_OLD):
                # Not by its position: the same figure stands in every later answer.
                run = state.runs[anomaly.subject.removeprefix("run/")]
                yield self._fact(ANOMALY, f"{anomaly.kind.value}/{_name(run)}", anomaly)

    # -- runs

    def _ended(self, state: World, now: int) -> list[Run]:
        """The runs that ended since the last call, in order; at the first call those that may be news still."""
        if self._position == 0:
            new = state.runs.ended_since(now - TOO_OLD)[::-1]
        else:
            new = list(takewhile(lambda run: run.first_position > self._position, state.runs.newest()))
        known = [state.runs[run_id] for run_id in self._open if run_id in state.runs]
        over = {run.run_id: run for run in (*known, *reversed(new)) if run.terminal}
        ended = [run for run in over.values() if not self._made_again(run.run_id)]
        self._open = {*state.runs.open_ids, *over} - {run.run_id for run in ended}
        self._position = state.position
        return sorted(ended, key=lambda run: (run.finished_at or 0, run.first_position))

    # -- anomalies

    def _stands(self, fact: NewsItem, state: World) -> bool:
        if fact.kind != ORPHAN or not isinstance(fact.subject, Anomaly):
            return True
        vm = state.vms.get(fact.subject.subject.removeprefix("vm/"))
        places = () if vm is None or not vm.billed else (vm.last_position, fact.subject.position)
        return any(self._poll_of_ours(position) is not None for position in places)

    def _wrong_figures(self, state: World, since: int) -> tuple[Anomaly, ...]:
        """Anomalies of the cost figures that are final by now, without runs that ended before `since`; each run is
        checked once.
        """
        final = []
        for run_id in tuple(self._figures):
            run = state.runs.get(run_id)
            if run is None or not run.terminal or run.transitions[-1].at < since:
                del self._figures[run_id]
            elif run.cost_at is None or self._poll_of_ours(run.cost_at) is None:
                continue
            elif is_settled(run) and not is_cut(run):  # the figure is final and counts every submission
                del self._figures[run_id]
                final.append(msgspec.structs.replace(run))  # the fold's own has no figure: it is in the record
        fill_costs(self._record, final)
        return divergences(World(rules=state.rules, runs=Inventory({run.run_id: run for run in final})))

    # -- what was seen live

    def _is_live(self, thing: Run | Vm | None, position: int, mark: NoticeMark, now: int) -> bool:
        """True if the event at that position is news since the mark, written live by this source's watcher."""
        if position <= mark.position:
            return False
        seen_at = self._poll_of_ours(position)
        if seen_at is None and isinstance(thing, Run) and f"{thing.provider}/{thing.project}" == self._source:
            stored = self._stored(position)  # an intent or outcome of ours
            seen_at = None if stored is None or stored.type in _POLLS else stored.observed_at
        if seen_at is None or now - seen_at > TOO_OLD:
            return False
        return thing is None or not _was_over(thing, position, seen_at, mark)

    def _poll_of_ours(self, position: int) -> int | None:
        """When that poll of this source was taken; None: not a poll, another source's, or imported."""
        stored = self._stored(position)
        if stored is None or stored.type not in _POLLS or stored.stream != f"source/{self._source}":
            return None
        return None if stored.event_id is not None else stored.observed_at  # an import gives its polls ids

    def _stored(self, position: int) -> "Stored | None":
        stored = self._record.at(position)
        return stored and msgspec.structs.replace(stored, observed_at=record_time(self._state, stored))

    def _fact(self, kind: str, what: str, subject: Run | Anomaly) -> NewsItem:
        return NewsItem(fact_id=notice_id(self._record.id, what), kind=kind, subject=subject)


def notice_id(record_id: str, what: str) -> str:
    return foreign_run_id(f"notice/{record_id}", what)


def _name(run: Run) -> str:
    """By the provider's id: our run id changes if the run was seen before it was matched to its request."""
    return f"{run.provider}/{run.provider_id or run.run_id}"


def _was_over(thing: Run | Vm, position: int, seen_at: int, mark: NoticeMark) -> bool:
    """True if it was over before any reporting process could see it."""
    if thing.finished_at is None:
        return False
    if thing.finished_at < mark.at:
        return True
    requested = isinstance(thing, Run) and thing.requested_at is not None
    return thing.first_position >= position and not requested and seen_at - thing.finished_at > AT_ONCE
