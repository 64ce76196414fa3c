"""The state machines of runs and machines, each declared once as a `transitions` Machine; replay's table and the
diagrams are derived from it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from steno.engine.state.states import PROGRESS, State, VmState

StateT = TypeVar("StateT", bound=StrEnum)
TriggerT = TypeVar("TriggerT", bound=StrEnum)
Step: TypeAlias = Callable[[StateT, TriggerT], StateT | None]
"""The state a trigger leads to; the same state if it is already there; None: the move is illegal."""


@dataclass(frozen=True)
class StateMachine(Generic[StateT, TriggerT]):
    """A declaration, and what is derived from it; its first state is initial. `machine` needs 30 ms of imports."""

    name: str
    states: type[StateT]
    rows: Sequence[tuple[TriggerT, Sequence[StateT], StateT]]
    """By this trigger, from any of these states, to that state. A trigger has one row."""
    ends: Sequence[StateT]

    @cached_property
    def machine(self) -> Any:
        from transitions import Machine

        return Machine(
            name=self.name,
            states=[{"name": state.value, "final": state in self.ends} for state in self.states],
            transitions=[
                {"trigger": trigger.value, "source": [source.value for source in sources], "dest": dest.value}
                for trigger, sources, dest in self.rows
            ],
            initial=next(iter(self.states)).value,
            auto_transitions=False,
        )

    def moves(self) -> Iterator[tuple[StateT, TriggerT, StateT]]:
        """Every legal (source, trigger, destination) of the machine, by trigger."""
        for trigger, _, _ in self.rows:
            for source, (transition, *_) in self.machine.events[trigger].transitions.items():
                yield self.states(source), trigger, self.states(transition.dest)

    @cached_property
    def table(self) -> Step[StateT, TriggerT]:
        """For replay: a dictionary, some 0.1 µs a step."""
        moves = {(source, trigger): dest for source, trigger, dest in self.moves()}
        moves |= {(dest, trigger): dest for (_, trigger), dest in moves.items()}
        return lambda state, trigger: moves.get((state, trigger))

    def live(self) -> Step[StateT, TriggerT]:
        """For the live path: the machine itself. Each step has its own model, as worlds in several threads share it."""
        machine = self.machine

        def step(state: StateT, trigger: TriggerT) -> StateT | None:
            transitions = machine.events[trigger].transitions
            if state not in transitions:
                there = any(transition.dest == state for several in transitions.values() for transition in several)
                return state if there else None
            model = SimpleNamespace(state=state.value)
            machine.events[trigger].trigger(model)
            return self.states(model.state)

        return step

    def diagram(self, form: Literal["mermaid", "dot"] = "mermaid") -> str:
        """The state diagram as Mermaid (`stateDiagram-v2`) or Graphviz text, ending in a newline."""
        return self._mermaid() if form == "mermaid" else self._dot()

    def _mermaid(self) -> str:
        from transitions.extensions import HierarchicalGraphMachine  # its diagram marks final states

        machine = HierarchicalGraphMachine(
            model=None,
            states=[{"name": state.name, "final": state.final} for state in self.machine.states.values()],
            transitions=[
                {"trigger": trigger.value, "source": source.value, "dest": dest.value}
                for source, trigger, dest in self.moves()
            ],
            initial=self.machine.initial,
            auto_transitions=False,
            graph_engine="mermaid",
        )
        graph: Any = machine.graph_cls(machine).get_graph(title=f"title: {self.name}")
        return "\n".join(line.rstrip() for line in graph.source.splitlines()) + "\n"

    def _dot(self) -> str:
        """Without `transitions`, which draws Graphviz only if a Graphviz library is installed."""
        labels: dict[tuple[StateT, StateT], list[str]] = {}
        for source, trigger, dest in self.moves():
            labels.setdefault((source, dest), []).append(trigger.value)
        lines = [f"digraph {self.name} {{", "    rankdir=LR;"]
        lines += [f"    {state.name} [shape=doublecircle];" for state in self.machine.states.values() if state.final]
        lines += [f'    {source} -> {dest} [label="{", ".join(names)}"];' for (source, dest), names in labels.items()]
        return "\n".join((*lines, "}")) + "\n"


class Trigger(StrEnum):
    QUEUE = "queue"
    PROVISION = "provision"
    PULL = "pull"
    RUN = "run"
    FINISH = "finish"
    RETRY = "retry"  # back in its queue, or a higher attempt number
    SUCCEED = "succeed"
    FAIL = "fail"
    STOP = "stop"
    LOSE = "lose"  # ten answered minutes without it
    REOPEN = "reopen"  # the provider takes an end back


TERMINAL: Final = (State.SUCCEEDED, State.FAILED, State.STOPPED)  # the states with a verdict


def _before(state: State) -> tuple[State, ...]:
    return (*PROGRESS[: PROGRESS.index(state)], State.LOST)


RUN: Final = StateMachine(
    "run",
    State,
    (
        (Trigger.QUEUE, _before(State.QUEUED), State.QUEUED),
        (Trigger.PROVISION, _before(State.PROVISIONING), State.PROVISIONING),
        (Trigger.PULL, _before(State.PULLING), State.PULLING),
        (Trigger.RUN, _before(State.RUNNING), State.RUNNING),
        (Trigger.FINISH, _before(State.FINISHING), State.FINISHING),
        (Trigger.RETRY, (*PROGRESS[2:], State.LOST), State.QUEUED),
        (Trigger.SUCCEED, (*PROGRESS, State.LOST, State.FAILED, State.STOPPED), State.SUCCEEDED),
        (Trigger.FAIL, (*PROGRESS, State.LOST, State.SUCCEEDED, State.STOPPED), State.FAILED),
        (Trigger.STOP, (*PROGRESS, State.LOST, State.SUCCEEDED, State.FAILED), State.STOPPED),
        (Trigger.LOSE, PROGRESS, State.LOST),
        (Trigger.REOPEN, TERMINAL, State.QUEUED),
    ),
    ends=TERMINAL,
)
"""From one terminal state to another only by a newer decisive observation that contradicts it."""

TRIGGER_TO: Final = {dest: trigger for trigger, _, dest in RUN.rows if trigger not in (Trigger.RETRY, Trigger.REOPEN)}
"""The trigger by which a reading moves a run to a state."""


class VmTrigger(StrEnum):
    PROVISION = "provision"
    BUSY = "busy"
    IDLE = "idle"
    DRAIN = "drain"  # our intent
    KEEP = "keep"  # a run came in the last moment, or the drain was cancelled
    TERMINATE = "terminate"
    TERMINATED = "end"
    DOUBT = "doubt"  # 14 minutes after the stop, or no longer listed: nobody saw it end
    REAPPEAR = "reappear"  # the provider takes an end back


_MADE: Final = (VmState.REQUESTED, VmState.PROVISIONING)
_UP: Final = (*_MADE, VmState.IDLE, VmState.BUSY, VmState.DRAINING)

VM: Final = StateMachine(
    "vm",
    VmState,
    (
        (VmTrigger.PROVISION, (VmState.REQUESTED, VmState.UNCONFIRMED), VmState.PROVISIONING),
        (VmTrigger.BUSY, (*_MADE, VmState.IDLE, VmState.DRAINING, VmState.UNCONFIRMED), VmState.BUSY),
        (VmTrigger.IDLE, (*_MADE, VmState.BUSY, VmState.UNCONFIRMED), VmState.IDLE),
        (VmTrigger.DRAIN, (VmState.IDLE,), VmState.DRAINING),
        (VmTrigger.KEEP, (VmState.DRAINING,), VmState.IDLE),
        (VmTrigger.TERMINATE, (*_UP, VmState.UNCONFIRMED), VmState.TERMINATING),
        (VmTrigger.TERMINATED, (*_UP, VmState.TERMINATING, VmState.UNCONFIRMED), VmState.TERMINATED),
        (VmTrigger.DOUBT, (*_UP, VmState.TERMINATING), VmState.UNCONFIRMED),
        (VmTrigger.REAPPEAR, (VmState.TERMINATED,), VmState.UNCONFIRMED),
    ),
    ends=(VmState.TERMINATED,),
)
