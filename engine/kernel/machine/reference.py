"""`python3 reference.py` in a folder with `asked.json` and `inputs`, the tensors of all its cases one after the other:
writes what each output of each case should be, as doubles.
"""

import json
from array import array
from pathlib import Path


def main() -> None:
    import tensors  # type: ignore[import-not-found] # it lies beside this file where it runs

    asked = json.loads(Path("asked.json").read_text("utf-8"))
    dtype = asked["dtype"]
    space: dict[str, object] = {}
    exec(compile(asked["source"], "reference", "exec"), space)  # noqa: S102 - that is its purpose
    with Path("inputs").open("rb") as given, Path("expected").open("wb") as file:
        for case in asked["cases"]:
            inputs = {
                one["name"]: list(tensors.unpacked(given.read(one["entries"] * tensors.SIZES[dtype]), dtype))
                for one in case["inputs"]
            }
            answer = space["reference"](inputs, case["sizes"], case["parameters"])  # type: ignore[operator]
            if not isinstance(answer, dict):
                answer = {next(iter(case["outputs"])): answer}
            for name, count in case["outputs"].items():
                values = array("d", [float(value) for value in answer[name]])
                if len(values) != count:
                    raise ValueError(f"the reference gives {len(values)} entries of {name}, not {count}")
                file.write(values.tobytes())


if __name__ == "__main__":
    main()
