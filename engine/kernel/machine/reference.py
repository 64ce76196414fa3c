"""The right answer, by the problem's own Python source in a process of its own: what it prints is nobody's frame."""

from __future__ import annotations

import json
import sys
from array import array
from pathlib import Path

from . import numbers


def main(folder: Path) -> None:
    """Read `reference.json` and the inputs of a case, write what each output should be as doubles."""
    asked = json.loads((folder / "reference.json").read_text("utf-8"))
    dtype = asked["dtype"]
    inputs = {name: list(numbers.unpacked((folder / f"{name}.in").read_bytes(), dtype)) for name in asked["inputs"]}
    space: dict[str, object] = {}
    exec(compile(asked["source"], "reference", "exec"), space)  # noqa: S102 - that is what it is for
    answer = space["reference"](inputs, asked["sizes"], asked["parameters"])  # type: ignore[operator]
    if not isinstance(answer, dict):
        answer = {next(iter(asked["outputs"])): answer}
    for name, count in asked["outputs"].items():
        values = array("d", [float(value) for value in answer[name]])
        if len(values) != count:
            raise ValueError(f"the reference gives {len(values)} entries of {name}, not {count}")
        (folder / f"{name}.expected").write_bytes(values.tobytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
