"""The facts of a world that are news for the routes and the collector: starts and ends of runs, runs that wait for too
long, machines that vanished, anomalies, orphans; by the rules of docs/adr/0024. Everything is decided from the record,
so every process finds the same news.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

import msgspec

from steno.engine.fold.record_time import record_time
from steno.engine.fold.vm_step import SILENT_FOR
from steno.engine.money.reconcile import divergences, is_cut, is_settled
from steno.engine.money.report import user_of
from steno.engine.notify.dwells import Dwells
from steno.engine.notify.routes import Route
from steno.engine.replay.result import fill_costs
from steno.engine.state.changes import Anomaly, AnomalyKind, Transition
from steno.engine.state.inventory import Inventory
from steno.engine.state.outbox import NoticeMark, Outbox
from steno.engine.state.run import Run, waits
from steno.engine.state.states import State, VmReason, VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World, source_of, vms_of
from steno.events.clock import SECOND, duration, foreign_run_id
from steno.events.store.record import Record, Stored

RUN_END, ANOMALY, BUDGET, ORPHAN, TRACE = "run_end", "anomaly", "budget", "orphan", "trace"
START, STUCK, WAIT, VANISHED = "start", "stuck", "wait", "vanished"
ORDER = (VANISHED, ORPHAN, RUN_END, STUCK, WAIT, START, ANOMALY)  # in which they are reported

AT_ONCE = 60 * SECOND  # the end of a run that no poll showed before is news for this long; later the source is blind
TOO_OLD = 24 * 3600 * SECOND  # older facts, left by a killed process, are dropped

_ORPHANS = frozenset({AnomalyKind.ORPHAN, AnomalyKind.ORPHAN_SUSPECTED})
_POLLS = frozenset({"PollRecorded", "PollFailed"})
_LOST = frozenset({VmReason.INTERRUPTED, VmReason.UNREACHABLE})
_UNSTARTED = frozenset({State.REQUESTED, State.QUEUED, State.PROVISIONING, State.PULLING})
_COLLECTOR = Route(url="", kinds=frozenset({TRACE}))

Subject = Run | Anomaly | Vm


@dataclass(frozen=True, slots=True)
class NewsItem:
    fact_id: str  # equal for the same fact in every process
    kind: str
    subject: Subject
    route: str = ""  # the route that gets it
    detail: str = ""  # in words, where the subject does not say it
    at: int = 0  # since when it is news


class _Fact(NamedTuple):
    """A fact that may be news for several routes."""

    kind: str
    what: str
    subject: Subject
    at: int | None = None  # None: of an anomaly, when it was seen
    detail: str = ""
    position: int | None = None  # it is news if it was seen live there; None: it is about now


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
        self._open_vms: set[str] = set()
        self._position = 0
        self._anomalies = 0
        self._waiting: dict[str, NewsItem] = {}
        self._figures: dict[str, None] = {}
        """Runs whose end is news, until the provider's cost figure is final: an impossible figure is news too."""
        self._dwells = Dwells()
        self._at: dict[int, Stored | None] = {}  # events looked up in the call under way

    def collect(
        self, state: World, outbox: Outbox, routes: Sequence[Route], now: int, *, traces: bool = False
    ) -> list[NewsItem]:
        """The facts not reported yet, oldest first; those that stay unreported are found again. `traces`: also of ends
        for the collector.
        """
        self._state = state
        self._at.clear()
        self._patience = next((route.patience for route in routes), None)
        receivers = (*routes, _COLLECTOR) if traces else tuple(routes)
        known = {fact_id: fact for fact_id, fact in self._waiting.items() if fact.kind not in (STUCK, WAIT)}
        facts = known | {fact.fact_id: fact for fact in self._new(state, outbox, receivers, now)}
        self._waiting = {
            fact_id: fact
            for fact_id, fact in facts.items()
            if fact_id not in outbox.noticed and self._stands(fact, state)
        }
        return list(self._waiting.values())

    def _new(self, state: World, outbox: Outbox, routes: Sequence[Route], now: int) -> Iterator[NewsItem]:
        adopted = outbox.told.get(self._source, {})
        receivers = [(route, f"{route.name}/" if route.name else "") for route in routes]
        marks = [{kind: adopted.get(prefix + kind) for kind in route.kinds} for route, prefix in receivers]
        for fact in self._facts(state, frozenset[str]().union(*marks), now):
            thing = _thing(fact.subject, state)
            for (route, prefix), known in zip(receivers, marks, strict=True):
                if fact.kind not in known or not _concerns(route.owner, thing, state):
                    continue
                mark = known[fact.kind]
                if fact.position is None or (mark and self._is_live(thing, fact.position, mark, now)):
                    item_id = notice_id(self._record.id, prefix + fact.what)
                    kind, _, subject, at, detail, _ = fact
                    if at is None and isinstance(subject, Anomaly):
                        at = self._poll_of_ours(subject.position)
                    yield NewsItem(item_id, kind, subject, route.name, detail, now if at is None else at)

    def _facts(self, state: World, wanted: frozenset[str], now: int) -> Iterator[_Fact]:
        """The facts that are new since the last call, and those that last, of the wanted kinds."""
        before = self._position
        ended = [(run, run.transitions[-1]) for run in self._ended(state, now) if run.transitions]
        going = [run for run in state.runs.open() if run.archive is None and source_of(run) == self._source]
        for run, step in ended:
            for kind in (RUN_END, TRACE):
                yield _Fact(kind, f"{kind}/{_name(run)}/{step.position}", run, step.at, position=step.position)
        for run in (*(run for run, _ in ended), *going) if START in wanted else ():
            for step in run.transitions:
                if step.after is State.RUNNING and step.position > before and _is_new(run, step):
                    what = f"{START}/{_name(run)}/{step.position}"
                    yield _Fact(START, what, run, step.at, position=step.position)
        yield from self._waits(going, state, wanted, now)
        if VANISHED in wanted:
            yield from self._vanished(state, now, first=before == 0)
        anomalies = state.anomalies[self._anomalies :]
        self._anomalies = len(state.anomalies)
        for anomaly in anomalies:
            what = f"{anomaly.kind.value}/{anomaly.subject}/"
            if anomaly.kind in _ORPHANS:
                vm = state.vms.get(anomaly.subject.removeprefix("vm/"))
                if vm is not None and vm.source == self._source:
                    yield _Fact(ORPHAN, f"{what}{anomaly.position}", anomaly)
            else:
                what += f"{anomaly.position}/{anomaly.detail}"
                yield _Fact(ANOMALY, what, anomaly, position=anomaly.position)
        if ANOMALY in wanted:
            self._figures |= dict.fromkeys(run.run_id for run, _ in ended if source_of(run) == self._source)
            for anomaly in self._wrong_figures(state, now - TOO_OLD):
                # Not by its position: the same figure stands in every later answer.
                run = state.runs[anomaly.subject.removeprefix("run/")]
                what, position = f"{anomaly.kind.value}/{_name(run)}", run.transitions[-1].position
                yield _Fact(ANOMALY, what, anomaly, now, position=position)

    def _waits(self, going: Sequence[Run], state: World, wanted: frozenset[str], now: int) -> Iterator[_Fact]:
        """The runs that wait for too long, by the newest answer of the source: time in which nobody looks is none."""
        source = state.sources.get(self._source)
        answered = None if source is None else source.last_answered
        for run in going if answered is not None and wanted & {STUCK, WAIT} else ():
            if STUCK in wanted and (late := self._dwells.overdue(run, answered or 0, state, now)) is not None:
                what = f"{STUCK}/{_name(run)}/{run.transitions[-1].position}"
                yield _Fact(STUCK, what, run, *late)
            waited = (answered or 0) - (run.waiting_since or run.first_at)
            unstarted = run.state in _UNSTARTED and run.started_at is None and not run.is_schedule
            if WAIT in wanted and unstarted and self._patience is not None and waited > self._patience:
                # Not by the provider's id: it may get one while it waits.
                what = f"{WAIT}/{_name(run) if run.requested_at is None else run.run_id}"
                words = f"{run.state.value}, has waited for {duration(round(waited / SECOND) * SECOND)}"
                words += "" if run.held is None else f": {waits(run.held)}"
                yield _Fact(WAIT, what, run, (answered or 0) - waited + self._patience, words)

    def _vanished(self, state: World, now: int, *, first: bool) -> Iterator[_Fact]:
        """The machines that nobody of us stopped and that do not answer, are not listed, or were taken away."""
        there = vms_of(state, self._source)
        known = [vm for vm_id in self._open_vms if (vm := state.vms.get(vm_id)) is not None]
        over = state.vms.ended_since(now - TOO_OLD) if first else known
        self._open_vms = {vm.vm_id for vm in there}
        for vm in (*there, *(vm for vm in over if vm.vm_id not in self._open_vms and vm.source == self._source)):
            silence, step = vm.silence, vm.steps[-1] if vm.steps else None
            if silence is not None and vm.last_at - silence.since >= SILENT_FOR:
                detail = f"it does not answer, {silence}"
            elif vm.state is VmState.UNCONFIRMED and vm.missing is not None and vm.told is None:
                detail = "its provider does not list it any more"
            elif vm.state is VmState.TERMINATED and vm.reason in _LOST:
                detail = f"its provider ended it ({vm.reason.value})"
            else:
                continue
            position = step.position if step is not None and vm.state is VmState.TERMINATED else None
            what = f"{VANISHED}/{vm.vm_id}/{silence.since if silence else step and step.position}"
            yield _Fact(VANISHED, what, vm, now, detail, position)

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
        if position not in self._at:
            stored = self._record.at(position)
            self._at[position] = stored and msgspec.structs.replace(
                stored, observed_at=record_time(self._state, stored)
            )
        return self._at[position]


def notice_id(record_id: str, what: str) -> str:
    return foreign_run_id(f"notice/{record_id}", what)


def _name(run: Run) -> str:
    """By the provider's id: our run id changes if the run was seen before it was matched to its request."""
    return f"{run.provider}/{run.provider_id or run.run_id}"


def _thing(subject: Subject, state: World) -> Run | Vm | None:
    """The run or machine that a fact is about."""
    if not isinstance(subject, Anomaly):
        return subject
    kind, _, name = subject.subject.partition("/")
    return state.vms.get(name) if kind == "vm" else state.runs.get(name)


def _concerns(owner: str | None, thing: Run | Vm | None, state: World) -> bool:
    """True if it is a run of that user, or a machine that such a run is on, or was on last; None: any user."""
    if isinstance(thing, Vm) and owner is not None:
        there = {occupancy.run_id for occupancy in thing.occupants} or thing.runs[-1:]
        return any(_concerns(owner, state.runs.get(run_id), state) for run_id in there)
    return owner is None or (isinstance(thing, Run) and user_of(thing) == owner)


def _is_new(run: Run, step: Transition) -> bool:
    """True if a run began to run at that step, and not long before somebody first looked at it."""
    known = run.requested_at is not None or run.first_position < step.position
    return known or step.at - (run.started_at or step.at) <= AT_ONCE


def _was_over(thing: Run | Vm, position: int, seen_at: int, mark: NoticeMark) -> bool:
    """True if it was over before any reporting process could see it."""
    if thing.finished_at is None:
        return False
    if thing.finished_at < mark.at:
        return True
    requested = isinstance(thing, Run) and thing.requested_at is not None
    return thing.first_position >= position and not requested and seen_at - thing.finished_at > AT_ONCE
