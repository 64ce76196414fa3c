"""One job from its files to its end: compile, run every test, time every benchmark, report every step."""

from __future__ import annotations

import json
import os
import statistics
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from . import build, child, numbers
from .frames import Teller, tail

Json = dict[str, Any]

RIGHT, WRONG, BROKEN = 0, 1, 2  # exit statuses: success; the solution's fault; the problem's or machine's


class _Over(Exception):
    """The job has ended with this exit status, and reported it."""


class Judge:
    def __init__(self, job: Json, folder: Path, teller: Teller) -> None:
        self._job = job
        self._folder = folder
        self._teller = teller
        self._dtype = job["dtype"]

    def run(self) -> int:
        try:
            self._compile()
            self._check()
            if self._job["endpoint"] == "benchmark":
                self._benchmark()
        except _Over as over:
            status: int = over.args[0]
            return status
        return RIGHT

    def _compile(self) -> None:
        job = self._job
        compiler = build.find_compiler(job["compiler"])
        if compiler is None:
            self._broken(f"there is no compiler here: {job['compiler']}")
        self._teller.say("COMPILING", compiler=compiler.words, dtype=self._dtype)
        ended = build.compile_program(compiler, self._folder, job)
        self._teller.show(ended.output)
        if ended.code != 0:
            message = tail(ended.output.strip())
            if ended.code is None or ended.code < 0:
                message = f"the compiler was ended: {ended.why}\n{message}".strip()
            self._teller.say("COMPILE_ERROR", message=message, seconds=round(ended.seconds, 3))
            raise _Over(WRONG)

    def _check(self) -> None:
        tests = self._job["tests"]
        self._teller.say("CHECKING", tests=len(tests))
        for number, case in enumerate(tests, 1):
            folder = self._prepared(case)
            expected = self._expected(case, folder)
            self._run(case, folder, f"test {number}", warm_ups=0, repeats=0)
            found = self._compare(case, folder, expected)
            facts = {"test": number, "tests": len(tests), "sizes": case["sizes"], **found}
            self._teller.say("TEST_RESULT", **facts)
            if not found["passed"]:
                first = found["first"]
                message = (
                    f"test {number}: {found['wrong']} of {found['entries']} entries of {found['output']} are wrong; "
                    f"entry {first['index']} is {first['actual']}, not {first['expected']}"
                )
                self._teller.say("WRONG_ANSWER", message=message, **facts)
                raise _Over(WRONG)
            _empty(folder)
        self._teller.say("CHECKED", tests=len(tests), passed=len(tests))

    def _benchmark(self) -> None:
        cases = self._job["benchmarks"]
        self._teller.say("BENCHMARKING", benchmarks=len(cases))
        best = []
        for number, case in enumerate(cases, 1):
            folder = self._prepared(case)
            self._run(case, folder, f"benchmark {number}", warm_ups=case["warm_ups"], repeats=case["repeats"])
            try:
                times = [float(line) for line in (folder / "-times.out").read_text("ascii").split()]
            except (OSError, ValueError):
                times = []
            if len(times) != case["repeats"]:
                self._crashed(f"benchmark {number}: it ended without its times", "")
            facts = {"min_ms": min(times), "median_ms": round(statistics.median(times), 6), "max_ms": max(times)}
            best.append(facts["median_ms"])
            told = {name: case[name] for name in ("sizes", "warm_ups", "repeats")}
            self._teller.say("BENCHMARK_RESULT", benchmark=number, benchmarks=len(cases), **told, **facts)
            _empty(folder)
        self._teller.say("BENCHMARKED", benchmarks=len(cases), median_ms=best)

    # -- one case

    def _prepared(self, case: Json) -> Path:
        folder = self._folder / "case"
        folder.mkdir(exist_ok=True)
        for index, one in enumerate(case["inputs"]):
            data = numbers.made(one["entries"], self._dtype, f"{case['seed']}/{index}", one["low"], one["high"])
            (folder / f"{one['name']}.in").write_bytes(data)
        return folder

    def _expected(self, case: Json, folder: Path) -> dict[str, bytes]:
        """What each output should be, as doubles; leaves nothing of it where the solution could find it."""
        asked = {**case, "source": self._job["reference"], "dtype": self._dtype}
        (folder / "reference.json").write_text(json.dumps(asked), "utf-8")
        package = Path(__file__).parent
        argv = [sys.executable, "-m", package.name, "--reference", os.fspath(folder)]
        ended = child.run(argv, cwd=os.fspath(package.parent), limit=self._job["limits"]["reference"])
        if ended.code != 0:
            self._teller.show(ended.output)
            said = ended.output.strip().splitlines()
            self._broken(f"the reference of the problem failed: {said[-1] if said else ended.why}")
        (folder / "reference.json").unlink()
        expected = {name: (folder / f"{name}.expected").read_bytes() for name in case["outputs"]}
        for name in expected:
            (folder / f"{name}.expected").unlink()
        return expected

    def _run(self, case: Json, folder: Path, what: str, *, warm_ups: int, repeats: int) -> None:
        words = [str(value) for value in case["sizes"].values()] + [str(count) for count in case["outputs"].values()]
        words += [repr(value) for value in case["parameters"].values()]
        argv = [os.fspath(self._folder / "program"), os.fspath(folder), str(warm_ups), str(repeats), *words]
        ended = child.run(argv, cwd=os.fspath(folder), limit=self._job["limits"]["case"])
        self._teller.show(ended.output)
        if ended.code != 0:
            self._crashed(f"{what}: {ended.why}", ended.output)

    def _compare(self, case: Json, folder: Path, right: dict[str, bytes]) -> Json:
        tolerance, largest = self._job["tolerance"], 0.0
        for name, count in case["outputs"].items():
            try:
                data = (folder / f"{name}.out").read_bytes()
            except OSError:
                data = b""
            if len(data) != count * numbers.SIZES[self._dtype]:
                self._crashed(f"the program ended without writing {name}", "")
            got, expected = numbers.unpacked(data, self._dtype), numbers.unpacked(right[name], "float64")
            found = numbers.compared(got, expected, tolerance["absolute"], tolerance["relative"])
            largest = max(largest, found.largest)
            if found.wrong:
                return {
                    "passed": False,
                    "max_error": numbers.shown(found.largest),
                    "output": name,
                    "wrong": found.wrong,
                    "entries": count,
                    "first": found.first,
                }
        return {"passed": True, "max_error": largest}

    def _crashed(self, message: str, output: str) -> NoReturn:
        self._teller.say("RUNTIME_ERROR", message=message, output=tail(output.strip()))
        raise _Over(WRONG)

    def _broken(self, message: str) -> NoReturn:
        self._teller.say("ERROR", message=message)
        raise _Over(BROKEN)


def _empty(folder: Path) -> None:
    """Remove what the solution may have left: the next case must not find it."""
    for path in folder.iterdir():
        with suppress(OSError):
            path.unlink()
