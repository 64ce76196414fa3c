"""The VM machine as a picture, generated from its table."""

from typing import Literal

from engine.fold import diagram as picture
from engine.fold.vm_states import VM_EDGES, VmState


def diagram(form: Literal["mermaid", "dot"] = "mermaid") -> str:
    """As `engine.fold.diagram`."""
    return picture.diagram(form, "vm", VmState, VM_EDGES, (VmState.TERMINATED,))
