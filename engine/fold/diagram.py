"""A table as a picture."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Literal

from engine.fold.edge import Edge, StateT


def diagram(
    form: Literal["mermaid", "dot"],
    name: str,
    states: type[StateT],
    edges: Sequence[Edge[StateT, StrEnum]],
    ends: Collection[StateT],
) -> str:
    """The state diagram as Mermaid (`stateDiagram-v2`) or Graphviz text, ending in a newline.

    Args:
        states: the first is where everything starts.
        ends: states that are drawn as an end.
    """
    moves = [
        (source.value, dest.value, ", ".join(triggers)) for (source, dest), triggers in _moves(states, edges).items()
    ]
    if form == "mermaid":
        lines = ["stateDiagram-v2", f"    [*] --> {next(iter(states)).value}"]
        lines += [f"    {source} --> {dest}: {triggers}" for source, dest, triggers in moves]
        lines += [f"    {state.value} --> [*]" for state in ends]
    else:
        lines = [f"digraph {name} {{", "    rankdir=LR;"]
        lines += [f"    {state.value} [shape=doublecircle];" for state in ends]
        lines += [f'    {source} -> {dest} [label="{triggers}"];' for source, dest, triggers in moves]
        lines.append("}")
    return "\n".join(lines) + "\n"


def _moves(states: type[StateT], edges: Sequence[Edge[StateT, StrEnum]]) -> dict[tuple[StateT, StateT], list[str]]:
    """The triggers of every move, in the order of the states."""
    moves: dict[tuple[StateT, StateT], list[str]] = {}
    for source in states:
        for edge in edges:
            if source in edge.sources:
                moves.setdefault((source, edge.dest), []).append(edge.trigger.value)
    return moves
