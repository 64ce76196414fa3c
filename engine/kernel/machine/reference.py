"""The program that computes what is right: an archive of this file, `tensors.py` and `layout.py`, run with the folder
of its exchange and a folder that has numpy, for a Python without one. The channel's first line has the reference's
source and the dtype; each further line a case: its inputs lie in `in`, one after the other, its expected outputs go to
`out`. A byte answers. `changed_by` of a case: its inputs as float64, each larger or smaller by this share.
"""

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    folder = Path(sys.argv[1])
    sys.path.append(sys.argv[2])
    import numpy as np
    import tensors  # type: ignore[import-not-found] # it lies beside this file where it runs

    with open(3, "rb") as channel, open(4, "wb", buffering=0) as answers:
        job, rolls = json.loads(channel.readline()), np.random.default_rng()
        space: dict[str, Any] = {}
        exec(compile(job["source"], "reference", "exec"), space)  # noqa: S102 - that is its purpose
        for line in channel:
            case, at = json.loads(line), 0
            inputs = {}
            with (folder / "in").open("rb") as given:
                for tensor in case["inputs"]:
                    data = given.read(tensor["entries"] * tensors.SIZES[tensor["dtype"]])
                    values = tensors.widened(data, tensor["dtype"])
                    if case["changed_by"] and tensor["dtype"] != "int32":
                        signs = 2.0 * rolls.integers(0, 2, len(values), np.int8) - 1
                        values = values * (1 + case["changed_by"] * signs)
                    inputs[tensor["name"]] = values if "numpy" in job["source"] else values.tolist()
            answer = space["reference"](inputs, case["sizes"], case["parameters"])
            if not isinstance(answer, dict):
                answer = {next(iter(case["outputs"])): answer}
            with (folder / "out").open("r+b") as file:
                for name, count in case["outputs"].items():
                    values = np.asarray(answer[name]).reshape(-1)
                    if len(values) != count:
                        raise ValueError(f"the reference gives {len(values)} entries of {name}, not {count}")
                    file.seek(at)
                    at += file.write(values.astype(tensors.EXPECTED[job["dtype"]]).data)
            answers.write(b".")


if __name__ == "__main__":
    main()
