"""The Run machine as a picture, generated from its table."""

from typing import Literal

from engine.run.states import EDGES, TERMINAL, State
from engine.tables import diagram as picture


def diagram(form: Literal["mermaid", "dot"] = "mermaid") -> str:
    """As `engine.tables.diagram`."""
    return picture.diagram(form, "run", State, EDGES, TERMINAL)
