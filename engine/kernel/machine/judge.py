"""A job from its files to its end: compile, run every test, time every benchmark, report every step.

The judge alone knows the inputs before a batch, the reference's answers, and the clock, which runs from before the
solution can see its inputs until after it can change its outputs no more. The compiler, the reference and the solution
each run in a cell of their own.
"""

from __future__ import annotations

import math
import time
from contextlib import ExitStack, closing

from . import build, measure
from .batches import BROKEN, RIGHT, WRONG, Json, Over, ReferenceCell, Solution
from .cells import Cells, how_ended
from .device import Device, DeviceSolution
from .framing import Teller, tail
from .layout import Layout
from .problem_checks import expect_no_null, tolerances

MOST_CALLS = 1024  # of a batch
_AIM = 1.2  # times `SHORTEST`, which a batch should last
_EMPTY = 3  # batches of a program that does nothing


class Judge:
    def __init__(self, job: Json, cells: Cells, teller: Teller) -> None:
        self._job, self._cells, self._teller = job, cells, teller
        self._dtype = job["dtype"]
        self._gpu = "CPU"
        self._device: Device | None = None

    def run(self) -> int:
        """The exit status of the job: `RIGHT`, `WRONG` or `BROKEN`."""
        with ExitStack() as stack:
            try:
                self._reference = ReferenceCell(self._cells, self._job)  # it starts while the solution is compiled
                stack.callback(self._reference.cell.end)
                self._compile(stack)
                self._check()
                if self._job["endpoint"] == "benchmark":
                    with self._cells.alone():
                        self._benchmark()
            except Over as over:
                self._cells.check()  # a killed program has not failed
                self._teller.say(over.status, **over.facts)
                return over.code
        return RIGHT

    def _compile(self, stack: ExitStack) -> None:
        job = self._job
        compiler = build.find_compiler(self._cells, job)
        if compiler is None:
            raise Over(BROKEN, "ERROR", message=f"there is no compiler here: {job['compiler']} for {job['language']}")
        self._compiler, self._gpu = compiler, "CPU" if compiler.stands_in else job["gpu"]
        self._teller.say("COMPILING", compiler=compiler.words, flags=" ".join(compiler.flags), dtype=self._dtype)
        ended, program = build.compiled(self._cells, compiler, job)
        self._teller.show(ended.output)
        if ended.code != 0 or program is None:
            message = tail(ended.output.strip())
            if ended.code is None or ended.code < 0 or ended.out_of_memory or not message:
                message = f"the compiler was ended: {how_ended(ended)}\n{message}".strip()
            raise Over(WRONG, "COMPILE_ERROR", message=message, seconds=round(ended.seconds, 3))
        self._program = program
        if not compiler.stands_in:
            ours = build.device_program(self._cells, compiler, job["limits"]["compile"])
            if ours is None:
                raise Over(BROKEN, "ERROR", message=f"the judge's own program does not compile with {compiler.words}")
            self._device = Device(self._cells, ours, self._gpu)
            stack.callback(self._device.end)

    def _opened(self, program: bytes) -> Solution:
        if self._device is not None:
            return DeviceSolution(self._cells, program, self._job, self._gpu, self._teller, self._device)
        return Solution(self._cells, program, self._job, self._gpu, self._teller)

    def _check(self) -> None:
        """Each test is one batch of two calls with the same inputs."""
        tests = self._job["tests"]
        self._teller.say("CHECKING", tests=len(tests))
        with closing(self._opened(self._program)) as solution:
            for number, case in enumerate(tests, 1):
                what = f"test {number}"
                case["tolerances"] = tolerances(case, self._reference)
                solution.configure(case, 2, what)
                solution.run(2, what, same=True)
                calls, digest = solution.compare(2, self._reference, what)
                result = next((call for call in calls if not call["passed"]), calls[0])
                facts = {"test": number, "tests": len(tests), "sizes": case["sizes"], "digest": digest}
                facts |= {"tolerances": case["tolerances"], **result}
                self._teller.say("TEST_RESULT", **facts)
                if calls[0]["passed"] != calls[1]["passed"]:
                    message = f"{what}: the same inputs gave a right and a wrong result. {_wrong(result)}"
                    raise Over(WRONG, "CHEATING_SUSPECTED", message=message, **facts)
                if not result["passed"]:
                    raise Over(WRONG, "WRONG_ANSWER", message=f"{what}: {_wrong(result)}", **facts)
        expect_no_null(tests, self._reference, "all its tests")
        self._teller.say("CHECKED", tests=len(tests), passed=len(tests))

    def _benchmark(self) -> None:
        cases = self._job["benchmarks"]
        self._teller.say("BENCHMARKING", benchmarks=len(cases))
        medians = []
        for number, case in enumerate(cases, 1):
            case["tolerances"] = tolerances(case, self._reference)
            expect_no_null([case], self._reference, f"its benchmark {number}")
            facts = self._measured(case, f"benchmark {number}")
            medians.append(facts["median_ms"])
            place = {"benchmark": number, "benchmarks": len(cases), "sizes": case["sizes"]}
            self._teller.say("BENCHMARK_RESULT", **place, **facts)
        self._teller.say("BENCHMARKED", benchmarks=len(cases), median_ms=medians)

    def _measured(self, case: Json, what: str) -> Json:
        """Every batch that counts has a process of its own: two runs differ in where their memory lies."""
        layout, room = Layout(case, self._dtype), int(self._job["limits"].get("batch", 1 << 30))
        most = max(1, min(MOST_CALLS, room // layout.bytes))  # a job is only sent if there is room for a call
        batches, began, calls = list[Json](), time.monotonic(), min(most, math.ceil(case["repeats"] / measure.FEWEST))
        counted = batches
        while len(counted) < measure.FEWEST or self._goes_on(counted, began):
            with closing(self._opened(self._program)) as solution:
                calls = self._measure_one(solution, case, calls, most, what, batches)
            counted = [batch for batch in batches if batch["counts"]]
            self._teller.show(f"{what}: batch {len(counted)}, {counted[-1]['ms'] / calls:.6g} ms a call")
        why = solution.coarse
        if not why and any(map(measure.is_late, counted)):
            why = "some batches ended late: the interval is wider by that"
        return {
            **measure.summary(batches),
            "tolerances": case["tolerances"],
            "warm_ups": case["warm_ups"],
            "repeats": calls * len(counted),
            "calls": calls,
            "called": solution.way,
            "cpus": self._cells.cpus,
            "coarse": why,
            "ranks": self._cells.ranks,
            "empty_ms": round(self._empty(case, calls), 6),
            "floor_ms": round(measure.floor_ms(self._gpu, self._dtype, layout.bytes, case["operations"]), 9),
            "batches": batches,
        }

    def _measure_one(
        self, solution: Solution, case: Json, calls: int, most: int, what: str, batches: list[Json]
    ) -> int:
        """Add a batch that counts to `batches`, after its warm-up and batches that last less than `SHORTEST` or were
        frozen late. Returns the number of calls that is enough.
        """
        tries, warms_up = 1, case["warm_ups"] > 0 and self._device is None
        while True:
            wanted = min(most, case["warm_ups"]) if warms_up else calls
            batch = self._batch(solution, case, wanted, f"{what}, batch {len(batches) + 1}")
            batches.append(batch)
            if warms_up:
                warms_up = batch["counts"] = False
            elif batch["ms"] < measure.SHORTEST and calls < most:
                for short in batches:
                    short["counts"] = False
                calls = min(most, max(2 * calls, math.ceil(_AIM * measure.SHORTEST / batch["ms"] * calls)))
            elif measure.is_late(batch) and tries < measure.TRIES:
                batch["counts"], tries = False, tries + 1
            else:
                return calls

    def _goes_on(self, counted: list[Json], began: float) -> bool:
        """True if more batches are worth their time: the interval is wide, and there is time."""
        if len(counted) >= measure.MOST or time.monotonic() - began > self._job["limits"]["measure"]:
            return False
        facts = measure.summary(counted)
        return bool(facts["high_ms"] - facts["low_ms"] > measure.STEADY * facts["median_ms"])

    def _batch(self, solution: Solution, case: Json, calls: int, where: str) -> Json:
        """The evidence of one batch. Raises `Over` if an answer is wrong."""
        solution.configure(case, calls, where)
        self._reference.cell.freeze()
        timed, seed = solution.run(calls, where)
        self._reference.cell.thaw()
        results, digest = solution.compare(calls, self._reference, where)
        for number, result in enumerate(results, 1):
            if not result["passed"]:
                message = f"{where}, call {number} of {calls}: {_wrong(result)}"
                raise Over(WRONG, "WRONG_ANSWER", message=message, **result)
        cpu = None if timed.cpu_ms is None else round(timed.cpu_ms, 6)
        times = {"ms": round(timed.ms, 6), "late_ms": round(timed.late_ms, 6), "cpu_ms": cpu}
        return {"calls": calls, **times, "counts": True, "seed": seed.hex(), "digest": digest}

    def _empty(self, case: Json, calls: int) -> float:
        """Milliseconds of a call of a solution that does nothing: the shortest time that can be measured."""
        what = "the measurement of a program that does nothing"
        program = build.empty_program(self._cells, self._compiler, self._job)
        if not program:
            raise Over(BROKEN, "ERROR", message=f"{what}: it does not compile")
        with closing(self._opened(program)) as empty:
            empty.configure(case, calls, what)
            return min(empty.run(calls, what)[0].ms for _ in range(_EMPTY)) / calls


def _wrong(result: Json) -> str:
    if result["untouched"]:
        return f"it left {result['output']} untouched"
    first = result["first"]
    return (
        f"{result['wrong']} of {result['entries']} entries of {result['output']} are wrong; "
        f"entry {first['index']} is {first['actual']}, not {first['expected']}"
    )
