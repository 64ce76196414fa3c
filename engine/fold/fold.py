"""The fold: one poll or intent at a time into one world of runs, machines and sources. Replay is this fold without
effects.
"""

from collections.abc import Callable, Collection

from msgspec.structs import replace

from steno.engine.fold import arrays, chains, firings, intents, links, machines, run_step
from steno.engine.fold.poll_reader import listed_once
from steno.engine.fold.record_time import RecordTime, compare_clocks, shifted
from steno.engine.fold.step import FoldContext, FoldStep, is_left_out
from steno.engine.rules.rule_file import rules_of
from steno.engine.rules.sets import ADOPTED, CURRENT, Move, ObservationFilter, RuleSet, Verdict
from steno.engine.state.archives import archive_of, concerns, imported_id, is_hidden, may_move, polled, repeated
from steno.engine.state.changes import Anomaly, AnomalyKind, Blind, Change, Moved
from steno.engine.state.facts import RunFacts
from steno.engine.state.reading import Listing, Readings, Seen, Tick
from steno.engine.state.run import Run
from steno.engine.state.sources import Source, Sweep, heard, sweep_ended
from steno.engine.state.state_machines import RUN, VM, Trigger
from steno.engine.state.states import Reason, State
from steno.engine.state.world import World
from steno.events.types import Event


class Fold(FoldContext):
    """A fold in progress. `state` is everything it knows."""

    def __init__(
        self, readings: Readings, rules: RuleSet = CURRENT, state: World | None = None, *, live: bool = False
    ) -> None:
        """`rules`: with `ADOPTED` those that the record adopts, from there on. `live`: step through the `transitions`
        machines themselves, not through tables derived from them.
        """
        if follows := rules is ADOPTED:
            rules = CURRENT if state is None else rules_of(state.rule_texts)
        state = state if state is not None else World(rules=rules.name)
        if state.rules != rules.name:
            raise ValueError(f"a snapshot folded with {state.rules}, not {rules.name}")
        steps = (RUN.live(), VM.live()) if live else (RUN.table, VM.table)
        super().__init__(state, readings, rules, *steps, follows=follows)
        self.time = RecordTime(state)

    def apply(self, tick: Tick) -> tuple[Change, ...]:
        """Fold one poll; its changes, in order."""
        state, source = self.state, self.source(tick.source)
        turn = FoldStep(self, tick.position, tick.observed_at)
        self.listed, self.found_again = [], False
        if source.archive is None:
            source.archive = tick.imported
        polled(state, source, tick.observed_at, tick.position)
        if source.archive:
            tick = replace(tick, archive=archive_of(state, source))
        blind = heard(source, tick)
        if blind is not None:
            turn.changes.append(blind)
        for odd in tick.odd:
            turn.note_drift(tick.source, odd)
        for news in self.time.news:
            turn.note_source(tick.source, AnomalyKind.CLOCK_JUMP, f"the clock of this machine is not believed: {news}")
        self.time.news.clear()
        compare_clocks(turn, source, tick)
        if source.skew:
            tick = shifted(tick, source.skew)
        if tick.answered and tick.scope.watched:
            # An answer with unreadable items proves no absence.
            whole = not tick.odd and not tick.scope.filtered
            sweep = sweep_ended(state.sweeps, tick.scope, tick.source, tick.started_at, tick.ids) if whole else None
            if len(tick.runs) > 1 or len(tick.vms) > 1:
                tick = listed_once(tick, self.readings.of(tick.scope.provider))
            if tick.scope.listing in (Listing.RUNS, Listing.RUN):
                self._answer(turn, tick, source, sweep)
            machines.apply(turn, tick, source, sweep)
        if tick.events:
            machines.date(turn, tick)
        if self.rules.timeout is not None:
            self._time_out(turn, self.rules.timeout)
        return self._end(turn)

    def apply_event(self, position: int, at: int, event: Event) -> tuple[Change, ...]:
        """Fold one of our own intents or outcomes, observed `at`; other kinds of events change nothing."""
        turn = FoldStep(self, position, at)
        self.state.outbox.apply(position, at, event)
        intents.apply(event, turn)
        return self._end(turn)

    def _end(self, turn: FoldStep) -> tuple[Change, ...]:
        moved = [self.state.runs.get(change.run_id) for change in turn.changes if isinstance(change, Moved)]
        for array_id in dict.fromkeys(run.array for run in moved if run is not None and run.array is not None):
            arrays.follow(turn, array := self.state.runs[array_id])
            self._keep(array)
        for change in turn.changes:
            if isinstance(change, Anomaly):
                self.state.anomalies.append(change)
            elif isinstance(change, Blind):
                self.state.blind.append(change)
        return tuple(turn.changes)

    def _answer(self, turn: FoldStep, tick: Tick, source: Source, sweep: Sweep | None) -> None:
        listed = self._listed(turn, tick)
        if self.rules.watch is ObservationFilter.NAMED_LIST and tick.scope.listing is Listing.RUNS:
            self._named_list(turn, tick)
        if tick.scope.listing is Listing.RUNS and not tick.scope.filtered and tick.scope.page_after is None:
            machines.find_orphans(turn, tick)
        if tick.scope.covers is not None and not tick.odd:
            self._not_listed(turn, tick, tick.scope.covers, source, listed)
        if self.rules.final:
            return
        if sweep is not None:
            for run in self.state.runs.open():
                if is_left_out(run, sweep, tick):
                    self._miss(turn, run, source, sweep.started_at, not_exists=False)
        if tick.not_exists and tick.scope.by_id is not None:
            run_id = self.state.by_provider.get(f"{tick.scope.provider}/{tick.scope.by_id}")
            if run_id is not None and concerns(tick, self.state.runs[run_id]):
                firings_of = (run for run in self.state.runs.open() if run.schedule == run_id)
                for run in (self.state.runs[run_id], *firings_of):
                    self._miss(turn, run, source, tick.started_at, not_exists=True)

    def _listed(self, turn: FoldStep, tick: Tick) -> set[str]:
        """Fold the runs that an answer lists; the ids of those that it may list."""
        listed = set[str]()
        for seen in arrays.listed(self.state, tick.scope.provider, tick.runs):
            key = f"{tick.scope.provider}/{seen.facts.provider_id}"
            if key in self.state.former:
                continue
            match self._meet(turn, key, seen.facts, tick):
                case Run() as run:
                    listed.add(run.run_id)
                    if seen.facts.schedule is None or self.rules.watch is not ObservationFilter.EVERY:
                        self._see(turn, run, seen, tick)
                    elif may_move(tick, run) and tick.started_at >= run.started.get(tick.asked, 0):
                        self._see_schedule(turn, run, seen.facts, tick)
                    arrays.note(self.state, run)
                    arrays.join(turn, run)
                case chains.Match():
                    listed.update(other.run_id for other in chains.behind(self.state, key))
        return listed

    def _see(self, turn: FoldStep, run: Run, seen: Seen, tick: Tick) -> None:
        if not may_move(tick, run):
            return
        self.listed.append(run)
        facts, before, begin = seen.facts, run.facts, len(turn.changes)
        asked_at = None if before is facts else run.asked_at
        new, retried = run_step.take_down(turn, run, seen, tick)
        if new:
            facts = run.facts or facts
            match self.rules.watch:
                case ObservationFilter.EVERY:
                    run_step.judge(turn, run, facts, retried=retried)
                case ObservationFilter.FIRST_OF_NAME:
                    key = f"{tick.scope.provider}/{facts.project}/{facts.name}"
                    run_step.judge(turn, run, self.state.first_of_name.setdefault(key, facts))
                case ObservationFilter.CLOCK | ObservationFilter.NAMED_LIST:
                    if run.state is State.REQUESTED:
                        run_step.step(turn, run, Trigger.QUEUE, f"{self.rules.name}/first-sight")
            self._keep(run)
            turn.changed(run, begin)
            links.run_shown(turn, run)
            if before is not None and asked_at is not None:
                links.answered(turn, run, before, asked_at)

    def _see_schedule(self, turn: FoldStep, schedule: Run, facts: RunFacts, tick: Tick) -> None:
        """Fold a schedule, and each firing that the answer shows as a run of its own."""
        self._see(turn, schedule, Seen(facts=firings.schedule_itself(facts)), tick)
        for firing in firings.split(self.state, schedule, facts):
            run = self._meet(turn, f"{tick.scope.provider}/{firing.provider_id}", firing, tick)
            if isinstance(run, Run):
                firings.join(schedule, run)
                if firing.jobs:
                    self._see(turn, run, Seen(facts=firing), tick)
                elif not run.terminal and run.state is not State.LOST:
                    run_step.step(turn, run, Trigger.LOSE, f"{self.rules.name}/not-seen")
                    run.reason, run.name, run.project = Reason.UNKNOWN_REASON, firing.name, firing.project
                    self.state.runs.open_ids.pop(run.run_id, None)
                    links.leave_all(turn, run)
                    turn.changed(run)

    def _not_listed(
        self, turn: FoldStep, tick: Tick, covers: frozenset[str], source: Source, listed: Collection[str]
    ) -> None:
        """Runs that this one of several sources should list and does not; an array's id covers its tasks."""
        cut = {seen.facts.group for seen in tick.runs if seen.facts.group_cut}
        for run in self.state.runs.open():
            known = run.provider_id or ""
            array = known.partition("_")[0]
            asked_for = ("*" in covers or known in covers or array in covers) and array not in cut
            if run.provider != tick.scope.provider or run.run_id in listed or not run.views or not asked_for:
                continue
            if tick.scope.project in (None, run.project) and concerns(tick, run) and tick.started_at >= run.first_at:
                run_step.not_listed(turn, run, tick)
                self._keep(run)
                if not any(run.views.values()) and not self.rules.final:
                    self._miss(turn, run, source, tick.started_at, not_exists=False)

    def _meet(self, turn: FoldStep, key: str, facts: RunFacts, tick: Tick) -> Run | chains.Match:
        """The run of an observation: a known one, one we submitted and have not seen yet, or a new one; a `Match`:
        which one is not known yet.
        """
        state, provider = self.state, tick.scope.provider
        known = chains.find(state, self.readings.of(provider), key, facts, tick)
        if known is not chains.Match.NONE:
            return known
        # A task has the mark of its array.
        ours = None if tick.archive is not None or facts.group is not None else self._marked(facts, provider)
        run = ours if ours is not None and _is_ours(ours, facts) and self._alone(facts, tick) else None
        if run is None and tick.archive is not None and (run := repeated(state, facts, provider)) is not None:
            intents.ask_again(turn, run, run.provider_id or "")
        if run is None:
            marked = None if tick.archive is None else imported_id(state, facts)
            run = Run(
                run_id=marked or chains.new_id(state, provider, facts),
                provider=provider,
                provider_id=facts.provider_id,
                submitted_at=facts.submitted_at,
                first_position=turn.position,
                first_at=turn.at,
                last_position=turn.position,
                last_at=turn.at,
                archive=tick.archive,
                hidden=is_hidden(state, tick.archive),
            )
            if run.run_id in state.runs:
                return chains.Match.UNDECIDED  # nothing tells it from a run that is known
            state.runs[run.run_id] = run
            if ours is not None:
                turn.note(run, AnomalyKind.AMBIGUOUS_SUBMISSION, _not_ours(ours, facts))
        run.provider_id, run.intended = facts.provider_id, None
        for other in chains.add(state, key, run):
            turn.changed(other, len(turn.changes))
        return run

    def identify(self, provider: str, facts: RunFacts) -> str:
        """The run id that an observation of a provider's run belongs to, as folding it would decide. A former attempt
        moves nothing and has an id of its own: under the present run's id it would be news at every poll.
        """
        key = f"{provider}/{facts.provider_id}"
        if key not in self.state.former:
            match chains.find(self.state, self.readings.of(provider), key, facts, None):
                case Run() as run:
                    return run.run_id
                case chains.Match.UNDECIDED:
                    return self.state.by_provider[key]
                case chains.Match.NONE:
                    ours = None if facts.group is not None else self._marked(facts, provider)
                    if ours is not None and _is_ours(ours, facts):
                        return ours.run_id
        return chains.new_id(self.state, provider, facts)

    def _marked(self, facts: RunFacts, provider: str) -> Run | None:
        """The run of this record whose mark an unknown run of the provider carries."""
        run = self.state.runs.get(facts.mark) if facts.mark is not None else None
        return run if run is not None and run.requested_at is not None and run.provider == provider else None

    def _alone(self, facts: RunFacts, tick: Tick) -> bool:
        """True if the answer shows the mark once, former attempts aside: of two, one is a copy."""
        others = {seen.facts.provider_id for seen in tick.runs if seen.facts.mark == facts.mark} - {facts.provider_id}
        return all(f"{tick.scope.provider}/{other}" in self.state.former for other in others)

    def _named_list(self, turn: FoldStep, tick: Tick) -> None:
        """The answer of the client's `runs.list()`: the active runs, else the newest alone; first of a name."""
        if tick.scope.page_after is not None:
            return
        listed = [seen.facts for seen in tick.runs]
        if not tick.scope.only_active:
            listed = [facts for facts in listed if not facts.final] or listed[:1]
        by_name = {(facts.project, facts.name): facts for facts in reversed(listed)}
        for run in self.state.runs.open():
            newest = by_name.get((run.project, run.name))
            if newest is not None and run.provider == tick.scope.provider:
                run_step.judge(turn, run, newest)
                self._keep(run)

    def _time_out(self, turn: FoldStep, timeout: Callable[[int, int], Move]) -> None:
        for run in self.state.runs.open():
            move = timeout(turn.at, run.first_at)
            if isinstance(move, Verdict):
                run_step.settle(turn, run, move)
                self._keep(run)

    def _miss(self, turn: FoldStep, run: Run, source: Source, asked_at: int, *, not_exists: bool) -> None:
        if run.terminal or not turn.misses(run, source, asked_at, not_exists=not_exists):
            return
        run_step.lose(turn, run, not_exists=run.missing is not None and run.missing.not_exists)
        self._keep(run)
        links.leave_all(turn, run)

    def _keep(self, run: Run) -> None:
        if run.terminal:
            self.state.runs.open_ids.pop(run.run_id, None)
            run.held = None
        else:
            self.state.runs.open_ids.setdefault(run.run_id)


def _is_ours(run: Run, facts: RunFacts) -> bool:
    """True if a run that carries our mark is the run we were about to submit. A name alone never proves it."""
    return run.intended is not None and run.intended == facts.name and facts.project in (None, run.project)


def _not_ours(run: Run, facts: RunFacts) -> str:
    """Why a run that carries our mark is not treated as ours, and what to do."""
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
