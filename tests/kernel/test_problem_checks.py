"""A problem is checked by its reference: the tolerance follows from it, and a null solution is wrong in every dtype, or
the problem is refused. An honest solution is right.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stenotest.kernels import SHIPPED, submission

from steno.engine.kernel.definition import DTYPES
from steno.engine.kernel.executor import problem_job
from steno.engine.kernel.machine.batches import Over, ReferenceCell
from steno.engine.kernel.machine.layout import SIZES
from steno.engine.kernel.machine.local_cells import LocalCells
from steno.engine.kernel.machine.problem_checks import UNIT, check_here, drawn, expect_no_null, is_right, tolerances
from steno.engine.kernel.machine.tensors import widened
from steno.engine.kernel.submission import read_definition

if TYPE_CHECKING:
    from conftest import Judged

Values = dict[str, Any]


@contextmanager
def reference_of(job: dict[str, Any]) -> Iterator[ReferenceCell]:
    with tempfile.TemporaryDirectory() as folder:
        reference = ReferenceCell(LocalCells(Path(folder)), job)
        try:
            yield reference
        finally:
            reference.cell.end()


SOURCE = """
import numpy as np
def reference(inputs, sizes, parameters):
    a = inputs["A"].reshape(sizes["M"], sizes["N"]).astype(np.float64)
    scaled = parameters["scale"] * a
    return {"S": scaled.sum(axis=1), "E": np.where(a > 0, scaled, 0.01 * scaled)}
"""
PROBLEM = {
    "signature": {
        "inputs": [{"name": "A", "shape": ["M", "N"]}],
        "outputs": [{"name": "S", "shape": ["M"]}, {"name": "E", "shape": ["M", "N"]}],
        "sizes": ["M", "N"],
        "parameters": ["scale"],
    },
    "terms": ["N"],
    "reference": {"python": SOURCE},
    "tests": [{"sizes": {"M": 256, "N": 300}, "parameters": {"scale": 1.0}}],
}
"""Sums that cancel, and entries that do not."""
QUICK = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Opened:
    def __init__(self, reference: ReferenceCell, dtype: str) -> None:
        self.dtype, self.reference, self.job = dtype, reference, reference.job

    def tolerances(self, scale: float = 1.0, **changes: object) -> dict[str, list[float]]:
        case = self.job["tests"][0] | {"parameters": {"scale": scale}}
        self.reference.job = self.job | changes
        return tolerances(case, self.reference)

    def call(self) -> tuple[Any, dict[str, Any]]:
        """Inputs, as numbers, and what is right for them."""
        case = self.job["tests"][0]
        self.reference.expected(case, drawn(case, self.reference))
        data = self.reference.cell.exchange.read_input(0, 256 * 300 * SIZES[self.dtype])
        right = {name: self.reference.read(name, 0, count) for name, count in case["outputs"].items()}
        return widened(data, self.dtype).reshape(256, 300), right


@pytest.fixture(scope="module", params=sorted(UNIT))
def opened(request: pytest.FixtureRequest) -> Iterator[Opened]:
    with reference_of(problem_job(read_definition(json.dumps(PROBLEM), "p"), request.param)) as reference:
        yield Opened(reference, request.param)


@QUICK
@given(st.randoms(use_true_random=False))
def test_sums_in_any_order_are_right(opened: Opened, rolls: Any) -> None:
    """Term after term in float32, or float64 for that, rounded to the dtype once."""
    values, right = opened.call()
    order = rolls.sample(range(300), 300)
    arithmetic = np.float64 if opened.dtype == "float64" else np.float32
    sums = np.cumsum(values[:, order], axis=1, dtype=arithmetic)[:, -1]
    assert is_right(sums, right["S"], opened.dtype, *opened.tolerances()["S"])


@QUICK
@given(st.floats(2.0**-10, 1))
def test_sums_that_are_off_by_a_lower_precision_are_wrong(opened: Opened, share: float) -> None:
    """An error of the inputs of a thousandth or more; of float64 also of float32's roundoff."""
    values, right = opened.call()
    share *= 2.0**-14 if opened.dtype == "float64" else 2.0**6 if opened.dtype == "bfloat16" else 2.0**3
    sums = (values * (1 + share * np.sign(values))).sum(axis=1, dtype=np.float64)
    assert not is_right(sums, right["S"], opened.dtype, *opened.tolerances()["S"])


@QUICK
@given(st.sampled_from([2.0**-6, 0.5, 2.0, 2.0**9]))
def test_the_absolute_part_is_to_the_scale_of_what_cancels(opened: Opened, scale: float) -> None:
    """It is that of the sums. Entries that are a product have none: there a small error is as wrong as a large one."""
    once, scaled = opened.tolerances(), opened.tolerances(scale)
    assert 0.25 < scaled["S"][0] / once["S"][0] / scale < 4
    assert once["E"][0] == scaled["E"][0] < 1e-7
    assert once["S"][1] == scaled["S"][1]


def test_a_lower_precision_has_a_wider_tolerance(opened: Opened) -> None:
    """Rounding to the dtype is right, rounding to the next lower one is not: relative errors of 1 and 8 roundoffs."""
    _, relative = opened.tolerances()["E"]
    assert UNIT[opened.dtype] < relative < (2.0**-11 if opened.dtype.startswith("float32") else 8 * UNIT["bfloat16"])


def test_what_a_problem_gives_counts(opened: Opened) -> None:
    assert opened.tolerances(tolerance={"absolute": 0.5, "relative": 0.25}) == {"S": [0.5, 0.25], "E": [0.5, 0.25]}


def test_whole_numbers_are_exact() -> None:
    with reference_of(problem_job(read_definition(json.dumps(PROBLEM), "p"), "int32")) as reference:
        assert Opened(reference, "int32").tolerances() == {"S": [0.0, 0.0], "E": [0.0, 0.0]}


def serial(values: Any) -> Any:
    """Sums of rows, one term after the other from the last: no order has larger errors."""
    return np.cumsum(values[:, ::-1], axis=1, dtype=values.dtype)[:, -1:]


def matmul(a: Any, b: Any, size: Values) -> Any:
    a, b = a.reshape(size["M"], size["K"]), b.reshape(size["K"], size["N"])
    total = np.zeros((size["M"], size["N"]), a.dtype)
    for k in reversed(range(size["K"])):
        total += a[:, k : k + 1] * b[k]
    return total


def softmax(a: Any, size: Values) -> Any:
    powers = np.exp(a.reshape(size["M"], size["N"]))
    return powers * (1 / serial(powers))


def layer_norm(a: Any, g: Any, b: Any, size: Values) -> Any:
    """In one pass."""
    a, count = a.reshape(size["M"], size["N"]), a.dtype.type(size["N"])
    mean = serial(a) / count
    return (a - mean) / np.sqrt(serial(a * a) / count - mean * mean + a.dtype.type(1e-5)) * g + b


HONEST: dict[str, Callable[[Values, Values], Any]] = {
    "gather": lambda x, n: x["A"].reshape(-1, n["N"])[x["I"].astype(int)],
    "layer-norm": lambda x, n: layer_norm(x["A"], x["G"], x["B"], n),
    "leaky-relu": lambda x, n: np.maximum(x["A"], x["A"].dtype.type(n["alpha"]) * x["A"]),
    "matmul": lambda x, n: matmul(x["A"], x["B"], n),
    "reduction": lambda x, n: serial(x["A"].reshape(n["M"], n["N"])),
    "softmax": lambda x, n: softmax(x["A"], n),
    "transpose": lambda x, n: x["A"].reshape(n["M"], n["N"]).T,
    "vector-add": lambda x, n: x["A"] + x["B"],
}
ARITHMETIC = {"float64": np.float64, "int32": np.int64}  # of all others: float32


@pytest.mark.parametrize(
    ("problem", "dtype"),
    [
        pytest.param(name, dtype, marks=() if dtype == "float32" else pytest.mark.ci)
        for name, problem in SHIPPED.items()
        for dtype in problem.problem_def.dtypes or DTYPES
    ],
)
def test_a_shipped_problem_tells_honest_from_null_solutions(problem: str, dtype: str) -> None:
    """In every dtype that it admits, at the sizes of its tests, with the parameters of its benchmarks too. Honest
    solutions add up in the worst order, in float32 where the dtype is smaller.
    """
    job: dict[str, Any] = problem_job(SHIPPED[problem].problem_def, dtype)
    timed = [job["tests"][-1] | {"parameters": benchmark["parameters"]} for benchmark in job["benchmarks"]]
    with reference_of(job) as reference:
        for case in (*job["tests"], *timed):
            case["tolerances"] = tolerances(case, reference)
        for cases in (job["tests"], *([case] for case in timed)):
            expect_no_null(cases, reference, "its cases")
        for case in (*job["tests"], *timed):
            reference.expected(case, drawn(case, reference))
            given, at = {}, 0
            for tensor in case["inputs"]:
                data = reference.cell.exchange.read_input(at, tensor["entries"] * SIZES[tensor["dtype"]])
                given[tensor["name"]] = widened(data, tensor["dtype"]).astype(ARITHMETIC.get(dtype, np.float32))
                at += len(data)
            answer = np.asarray(HONEST[problem](given, case["sizes"] | case["parameters"])).reshape(-1)
            expected = reference.read("C", 0, len(answer))
            assert is_right(answer, expected, dtype, *case["tolerances"]["C"]), case["sizes"]


def one_input(gives: str, low: float = -1, tests: tuple[int, ...] = (1, 1000), **more: object) -> str:
    """A problem whose reference gives this, of the array `a`."""
    source = f"import numpy as np\ndef reference(inputs, sizes, parameters):\n    a = inputs['A']\n    return {gives}\n"
    signature = {
        "inputs": [{"name": "A", "shape": ["N"], "low": low}],
        "outputs": [{"name": "C", "shape": [1] if "keepdims" in gives else ["N"]}],
        "sizes": ["N"],
    }
    problem = {"signature": signature, "reference": {"python": source}, "tests": [{"sizes": {"N": n}} for n in tests]}
    return json.dumps(problem | more)


SOFTMAX = "np.exp(a) / np.exp(a).sum()"
LOOSE = {"tolerance": {"absolute": 1e-2, "relative": 1e-2}}


@pytest.mark.parametrize(
    ("problem", "dtype", "why"),
    [
        (one_input("a * 0"), "float32", "gives zeros passes all its tests in float32"),
        (one_input("a * 0 + 7"), "int32", "gives one constant passes"),
        (one_input("a.mean(keepdims=True)", low=0, tests=(1 << 17,), **LOOSE), "float16", "gives one constant passes"),
        (one_input("np.maximum(a, 0)", low=0), "float32", "gives a copy of A passes"),
        (
            one_input("np.where(a > 0, a, 0.004 * a)", **LOOSE),
            "bfloat16",
            "gives zeros in place of negative results passes",
        ),
        (one_input("a * (np.arange(len(a)) < len(a) // 16)", tests=(99, 1 << 18)), "float64", "only the first 1/16"),
        (
            one_input(SOFTMAX, tests=(1000,), tolerance={"absolute": 1e-4, "relative": 1e-4}),
            "float32",
            "gives results rounded to float16 passes",
        ),
        (one_input(SOFTMAX, tests=(1000,)), "float16", "a reference that computes in float64"),
        (one_input("a * np.nan"), "float32", "gives NaN passes"),
        (
            one_input("2 * a * (len(a) < 2000)", benchmarks=[{"sizes": {"N": 4096}}]),
            "float32",
            "gives zeros passes its benchmark 1",
        ),
        (one_input("a * 0.5", low=-9), "int32", "no solution can pass: C as int32 stores it is out of tolerance"),
    ],
    ids=[
        "zeros",
        "constant",
        "mean",
        "copy",
        "positive",
        "first",
        "lower",
        "its own error",
        "nan",
        "only the tests",
        "fractions",
    ],
)
def test_a_problem_that_a_null_solution_passes_is_refused(problem: str, dtype: str, why: str) -> None:
    """A line names the null solution, and what to do."""
    with pytest.raises(Over) as caught:
        check_here(problem_job(read_definition(problem, "p"), dtype))
    message = str(caught.value.facts["message"])
    assert message.startswith("the problem is refused: ")
    assert why in message
    assert (caught.value.status, "\n" in message) == ("ERROR", False)


@pytest.mark.parametrize(
    ("problem", "dtype"),
    [
        (one_input("np.maximum(a, 0)", tests=(1,)), "float32"),
        (one_input("a.sum(keepdims=True)", tests=(1, 3)), "float32"),
        (one_input("np.sign(a)", tests=(1000,)), "float32"),
        (one_input("a.argmax(keepdims=True)", tests=(1000,)), "int32"),
        (one_input(SOFTMAX, tests=(1000,)), "float32"),
        (one_input(SOFTMAX.replace("a)", "a * 1.0)"), tests=(1000,)), "bfloat16"),
        (one_input(SOFTMAX.replace("a)", "a.astype(float))"), tests=(1000,)), "float16"),
        (one_input("a * a", tests=(1000,), tolerance={"absolute": 1e-3, "relative": 1e-3}), "float32"),
        (one_input("np.where(np.arange(len(a)) % 2, a + a, np.nan)", tests=(1000,)), "float64"),
        (one_input("a.astype(np.float64).mean(keepdims=True)", tests=(1 << 16, 1 << 17)), "float16"),
        (one_input("np.where(a > 0, a, 0.01 * a)"), "bfloat16"),
    ],
    ids=["one entry", "one sum", "signs", "place", "small", "short", "half", "tolerant", "nan", "mean", "leak"],
)
def test_an_honest_problem_is_not_refused(problem: str, dtype: str) -> None:
    """A problem of one entry, of numbers that a lower precision has exactly, or whose author allows that precision."""
    check_here(problem_job(read_definition(problem, "p"), dtype))


CHEATS = {
    "a leak that is left out": (
        "bfloat16",
        one_input("np.where(a > 0, a, 0.01 * a)"),
        "for (size_t i = 0; i < N; ++i) C[i] = (float)A[i] > 0 ? A[i] : (__hip_bfloat16)0.0f;",
    ),
    "a constant for a mean": (
        "float16",
        one_input("a.astype(np.float64).mean(keepdims=True)", tests=(1 << 16,)),
        "C[0] = (__half)0.0f;",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "problem", "body"), CHEATS.values(), ids=list(CHEATS))
def test_what_was_right_by_tolerance_is_wrong(judged: Judged, dtype: str, problem: str, body: str) -> None:
    kind = {"float16": "__half", "bfloat16": "__hip_bfloat16"}[dtype]
    source = f'extern "C" void solution(const {kind}* A, {kind}* C, size_t N) {{ {body} }}'
    wanted = {"solution_code": source, "language": "cpp", "gpu_type": "CPU", "dtype": dtype, "endpoint": "checker"}
    judgement = judged(submission("none", problem_def=problem, **wanted))
    assert (judgement.code, judgement.last["status"]) == (1, "WRONG_ANSWER"), judgement.output


def test_a_solution_of_a_refused_problem_has_no_time(judged: Judged) -> None:
    """Though it is right: the run ends as with a broken reference."""
    source = 'extern "C" void solution(const float*, float* C, size_t N) { for (size_t i = 0; i < N; ++i) C[i] = 0; }'
    problem = one_input("a * 0", benchmarks=[{"sizes": {"N": 4096}}])
    judgement = judged(submission("none", solution_code=source, language="cpp", gpu_type="CPU", problem_def=problem))
    assert (judgement.code, judgement.statuses) == (2, ["COMPILING", "CHECKING", "TEST_RESULT", "TEST_RESULT", "ERROR"])
    assert "a solution that gives zeros passes all its tests" in judgement.last["message"]
