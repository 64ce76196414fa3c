"""`python3 reference.py` in a folder with `case.json` and the inputs: writes what each output should be, as doubles."""

import json
from array import array
from pathlib import Path


def main() -> None:
    import tensors  # type: ignore[import-not-found] # it lies beside this file where it runs

    case = json.loads(Path("case.json").read_text("utf-8"))
    names = [one["name"] for one in case["inputs"]]
    inputs = {name: list(tensors.unpacked(Path(f"{name}.in").read_bytes(), case["dtype"])) for name in names}
    space: dict[str, object] = {}
    exec(compile(case["source"], "reference", "exec"), space)  # noqa: S102 - that is its purpose
    answer = space["reference"](inputs, case["sizes"], case["parameters"])  # type: ignore[operator]
    if not isinstance(answer, dict):
        answer = {next(iter(case["outputs"])): answer}
    with Path("expected").open("wb") as file:
        for name, count in case["outputs"].items():
            values = array("d", [float(value) for value in answer[name]])
            if len(values) != count:
                raise ValueError(f"the reference gives {len(values)} entries of {name}, not {count}")
            file.write(values.tobytes())


if __name__ == "__main__":
    main()
