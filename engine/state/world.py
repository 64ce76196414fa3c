"""Everything a fold knows, as one value that can be encoded, decoded and queried."""

from bisect import bisect_left
from typing import Final, NamedTuple

import msgspec

from steno.engine.state.changes import Anomaly, Blind
from steno.engine.state.facts import RunFacts
from steno.engine.state.inventory import Index, Inventory, decoder, encode
from steno.engine.state.levers import Lever
from steno.engine.state.outbox import Outbox
from steno.engine.state.policy import Policy
from steno.engine.state.run import Run
from steno.engine.state.sources import Source, Sweep
from steno.engine.state.vm import Vm, VmDate

LEAPT: Final = 1 << 16  # in place of a machine: one event was an outlier


class PolicyStep(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    at: int
    policy: Policy


class PlanAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The provider's newest answer to what it could start one kind of task on."""

    at: int
    since: int  # when it first answered so: with offers, or without
    offers: int
    reason: str = ""


class HostMachines(msgspec.Struct, array_like=True):
    """The machines that had one hostname."""

    there: list[str] = []  # those that may be there still
    gone: list[tuple[int, str]] = []  # the others, each behind its end, in order: a host may have had thousands

    def add(self, vm: Vm) -> None:
        if vm.vm_id not in self.there and (vm.over_at is None or self._place(vm.over_at, vm.vm_id) is None):
            self.there.append(vm.vm_id)

    def end_moved(self, vm_id: str, before: int) -> None:
        """The end of a machine is no longer `before`."""
        if (place := self._place(before, vm_id)) is not None:
            del self.gone[place]
            self.there.append(vm_id)

    def _place(self, end: int, vm_id: str) -> int | None:
        place = bisect_left(self.gone, (end, vm_id))
        return place if self.gone[place : place + 1] == [(end, vm_id)] else None


class ClockStep(NamedTuple):
    """From a position on, the record time of a boot's events is their boot time plus `offset`."""

    position: int
    machine: int  # of `Stamp.epoch`, of an import below 0; `LEAPT`: this event alone is at `offset`
    offset: int


class BootClock(msgspec.Struct, kw_only=True):
    """The wall clock of one boot of a machine, as far as it is known. Times are microseconds."""

    offset: int  # record time less boot time
    jumps: dict[int, int] = {}  # epoch → how far its wall clock is ahead of record time, as last noted
    checked: bool = False  # with a poll: against the provider's clock, if that dates its answers


class World(msgspec.Struct, kw_only=True):
    """The world after `position`."""

    rules: str  # the name of the rule set it was folded with
    rule_texts: tuple[str, ...] = ()  # its `RuleSet.texts`
    position: int = 0  # the last event folded
    events: int = 0  # polls and intents folded
    last_at: int | None = None  # the newest `observed_at` of a live source; archives have their own
    importing: str | None = None  # the project of the newest imported poll
    runs: Inventory[Run] = msgspec.field(default_factory=Inventory)  # by run_id; what was requested is there from then
    by_provider: Index[str] = msgspec.field(default_factory=Index)  # `<provider>/<provider_id>` → run_id
    former: dict[str, str] = {}  # as `by_provider`: former requests without capacity. Polls of them move nothing.
    carried: dict[str, dict[str, str]] = {}  # as `by_provider`, a carrier → its name → the run that it carries
    arrays: dict[str, None] = {}  # `<provider>/<project>/<array>@<submitted_at>` of arrays with known tasks
    sources: dict[str, Source] = {}
    sweeps: dict[str, Sweep] = {}
    first_of_name: dict[str, RunFacts] = {}  # for the rule set that only looks once
    vms: Inventory[Vm] = msgspec.field(default_factory=Inventory)  # by vm_id, in order of first sight
    by_host: dict[str, HostMachines] = {}  # `<provider>/<project>/<hostname>` → the machines that had it
    waiting: dict[str, list[str]] = {}  # as `by_host` → runs with a submission there without a machine
    early_dates: dict[str, dict[str, tuple[VmDate, ...]]] = {}
    """By source and vm_id: what the provider dated, by its own clock, of machines that no poll has shown yet."""
    fleets: dict[str, None] = {}  # `<provider>/<project>/<name>` of fleets we ensured
    policies: dict[str, tuple[PolicyStep, ...]] = {}  # source → the policies in force, oldest first
    levers: dict[str, Lever] = {}  # by lever_id, those not released, in order; those whose time has passed may be there
    plans: dict[str, dict[str, PlanAnswer]] = {}  # source → `PlanAnswered.requirement` → the newest answer
    crossed: dict[str, int] = {}  # `<threshold>/<total>` → the position of the alert
    moved_budget: dict[str, int] = {}  # owner → micro-dollars that it got from others, less what it gave
    anomalies: list[Anomaly] = []
    blind: list[Blind] = []
    clocks: dict[int, BootClock] = {}  # the upper half of `Stamp.epoch` → the clock of that boot of a machine
    clock_steps: list[ClockStep] = []  # what record time is, in order of position
    outbox: Outbox = msgspec.field(default_factory=Outbox)
    noted: dict[str, None] = {}  # anomalies of sources already written down
    cases: dict[str, int] = {}  # what the rules saw of any run, as JSON → its number, from 1 in order of first sight


dump: Final = encode  # the state as bytes, with all that is over; `load` gives it back equal

_decoder: Final = decoder(World)


def load(data: bytes) -> World:
    """The state that `dump` wrote; ValueError: the bytes are of another version, fold again from the start."""
    state, known = _decoder.decode(data), dict[str, str]()
    for run in state.runs.all():
        share_words(run, known)
    return state


def share_words(run: Run, known: dict[str, str]) -> None:
    """Keep one of equal texts: decoded, each word is a text of its own, a quarter of the world's memory."""

    def share(thing: msgspec.Struct, *names: str) -> None:
        for name in names:
            if (text := getattr(thing, name)) is not None:
                msgspec.structs.force_setattr(thing, name, known.setdefault(text, text))

    share(run, "provider", "project", "rule")
    share(run.reported, "status", "reason")
    for step in run.transitions:
        share(step, "rule")
    if run.facts is not None:
        share(run.facts, "project", "user", "status", "reason")
        for attempt in run.facts.attempts:
            share(attempt, "hostname", "status", "reason")


_DEFAULT = Policy()


def source_of(run: Run) -> str:
    """The source a run belongs to: `<provider>/<project>`."""
    return f"{run.provider}/{run.project}" if run.project else run.provider


def vms_of(state: World, source: str) -> tuple[Vm, ...]:
    """The machines of a source not seen gone, in order of first sight: all that may be billed are among them."""
    return tuple(vm for vm in state.vms.open() if vm.source == source and vm.archive is None)


def ours_of(state: World, source: str) -> tuple[Vm, ...]:
    """As `vms_of`, the machines that Steno made: only they count to the cap and are stopped."""
    return tuple(vm for vm in vms_of(state, source) if vm.ours)


def policy_of(state: World, source: str) -> Policy:
    """The policy in force for a source, by default the default policy."""
    steps = state.policies.get(source)
    return steps[-1].policy if steps else _DEFAULT


def idle_evidence(state: World, vm: Vm) -> int:
    """For how long (microseconds) polls show the machine idle, without blind time; 0: not idle. It ends at the last
    poll that listed the machine: later answers of its source about other things are not evidence.
    """
    source = state.sources.get(vm.source)
    if vm.idle_from is None or source is None:
        return 0
    unseen = max(0, (source.last_answered or 0) - vm.last_at)
    return max(0, source.answered_time - unseen - vm.idle_from)


def runs_of(state: World, source: str) -> tuple[Run, ...]:
    """The runs of a source without a verdict, in order of first sight (or of request)."""
    return tuple(run for run in state.runs.open() if source_of(run) == source and run.archive is None)
