"""The Run machine as a picture, generated from its table."""

from typing import Literal

from engine.fold import diagram as picture
from engine.fold.run_states import EDGES, TERMINAL, State


def diagram(form: Literal["mermaid", "dot"] = "mermaid") -> str:
    """As `engine.fold.diagram`."""
    return picture.diagram(form, "run", State, EDGES, TERMINAL)
