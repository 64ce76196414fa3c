"""One job from its files to its end: compile, run every test, time every benchmark, report every step.

The judge is the only one who knows the key, the seed, the reference and the clock. The compiler, the reference and the
solution each run in a cell of their own; the solution gets inputs and gives outputs, and nothing else it says counts.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from . import build, measure, tensors
from .calls import POISON, RIGHT, WRONG, Called, Calls, Json, Over, Suspected
from .cells import how_ended
from .frames import tail

_PINGS = 15
_IDLE = 11  # calls of a program that does nothing; with the first two its memory is new
_LEAST = 5  # timed calls: fewer say nothing where others use the machine
_MOST = 3  # times as many calls as asked for, where their times differ
_KEPT = 64 << 20  # bytes of tests' calls until their reference is computed; a larger test has a cell of its own
_ATTEMPTS = 3  # measurements that must all be suspicious: a busy machine disturbs one


class Judge(Calls):
    def run(self) -> int:
        try:
            self._compile()
            self._check()
            if self._job["endpoint"] == "benchmark":
                self._benchmark()
        except Over as over:
            self._teller.say(over.status, **over.facts)
            return over.code
        except Suspected as seen:
            self._teller.say("CHEATING_SUSPECTED", message=str(seen), **self._evidence, seed=self._job["seed"])
            return WRONG
        return RIGHT

    def _compile(self) -> None:
        job = self._job
        if self._is_command:
            self._gpu = job["gpu"]
            self._program = build.command_program(job)
            self._teller.say("COMPILING", compiler="none: a command runs as it is", flags="", dtype=self._dtype)
            return
        compiler = build.find_compiler(self._cells, job)
        if compiler is None:
            self._broken(f"there is no compiler here: {job['compiler']} for {job['language']}")
        self._compiler = compiler
        self._gpu = "CPU" if compiler.stands_in else job["gpu"]
        self._teller.say("COMPILING", compiler=compiler.words, flags=" ".join(compiler.flags), dtype=self._dtype)
        ended, program = build.compiled(self._cells, compiler, job)
        self._teller.show(ended.output)
        if ended.code != 0 or program is None:
            message = tail(ended.output.strip())
            if ended.code is None or ended.code < 0 or ended.out_of_memory or not message:
                message = f"the compiler was ended: {how_ended(ended)}\n{message}".strip()
            raise Over(WRONG, "COMPILE_ERROR", message=message, seconds=round(ended.seconds, 3))
        self._program = program

    def _check(self) -> None:
        tests = self._job["tests"]
        self._teller.say("CHECKING", tests=len(tests))
        for batch in self._batches(list(enumerate(tests, 1))):
            calls, stopped = self._tried(batch)
            told = [(case, first.inputs) for (_, case), (first, _) in zip(batch, calls)]  # noqa: B905
            for (number, case), pair, right in zip(batch, calls, self._expected(told)):  # noqa: B905
                self._compare(number, case, pair, right)
            if stopped is not None:
                raise stopped
        self._teller.say("CHECKED", tests=len(tests), passed=len(tests), seed=self._job["seed"])

    def _batches(self, tests: list[tuple[int, Json]]) -> Iterator[list[tuple[int, Json]]]:
        """Tests that share a cell, and a run of the reference after it: as many as `_KEPT` has room for."""
        batch: list[tuple[int, Json]] = []
        kept = 0
        for number, case in tests:
            size = 2 * self._bytes(case)  # of two calls
            if batch and kept + size > _KEPT:
                yield batch
                batch, kept = [], 0
            batch.append((number, case))
            kept += size
        yield batch

    def _tried(self, batch: list[tuple[int, Json]]) -> tuple[list[tuple[Called, Called]], Exception | None]:
        """Two calls of each test on the same inputs, all in one cell; and what stopped them, if anything did."""
        calls = list[tuple[Called, Called]]()
        cell = self._opened()
        try:
            for number, case in batch:
                what = f"test {number}"
                self._configure(cell, case, what)
                inputs = self._inputs(case, f"{what}/0")
                first = self._call(cell, case, what, inputs)
                calls.append((first, self._call(cell, case, what, inputs)))
        except (Over, Suspected) as stopped:
            return calls, stopped
        finally:
            self._teller.show(cell.end().output)
        return calls, None

    def _compare(self, number: int, case: Json, calls: tuple[Called, Called], right: dict[str, bytes]) -> None:
        """Report one test. Raises `Over` if an answer is wrong."""
        what, tests = f"test {number}", len(self._job["tests"])
        found = self._compared(case, calls[0].outputs, right)
        if found["passed"]:
            found = self._compared(case, calls[1].outputs, right)
            what += "" if found["passed"] else ", the same inputs once more"
        facts = {"test": number, "tests": tests, "sizes": case["sizes"], "digest": _digest(calls[0].outputs), **found}
        self._teller.say("TEST_RESULT", **facts)
        if not found["passed"]:
            raise Over(WRONG, "WRONG_ANSWER", message=_wrong(what, found), **facts, seed=self._job["seed"])

    def _benchmark(self) -> None:
        cases = self._job["benchmarks"]
        self._teller.say("BENCHMARKING", benchmarks=len(cases))
        best = []
        for number, case in enumerate(cases, 1):
            told = {"benchmark": number, "benchmarks": len(cases), "sizes": case["sizes"]}
            self._evidence = told
            facts, seen = self._believable(case, f"benchmark {number}")
            self._evidence = {**told, **facts}
            if seen is not None:
                raise Suspected(f"benchmark {number}: {seen}")
            best.append(facts["median_ms"])
            self._teller.say("BENCHMARK_RESULT", **self._evidence)
        self._teller.say("BENCHMARKED", benchmarks=len(cases), median_ms=best, seed=self._job["seed"])

    def _believable(self, case: Json, what: str) -> tuple[Json, str | None]:
        """A measurement, and what is suspicious about it. The machine may have other work, or get some meanwhile. So a
        program that does nothing is measured before and after, and what is seen must be seen in each of `_ATTEMPTS`.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            before = self._idle(case)
            facts = self._measured(case, what, what if attempt == 1 else f"{what}/{attempt}") | before
            seen = measure.suspicion(facts)
            if seen is not None:
                after = self._idle(case)
                facts |= {name: max(before[name], after[name]) for name in before}
                seen = measure.suspicion(facts)
            if seen is None:
                break
        return facts, seen

    def _measured(self, case: Json, what: str, seed: str) -> Json:
        """Every call has inputs of its own, by the `seed`, and is checked; which of them count is not to be told by the
        solution.
        """
        began, calls, before = time.monotonic(), list[Called](), None
        warm_ups, repeats = case["warm_ups"], max(case["repeats"], _LEAST)
        digests: list[str] = []
        cell = self._opened()
        try:
            self._configure(cell, case, what)
            while len(calls) < warm_ups + repeats or self._goes_on(calls[warm_ups:], repeats, began):
                where = f"{what}, call {len(calls) + 1}"
                call = self._call(cell, case, where, self._inputs(case, f"{seed}/{len(calls)}"))
                (expected,) = self._expected([(case, call.inputs)])
                found = self._compared(case, call.outputs, expected)
                if not found["passed"]:
                    self._explain(case, call, before, where)
                    raise Over(WRONG, "WRONG_ANSWER", message=_wrong(where, found), **found, seed=self._job["seed"])
                calls.append(call._replace(inputs=(), outputs=b""))
                digests.append(_digest(call.outputs))
                before = expected
        finally:
            self._teller.show(cell.end().output)
        timed = calls[warm_ups:]
        times = [round(one.own_ms, 6) for one in timed]
        return {
            "warm_ups": warm_ups,
            "repeats": len(times),
            "min_ms": min(times),
            "median_ms": round(statistics.median(times), 6),
            "max_ms": max(times),
            "spread": round(measure.spread(times), 4),
            "floor_ms": round(measure.floor_ms(self._gpu, self._dtype, self._bytes(case), case["operations"]), 9),
            "times_ms": times,
            "walls_ms": [round(one.wall_ms, 6) for one in timed],
            "works_ms": [round(one.work_ms, 6) for one in timed if one.work_ms is not None],
            "around_ms": [round(one.around_ms, 6) for one in timed],
            "digests": digests,
        }

    def _idle(self, case: Json) -> Json:
        """What a program of ours that does nothing takes for a question and its answer, and around a call. What a
        solution says of itself proves nothing: it may answer questions slowly, and work before it is told to go.
        """
        what, program = "the measurement of a program that does nothing", self._program  # of a command, which it starts
        if self._compiler is not None:
            program = build.idle_program(self._cells, self._compiler, self._job) or b""
            if not program:
                self._broken(f"{what}: it does not compile")
        cell = self._opened(program)
        try:
            self._configure(cell, case, what)
            pings = [self._ping(cell, what) for _ in range(_PINGS)]
            inputs = self._inputs(case, "idle")
            calls = [] if self._is_command else [self._call(cell, case, what, inputs) for _ in range(_IDLE)][2:]
        finally:
            cell.end()
        beside = [(one.wall_ms - one.own_ms, (one.work_ms or 0.0) - one.own_ms) for one in calls] or [(0.0, 0.0)]
        return {
            "overhead_ms": round(max(statistics.median(wall for wall, _ in seen) for seen in (pings, beside)), 6),
            "overhead_work_ms": round(max(statistics.median(work for _, work in seen) for seen in (pings, beside)), 6),
            "idle_ms": round(max((one.around_ms for one in calls), default=0.0), 6),
        }

    def _goes_on(self, timed: list[Called], repeats: int, began: float) -> bool:
        """Whether more calls are worth while: the times differ, and there is time."""
        if len(timed) >= _MOST * repeats or time.monotonic() - began > self._job["limits"]["measure"]:
            return False
        return measure.spread([one.own_ms for one in timed]) >= measure.STEADY

    def _explain(self, case: Json, call: Called, before: dict[str, bytes] | None, where: str) -> None:
        """A wrong answer to a problem whose tests it passed: raises `Suspected` where it did no work."""
        for name, data in self._split(case, call.outputs).items():
            if data and not data.strip(bytes([POISON])):
                raise Suspected(f"{where}: it left {name} untouched, though it passed the tests")
        if before is not None and self._compared(case, call.outputs, before)["passed"]:
            raise Suspected(f"{where}: it gave the result of the call before, whose inputs were others")

    def _expected(self, calls: Sequence[tuple[Json, tuple[bytes, ...]]]) -> list[dict[str, bytes]]:
        """What each output of these calls (case, inputs) should be, as doubles; computed after the calls, by the
        problem's own Python.
        """
        if not calls:
            return []
        here = Path(__file__).parent
        cases = [case for case, _ in calls]
        asked = {"source": self._job["reference"], "dtype": self._dtype, "cases": cases}
        files = {name: (here / name).read_bytes() for name in ("reference.py", "tensors.py")}
        files["asked.json"] = json.dumps(asked).encode()
        files["inputs"] = b"".join(data for _, inputs in calls for data in inputs)
        sizes = [8 * sum(case["outputs"].values()) for case in cases]
        limit = self._job["limits"]["reference"] * len(calls)
        argv = ["python3", "reference.py"]
        ended, data = self._cells.run(argv, files, limit=limit, takes="expected", cap=sum(sizes))
        if ended.code != 0 or data is None or len(data) != sum(sizes):
            self._teller.show(ended.output)
            said = ended.output.strip().splitlines()
            self._broken(f"the reference of the problem failed: {said[-1] if said else how_ended(ended)}")
        ends = accumulate(sizes)
        return [self._split(case, data[end - size : end], 8) for case, size, end in zip(cases, sizes, ends)]  # noqa: B905

    def _split(self, case: Json, data: bytes, size: int = 0) -> dict[str, bytes]:
        found, start = {}, 0
        for name, count in case["outputs"].items():
            end = start + count * (size or tensors.SIZES[self._dtype])
            found[name], start = data[start:end], end
        return found

    def _compared(self, case: Json, outputs: bytes, right: dict[str, bytes]) -> Json:
        tolerance, largest = self._job["tolerance"], 0.0
        for name, data in self._split(case, outputs).items():
            got, expected = tensors.unpacked(data, self._dtype), tensors.unpacked(right[name], "float64")
            found = tensors.compared(got, expected, tolerance["absolute"], tolerance["relative"])
            largest = max(largest, found.largest)
            if found.wrong:
                return {
                    "passed": False,
                    "max_error": tensors.shown(found.largest),
                    "output": name,
                    "wrong": found.wrong,
                    "entries": len(got),
                    "first": found.first,
                }
        return {"passed": True, "max_error": largest}


def _wrong(what: str, found: Json) -> str:
    first = found["first"]
    return (
        f"{what}: {found['wrong']} of {found['entries']} entries of {found['output']} are wrong; "
        f"entry {first['index']} is {first['actual']}, not {first['expected']}"
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
