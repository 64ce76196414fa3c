"""`python3 -m <this package> FOLDER`: judge the job in `FOLDER/job.json`; the folder is removed.

`python3 -m <this package> --reference FOLDER`: the right answer of a case, by the problem's own Python source. It runs
in a process of its own, so that nothing it prints is read as a frame.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from array import array
from pathlib import Path

from . import numbers
from .frames import Teller
from .judge import Judge


def main(folder: Path) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # told to stop: clean up first
    path = folder / "job.json"
    job = json.loads(path.read_text("utf-8"))
    path.unlink()
    try:
        with tempfile.TemporaryDirectory(prefix="steno-kernel-") as work:
            return Judge(job, Path(work), Teller(job["key"])).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def expect(folder: Path) -> int:
    """Read `reference.json` and the inputs of a case, write what each output should be, as doubles."""
    asked = json.loads((folder / "reference.json").read_text("utf-8"))
    names = [one["name"] for one in asked["inputs"]]
    inputs = {name: list(numbers.unpacked((folder / f"{name}.in").read_bytes(), asked["dtype"])) for name in names}
    space: dict[str, object] = {}
    exec(compile(asked["source"], "reference", "exec"), space)  # noqa: S102 - that is its purpose
    answer = space["reference"](inputs, asked["sizes"], asked["parameters"])  # type: ignore[operator]
    if not isinstance(answer, dict):
        answer = {next(iter(asked["outputs"])): answer}
    for name, count in asked["outputs"].items():
        values = array("d", [float(value) for value in answer[name]])
        if len(values) != count:
            raise ValueError(f"the reference gives {len(values)} entries of {name}, not {count}")
        (folder / f"{name}.expected").write_bytes(values.tobytes())
    return 0


if __name__ == "__main__":
    sys.exit(expect(Path(sys.argv[2])) if sys.argv[1] == "--reference" else main(Path(sys.argv[1])))
