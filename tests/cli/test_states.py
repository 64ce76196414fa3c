"""The state machines, drawn."""

import json
from pathlib import Path

import pytest
from stenotest.command_line import Steno

DOCS = Path(__file__).parents[2] / "docs" / "machines"


@pytest.mark.parametrize("machine", ["run", "vm"])
def test_a_machine_is_drawn_as_in_the_docs(steno: Steno, machine: str) -> None:
    """Mermaid by default; Graphviz on demand; with --json the same text."""
    drawn = steno("states", machine)
    assert (drawn.returncode, drawn.stdout) == (0, (DOCS / f"{machine}.mmd").read_text(encoding="utf-8"))
    assert steno("states", machine, "--format", "dot").stdout.startswith(f"digraph {machine} {{")
    told = json.loads(steno("states", machine, "--json").stdout)
    assert (told["machine"], told["format"], told["diagram"]) == (machine, "mermaid", drawn.stdout)
