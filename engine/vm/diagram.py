"""The VM machine as a picture, generated from its table."""

from typing import Literal

from engine.tables import diagram as picture
from engine.vm.states import VM_EDGES, VmState


def diagram(form: Literal["mermaid", "dot"] = "mermaid") -> str:
    """As `engine.tables.diagram`."""
    return picture.diagram(form, "vm", VmState, VM_EDGES, (VmState.TERMINATED,))
