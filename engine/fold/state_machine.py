"""A state machine declared once, as a `transitions` Machine; replay's table and the diagrams are read out of it."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

StateT = TypeVar("StateT", bound=StrEnum)
TriggerT = TypeVar("TriggerT", bound=StrEnum)
TriggerT_contra = TypeVar("TriggerT_contra", bound=StrEnum, contravariant=True)


class Row(NamedTuple, Generic[StateT, TriggerT]):
    """By this trigger, from any of these states, to that state. A trigger has one row."""

    trigger: TriggerT
    sources: tuple[StateT, ...]
    dest: StateT


class Stepper(Protocol[StateT, TriggerT_contra]):
    """One step through a machine."""

    def step(self, state: StateT, trigger: TriggerT_contra, /) -> StateT | None:
        """The state the trigger leads to; the same state where it is already there; None where the move is illegal."""
        ...


class StateMachine(Generic[StateT, TriggerT]):
    """A declaration, and what is read out of it. The first state is where everything starts.

    `machine` imports `transitions` (30 ms), so it is built at first use.
    """

    def __init__(
        self,
        name: str,
        states: type[StateT],
        triggers: type[TriggerT],
        rows: Sequence[Row[StateT, TriggerT]],
        *,
        ends: Sequence[StateT],
    ) -> None:
        self.name = name
        self.states = states
        self.triggers = triggers
        self._rows = rows
        self._ends = ends

    @cached_property
    def machine(self) -> Any:
        """The `transitions` Machine."""
        from transitions import Machine

        return Machine(
            name=self.name,
            states=[{"name": state.value, "final": state in self._ends} for state in self.states],
            transitions=[
                {
                    "trigger": row.trigger.value,
                    "source": [source.value for source in row.sources],
                    "dest": row.dest.value,
                }
                for row in self._rows
            ],
            initial=next(iter(self.states)).value,
            auto_transitions=False,
        )

    def moves(self) -> Iterator[tuple[StateT, TriggerT, StateT]]:
        """Every legal (source, trigger, destination) of the machine, by trigger."""
        state = {one.value: one for one in self.states}
        for trigger in self.triggers:
            for source, (transition, *_) in self.machine.events[trigger].transitions.items():
                yield state[source], trigger, state[transition.dest]

    def table(self) -> Stepper[StateT, TriggerT]:
        """For replay: a dictionary, some 0.1 µs a step. It shows the machine as it is at the time of the call."""
        return _Table(self)

    def live(self) -> Stepper[StateT, TriggerT]:
        """For the live path: the machine itself, some 7 µs a step."""
        return _Live(self)

    def diagram(self, form: Literal["mermaid", "dot"] = "mermaid") -> str:
        """The state diagram as Mermaid (`stateDiagram-v2`) or Graphviz text, ending in a newline."""
        return self._mermaid() if form == "mermaid" else self._dot()

    def _mermaid(self) -> str:
        from transitions.extensions import HierarchicalGraphMachine  # the one whose diagram marks final states

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
        text: str = graph.source
        return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"

    def _dot(self) -> str:
        """By hand: `transitions` draws Graphviz only where a Graphviz library is installed."""
        labels: dict[tuple[StateT, StateT], list[str]] = {}
        for source, trigger, dest in self.moves():
            labels.setdefault((source, dest), []).append(trigger.value)
        lines = [f"digraph {self.name} {{", "    rankdir=LR;"]
        lines += [f"    {state.name} [shape=doublecircle];" for state in self.machine.states.values() if state.final]
        lines += [f'    {source} -> {dest} [label="{", ".join(names)}"];' for (source, dest), names in labels.items()]
        return "\n".join((*lines, "}")) + "\n"


class _Table(Generic[StateT, TriggerT]):
    __slots__ = ("_moves",)

    def __init__(self, declared: StateMachine[StateT, TriggerT]) -> None:
        moves = {(source, trigger): dest for source, trigger, dest in declared.moves()}
        self._moves = moves | {(dest, trigger): dest for (_, trigger), dest in moves.items()}

    def step(self, state: StateT, trigger: TriggerT, /) -> StateT | None:
        return self._moves.get((state, trigger))


class _Live(Generic[StateT, TriggerT]):
    def __init__(self, declared: StateMachine[StateT, TriggerT]) -> None:
        self._machine = declared.machine
        self._states = declared.states

    def step(self, state: StateT, trigger: TriggerT, /) -> StateT | None:
        machine = self._machine
        transitions = machine.events[trigger].transitions
        if state not in transitions:
            there = any(one.dest == state for several in transitions.values() for one in several)
            return state if there else None
        machine.set_state(state.value)
        machine.trigger(trigger.value)
        return self._states(machine.state)
