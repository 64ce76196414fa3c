"""The fold: one poll or intent at a time into one world of runs, machines and sources. Replay is this fold without
effects.
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from engine.facts import RunFacts
from engine.fold.archives import archive_of, concerns, is_hidden, may_move, polled, record_live, set_hidden
from engine.fold.change import Anomaly, AnomalyKind, Change, Moved
from engine.fold.clock_skew import compare_clocks, shifted
from engine.fold.duplicates import Once, listed_once
from engine.fold.intents import Intents
from engine.fold.machines import Machines
from engine.fold.run import Missing, Run
from engine.fold.run_machine import RUN, RunStepper
from engine.fold.run_turn import Turn
from engine.fold.sources import LOST_AFTER, Source, Sweep, heard, source_named, sweep_ended
from engine.fold.tick import Seen, Tick
from engine.fold.vm_machine import VM, VmStepper
from engine.fold.world_codec import WorldState
from engine.providers.reading import Listing, Readings, Scope
from engine.rules.moves import Move, Verdict
from engine.rules.sets import CURRENT, ObservationFilter, RuleSet
from engine.states import State
from events import types
from events.clock import foreign_run_id
from events.types import Event


class World:
    """A fold under way. `state` is everything it knows; rules and stepper are how it goes on."""

    def __init__(
        self,
        readings: Readings,
        rules: RuleSet = CURRENT,
        stepper: RunStepper | None = None,
        state: WorldState | None = None,
        vm_stepper: VmStepper | None = None,
    ) -> None:
        self.readings = readings
        self.rules = rules
        self.stepper = stepper if stepper is not None else RUN.table()
        self.state = state if state is not None else WorldState(rules=rules.name)
        if self.state.rules != rules.name:
            raise ValueError(f"a snapshot folded with {self.state.rules}, not {rules.name}")
        self.machines = Machines(self.state, vm_stepper if vm_stepper is not None else VM.table(), readings)

    # -- polls -------------------------------------------------------------------------------------------------------

    def apply(self, tick: Tick) -> tuple[Change, ...]:
        """Fold one poll; what it changed, in order."""
        state = self.state
        state.position = tick.position
        state.events += 1
        changes: list[Change] = []
        source = self.source(tick.source)
        if source.archive is None:
            source.archive = tick.imported
        polled(state, source, tick.observed_at, tick.position)
        if source.archive:
            tick = replace(tick, archive=archive_of(state, source))
        blind = heard(source, tick)
        if blind is not None:
            state.blind.append(blind)
            changes.append(blind)
        self._drift(tick, changes)
        skewed = compare_clocks(state, source, tick)
        if skewed is not None:
            self._keep([skewed], changes)
        if source.skew:
            tick = shifted(tick, source.skew)
        if tick.answered and tick.scope.watched:
            once = listed_once(tick.runs, tick.vms) if len(tick.runs) > 1 or len(tick.vms) > 1 else None
            if tick.scope.listing in (Listing.RUNS, Listing.RUN):
                self._answer(tick, once, source, changes)
            changes += self.machines.apply(tick, once, source)
        if tick.events:
            changes += self.machines.date(tick)
        if self.rules.timeout is not None:
            self._out_of_time(self.rules.timeout, tick, changes)
        return tuple(changes)

    def apply_event(self, position: int, at: int, event: Event) -> tuple[Change, ...]:
        """Fold one of our own intents or outcomes, observed `at`; other kinds of events change nothing."""
        state = self.state
        state.position = position
        state.events += 1
        state.outbox.apply(position, at, event)
        match event:
            case types.RecorderStarted():
                record_live(state, event.source)
            case types.SourceHidden() | types.SourceShown():
                set_hidden(state, event.source, hidden=isinstance(event, types.SourceHidden))
            case _:
                pass
        return Intents(state, self.rules, self.stepper, self.machines, self.readings).apply(position, at, event)

    def _answer(self, tick: Tick, once: Once | None, source: Source, changes: list[Change]) -> None:
        for seen in tick.runs if once is None else once.runs:
            self._see(seen, tick, changes, None if once is None else once.unlike.get(seen.facts.provider_id))
        if self.rules.watch is ObservationFilter.NAMED_LIST and tick.scope.listing is Listing.RUNS:
            self._named_list(tick, changes)
        if tick.scope.listing is Listing.RUNS and not tick.scope.filtered and tick.scope.page_after is None:
            changes += self.machines.orphans(tick)
        if self.rules.final:
            return
        ids = [seen.facts.provider_id for seen in tick.runs]
        # An answer with unreadable items proves no absence.
        sweep = None if tick.odd else sweep_ended(self.state.sweeps, tick.scope, tick.source, tick.started_at, ids)
        if sweep is not None:
            self._left_out(sweep, tick, source, changes)
        if tick.not_exists and tick.scope.by_id is not None:
            run_id = self.state.by_provider.get(f"{tick.scope.provider}/{tick.scope.by_id}")
            if run_id is not None and concerns(tick, self.state.runs[run_id]):
                self._miss(self.state.runs[run_id], tick, source, tick.started_at, changes, not_exists=True)

    def _see(self, seen: Seen, tick: Tick, changes: list[Change], unlike: str | None) -> None:
        if f"{tick.scope.provider}/{seen.facts.provider_id}" in self.state.former:
            return
        run = self._meet(seen.facts, tick, changes)
        if not may_move(tick, run):
            return
        turn = self._turn(run, tick)
        shown, asked_at = run.facts, max(run.started.values(), default=None)
        new, retried = turn.take_down(seen, tick, unlike)
        if new:
            match self.rules.watch:
                case ObservationFilter.EVERY:
                    turn.judge(seen.facts, retried=retried)
                case ObservationFilter.FIRST_OF_NAME:
                    turn.judge(self._first_of_name(seen.facts, tick.scope), retried=False)
                case ObservationFilter.CLOCK | ObservationFilter.NAMED_LIST:
                    if run.state is State.REQUESTED:
                        turn.arrive("first-sight")
        self._finish(turn, changes, new=new)
        if new:
            links = self.machines.links
            changes += links.run_shown(run, tick.position, tick.observed_at)
            if shown is not None and asked_at is not None:
                links.answered(run, shown, asked_at)

    def _turn(self, run: Run, tick: Tick) -> Turn:
        return Turn(run, position=tick.position, at=tick.observed_at, rules=self.rules, stepper=self.stepper)

    def _finish(self, turn: Turn, changes: list[Change], *, new: bool) -> None:
        run = turn.run
        if run.terminal:
            self.state.unsettled.pop(run.run_id, None)
            run.held = None
        elif run.run_id not in self.state.unsettled:
            self.state.unsettled[run.run_id] = None
        if new and not any(isinstance(change, Moved) for change in turn.changes):
            turn.changes.append(Moved(run_id=run.run_id, transition=None))
        self._keep(turn.changes, changes)

    def _keep(self, found: Iterable[Change], changes: list[Change]) -> None:
        for change in found:
            if isinstance(change, Anomaly):
                self.state.anomalies.append(change)
            changes.append(change)

    def _meet(self, facts: RunFacts, tick: Tick, changes: list[Change]) -> Run:
        """The run of an observation: one we know, one we handed over and have not seen yet, or a new one."""
        state, provider = self.state, tick.scope.provider
        key = f"{provider}/{facts.provider_id}"
        known = state.by_provider.get(key)
        if known is not None:
            return state.runs[known]
        ours = None if tick.archive is not None else self._marked(facts, provider)
        run = ours if ours is not None and _is_ours(ours, facts) and self._alone(facts, tick) else None
        if run is None:
            run = Run(
                run_id=foreign_run_id(provider, facts.provider_id),
                provider=provider,
                provider_id=facts.provider_id,
                first_position=tick.position,
                first_at=tick.observed_at,
                last_position=tick.position,
                last_at=tick.observed_at,
                archive=tick.archive,
                hidden=is_hidden(state, tick.archive),
            )
            state.runs[run.run_id] = run
            if ours is not None:
                kind, detail = AnomalyKind.AMBIGUOUS_SUBMISSION, _not_ours(ours, facts)
                self._keep(
                    [Anomaly(kind=kind, subject=f"run/{run.run_id}", position=tick.position, detail=detail)], changes
                )
        run.provider_id, run.intended = facts.provider_id, None
        state.by_provider[key] = run.run_id
        return run

    def identify(self, provider: str, facts: RunFacts) -> str:
        """The run id that an observation of a provider's run belongs to: what folding it would make of it.

        A former attempt moves nothing and stands for itself: beside the present one it would be news at every poll.
        """
        key = f"{provider}/{facts.provider_id}"
        if key in self.state.former:
            return foreign_run_id(provider, facts.provider_id)
        known = self.state.by_provider.get(key)
        if known is not None:
            return known
        ours = self._marked(facts, provider)
        if ours is not None and _is_ours(ours, facts):
            return ours.run_id
        return foreign_run_id(provider, facts.provider_id)

    def _marked(self, facts: RunFacts, provider: str) -> Run | None:
        """The run of this record that an unknown run of the provider carries the mark of."""
        run = self.state.runs.get(facts.mark) if facts.mark is not None else None
        return run if run is not None and run.requested_at is not None and run.provider == provider else None

    def _alone(self, facts: RunFacts, tick: Tick) -> bool:
        """Whether the answer shows the mark once, former attempts aside: of two, one is a copy."""
        others = {seen.facts.provider_id for seen in tick.runs if seen.facts.mark == facts.mark} - {facts.provider_id}
        return all(f"{tick.scope.provider}/{other}" in self.state.former for other in others)

    # -- what only the old pollers do --------------------------------------------------------------------------------

    def _first_of_name(self, facts: RunFacts, scope: Scope) -> RunFacts:
        return self.state.first_of_name.setdefault(f"{scope.provider}/{facts.project}/{facts.name}", facts)

    def _named_list(self, tick: Tick, changes: list[Change]) -> None:
        """What the client's `runs.list()` returns: the active runs, or the newest alone if none is; first of a name."""
        if tick.scope.page_after is not None:
            return
        listed = [seen.facts for seen in tick.runs]
        if not tick.scope.only_active:
            listed = [facts for facts in listed if not facts.final] or listed[:1]
        by_name: dict[tuple[str | None, str | None], RunFacts] = {}
        for facts in listed:
            by_name.setdefault((facts.project, facts.name), facts)
        for run_id in tuple(self.state.unsettled):
            run = self.state.runs[run_id]
            found = by_name.get((run.project, run.name))
            if found is not None and run.provider == tick.scope.provider:
                turn = self._turn(run, tick)
                turn.judge(found, retried=False)
                self._finish(turn, changes, new=False)

    def _out_of_time(self, timeout: Callable[[int, int], Move], tick: Tick, changes: list[Change]) -> None:
        for run_id in tuple(self.state.unsettled):
            run = self.state.runs[run_id]
            move = timeout(tick.observed_at, run.first_at)
            if isinstance(move, Verdict):
                turn = self._turn(run, tick)
                turn.settle(move, None)
                self._finish(turn, changes, new=False)

    # -- absence -----------------------------------------------------------------------------------------------------

    def _left_out(self, sweep: Sweep, tick: Tick, source: Source, changes: list[Change]) -> None:
        """Every unsettled run a complete sweep should have listed and did not."""
        for run_id in tuple(self.state.unsettled):
            run = self.state.runs[run_id]
            if run.provider != tick.scope.provider or run.provider_id is None or run.provider_id in sweep.ids:
                continue
            if not concerns(tick, run):
                continue
            if tick.scope.project is not None and run.project != tick.scope.project:
                continue
            self._miss(run, tick, source, sweep.started_at, changes, not_exists=False)

    def _miss(
        self, run: Run, tick: Tick, source: Source, asked_at: int, changes: list[Change], *, not_exists: bool
    ) -> None:
        """A poll asked at `asked_at` does not know the run. Absence is never by itself a state: it has to last."""
        if run.terminal or asked_at < max(run.started.values(), default=run.first_at):
            return
        missing = run.missing
        if missing is None or missing.source != source.name:
            run.missing = Missing(source.name, source.answered_time, not_exists)
            return
        if not_exists and not missing.not_exists:
            run.missing = missing = Missing(source.name, missing.since, not_exists=True)
        if source.answered_time - missing.since >= LOST_AFTER:
            turn = self._turn(run, tick)
            turn.lose(not_exists=missing.not_exists)
            self._finish(turn, changes, new=False)
            changes += self.machines.links.leave_all(run, tick.observed_at)

    # -- sources -----------------------------------------------------------------------------------------------------

    def source(self, name: str) -> Source:
        """What is known of a source; a new one if nothing is yet."""
        return source_named(self.state.sources, name)

    def _drift(self, tick: Tick, changes: list[Change]) -> None:
        """Items of an answer that could not be read at all, once per wording."""
        for detail in tick.odd:
            subject = f"source/{tick.source}"
            if f"{subject} {detail}" not in self.state.noted:
                self.state.noted[f"{subject} {detail}"] = None
                kind = AnomalyKind.SCHEMA_DRIFT
                self._keep([Anomaly(kind=kind, subject=subject, position=tick.position, detail=detail)], changes)


def _is_ours(run: Run, facts: RunFacts) -> bool:
    """Whether a run that carries our mark is the run we were about to hand over. A name alone never says so."""
    return run.intended is not None and run.intended == facts.name and facts.project in (None, run.project)


def _not_ours(run: Run, facts: RunFacts) -> str:
    """Why a run that carries our mark is not taken for ours, and what to do."""
    if run.provider_id is not None:
        why = f"which is {run.provider_id}"
    elif run.intended is None:
        why = "which has not been handed over" if not run.terminal else "which ended without being handed over"
    elif run.intended != facts.name:
        why = f"which was handed over as {run.intended}"
    elif facts.project not in (None, run.project):
        why = f"which is of project {run.project}"
    else:
        why = "and so does another run"
    return (
        f"{facts.name} ({facts.provider_id}) carries the mark of run {run.run_id}, {why}. It is recorded as somebody "
        f"else's run. To stop it: `steno stop {facts.provider_id}`"
    )
