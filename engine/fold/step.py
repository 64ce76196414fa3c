"""An event while it is folded: the fold, the event's position and time, and the changes so far."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from steno.engine.rules.sets import RuleSet
from steno.engine.state.archives import concerns
from steno.engine.state.changes import Anomaly, AnomalyKind, Change, Missing
from steno.engine.state.facts import RunFacts, VmEvent, VmFacts
from steno.engine.state.reading import Readings, Tick
from steno.engine.state.run import Run
from steno.engine.state.sources import LOST_AFTER, Source, Sweep
from steno.engine.state.state_machines import Step, Trigger, VmTrigger
from steno.engine.state.states import State, VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World


@dataclass(eq=False)
class FoldContext:
    """A world, and how to continue it."""

    state: World
    readings: Readings
    rules: RuleSet
    step_run: Step[State, Trigger]
    step_vm: Step[VmState, VmTrigger]
    dated: tuple[VmEvent, ...] = ()  # the newest answer that dates events of machines
    listed: list[Run | Vm] = field(default_factory=list)  # what the newest answer lists and may move
    follows: bool = False  # the rules that the record adopts
    found_again: bool = False  # and whether some of that was missing

    def source(self, name: str) -> Source:
        """The state of a source; a new `Source` if nothing is known of it."""
        source = self.state.sources.get(name)
        if source is None:
            source = self.state.sources[name] = Source(name=name)
        return source


class FoldStep:
    __slots__ = ("at", "changes", "fold", "position", "rules", "source", "state")

    def __init__(self, fold: FoldContext, position: int, at: int) -> None:
        self.fold, self.state, self.rules, self.source = fold, fold.state, fold.rules, fold.source
        fold.state.position = position
        fold.state.events += 1
        self.position = position
        self.at = at  # when it was observed (microseconds, UTC)
        self.changes: list[Change] = []  # in order

    def note(self, thing: Run | Vm, kind: AnomalyKind, detail: str, *, once: bool = False) -> None:
        """Record an anomaly of a run or machine; with `once` only the first of its wording."""
        mark = f"{kind.value}: {detail}"
        if once:
            if mark in thing.noted:
                return
            thing.noted = (*thing.noted, mark)
        self.changes.append(Anomaly(kind=kind, subject=thing.subject, position=self.position, detail=detail))

    def end_moved(self, vm: Vm, before: int) -> None:
        """A machine that was gone since `before` has another end, or came back."""
        for known in self.state.by_host.values():
            known.end_moved(vm.vm_id, before)

    def note_drift(self, source: str, drift: str, prefix: str = "") -> None:
        """Record something unreadable in a source's answer, once per wording."""
        subject = f"source/{source}"
        if f"{subject} {drift}" not in self.state.noted:
            self.state.noted[f"{subject} {drift}"] = None
            self.note_source(source, AnomalyKind.SCHEMA_DRIFT, f"{prefix}{drift}")

    def note_source(self, source: str, kind: AnomalyKind, detail: str) -> None:
        self.changes.append(Anomaly(kind=kind, subject=f"source/{source}", position=self.position, detail=detail))

    def changed(self, thing: Run | Vm, since: int = 0) -> None:
        """Publish that a run or machine changed, unless the changes from the `since`th on publish it already."""
        change = thing.moved()
        if len(self.changes) == since or type(change) not in map(type, self.changes[since:]):
            self.changes.append(change)

    def sees(self, thing: Run | Vm, tick: Tick, facts: RunFacts | VmFacts) -> bool:
        """Record that this poll shows it; False for an answer older than the newest one of the same source."""
        if tick.started_at < thing.started.get(tick.asked, tick.started_at):
            return False
        thing.started[tick.source] = max(tick.started_at, thing.started.get(tick.source, 0))
        if tick.scope.witness is not None:
            thing.started[tick.asked] = tick.started_at
        thing.last_position, thing.last_at = self.position, self.at
        if thing.missing is not None:
            thing.missing, self.fold.found_again = None, True
        if tick.unlike and facts.provider_id in tick.unlike:
            self.note(thing, AnomalyKind.CONTRADICTION, tick.unlike[facts.provider_id], once=True)
        return True

    def misses(self, thing: Run | Vm, source: Source, asked_at: int, *, not_exists: bool = False) -> bool:
        """Record that a poll asked at `asked_at` does not list it; whether it has been missing for too long: absence
        has to last before it means anything.
        """
        if asked_at < (thing.first_at if thing.asked_at is None else thing.asked_at):
            return False
        missing = thing.missing
        if missing is None or missing.source != source.name:
            thing.missing = Missing(source=source.name, since=source.answered_time, at=self.at, not_exists=not_exists)
            return False
        if not_exists and not missing.not_exists:
            thing.missing = replace(missing, not_exists=True)
        return source.answered_time - missing.since >= LOST_AFTER


def is_left_out(thing: Run | Vm, sweep: Sweep, tick: Tick) -> bool:
    """True if a complete sweep should have listed a run or machine and did not."""
    project = thing.project if isinstance(thing, Run) else thing.facts.project
    return (
        thing.provider == tick.scope.provider
        and (listed_as := thing.listed_as if isinstance(thing, Run) else thing.provider_id) is not None
        and listed_as not in sweep.ids
        and concerns(tick, thing)
        and tick.scope.project in (None, project)
    )
