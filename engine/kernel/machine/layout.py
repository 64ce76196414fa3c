"""The sizes of numbers, and the places of a batch's tensors. Needs nothing but Python: the engine uses it too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPES = {"float32": "<f4", "float64": "<f8", "float16": "<f2", "bfloat16": "<u2", "int32": "<i4"}
"""As numpy stores each; bfloat16, which numpy does not have, as its bits."""
SIZES = {name: int(kind[-1]) for name, kind in TYPES.items()}  # bytes of one number
_ALIGNED = 256  # bytes; where a tensor begins


class Layout:
    """The places of the tensors of a case's calls in `in` and `out`."""

    def __init__(self, case: dict[str, Any], dtype: str) -> None:
        given = {tensor["name"]: tensor["entries"] * SIZES[tensor["dtype"]] for tensor in case["inputs"]}
        self.inputs, self.input_bytes = _placed(given)
        placed = _placed({name: count * SIZES[dtype] for name, count in case["outputs"].items()})
        self.outputs, self.output_bytes = placed

    @property
    def bytes(self) -> int:
        """The size of the tensors of one call."""
        return self.input_bytes + self.output_bytes


def _placed(sizes: Mapping[str, int]) -> tuple[dict[str, tuple[int, int]], int]:
    """The start and the length of each, and the length of all."""
    placed, at = {}, 0
    for name, size in sizes.items():
        placed[name] = (at, size)
        at += -(-size // _ALIGNED) * _ALIGNED
    return placed, at
