"""A problem: the signature of a solution, the reference, and the cases to test and time. The shipped problems."""

import ast
import keyword
import math
import threading
import warnings
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import msgspec

from steno.engine.kernel.machine.layout import SIZES
from steno.engine.state.kernel_mark import hashed

Dtype = Literal["float32", "float64", "float16", "bfloat16", "int32"]
DTYPES: Final[tuple[str, ...]] = get_args(Dtype)
LARGEST: Final = 1 << 30  # bytes of the tensors of one call

Name = Annotated[str, msgspec.Meta(pattern="^[A-Za-z][A-Za-z0-9_]{0,31}$", description="a name C and Python can have")]
Length = Annotated[int, msgspec.Meta(ge=1, le=1 << 30)]
Dimension = Name | Length
_WORDS: Final = """
    alignas alignof and asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
    concept const consteval constexpr constinit const_cast continue decltype default delete do double dynamic_cast
    else enum explicit export extern false float for friend goto half if inline int long main mutable namespace new
    noexcept not nullptr operator or private protected public register reinterpret_cast requires return short signed
    size_t sizeof static static_assert static_cast steno struct switch template this thread_local throw true try
    typedef typeid typename union unsigned using virtual void volatile wchar_t while xor reference
"""
_RESERVED: Final = frozenset(_WORDS.split())
_PARSING: Final = threading.Lock()  # Python's warnings are global to the process


class Wrong(Exception):
    """A part of a request is not as it must be.

    Args:
        field: the part, as its sender wrote it: `problem_def.tests[0].sizes`.
    """

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(detail)
        self.field = field
        self.detail = detail


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An unknown key is an error: a misspelt key would change the right answer."""


class Tensor(_Strict, frozen=True, kw_only=True):
    """A tensor, row by row. `shape`: each a name of `sizes`, or a number."""

    name: Name
    shape: Annotated[tuple[Dimension, ...], msgspec.Meta(min_length=1, max_length=6)]


class Input(Tensor, frozen=True, kw_only=True):
    """A tensor of random numbers, drawn for every call."""

    low: float = -1.0
    high: float = 1.0
    dtype: Literal["int32"] | None = None  # None: that of the kernel


class Signature(_Strict, frozen=True, kw_only=True):
    """The function of a solution: `extern "C" void solution(inputs…, outputs…, parameters…, sizes…)`, tensors as
    pointers into the device's memory, parameters as numbers, sizes as `size_t`.
    """

    inputs: Annotated[tuple[Input, ...], msgspec.Meta(min_length=1, max_length=8)]
    outputs: Annotated[tuple[Tensor, ...], msgspec.Meta(min_length=1, max_length=4)]
    sizes: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=8)]
    parameters: Annotated[tuple[Name, ...], msgspec.Meta(max_length=8)] = ()
    function: Name = "solution"


class Test(_Strict, frozen=True, kw_only=True):
    """A case that is compared with the reference."""

    sizes: dict[Name, Length]
    seed: Annotated[int, msgspec.Meta(gt=-(2**63), le=2**63 - 1)] = 0
    """A key of earlier versions; inputs follow from the system's random source alone."""
    parameters: dict[Name, float] = {}


class Benchmark(Test, frozen=True, kw_only=True):
    """A case that is timed in batches of calls, each call on inputs of its own, and compared."""

    warm_ups: Annotated[int, msgspec.Meta(ge=0, le=100)] = 2
    """Calls of a first batch that does not count; 0: there is none."""
    repeats: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    """Calls that are timed at least; there are more if a batch would be short."""


class Reference(_Strict, frozen=True, kw_only=True):
    """The right answer: Python that defines `reference(inputs, sizes, parameters)`, or that of a shipped problem.

    `inputs` maps names to flat lists of numbers, or to flat arrays of the dtype if the source uses numpy; it answers a
    list or an array, or a mapping of the outputs' names to such. Exactly one of the two is given.
    """

    python: Annotated[str, msgspec.Meta(min_length=1, max_length=16_384)] | None = None
    problem: str | None = None


class Tolerance(_Strict, frozen=True, kw_only=True):
    """|actual - expected| ≤ absolute + relative × |expected|."""

    absolute: Annotated[float, msgspec.Meta(ge=0)]
    relative: Annotated[float, msgspec.Meta(ge=0)]


class Definition(_Strict, frozen=True, kw_only=True):
    signature: Signature
    reference: Reference
    tests: Annotated[tuple[Test, ...], msgspec.Meta(min_length=1, max_length=32)]
    benchmarks: Annotated[tuple[Benchmark, ...], msgspec.Meta(max_length=16)] = ()
    operations: Annotated[tuple[Dimension, ...], msgspec.Meta(max_length=8)] = ()
    """Factors of the number of operations of a case; none: only its bytes bound its time."""
    terms: Annotated[tuple[Dimension, ...], msgspec.Meta(max_length=8)] = ()
    """Factors of the number of terms of an entry's sum, for the tolerance; none: the sizes that only inputs have."""
    tolerance: Tolerance | None = None  # None: it follows from the reference (see `machine.problem_checks`)
    dtypes: tuple[Dtype, ...] = ()  # of its solutions; none: all
    title: Annotated[str, msgspec.Meta(max_length=200)] = ""
    description: Annotated[str, msgspec.Meta(max_length=16_384)] = ""

    def cases(self, where: str) -> Iterator[tuple[str, Test]]:
        """Every test and benchmark, with its place."""
        yield from ((f"{where}.tests[{at}]", case) for at, case in enumerate(self.tests))
        yield from ((f"{where}.benchmarks[{at}]", case) for at, case in enumerate(self.benchmarks))


def check(definition: Definition, *, dtype: str, benchmark: bool, where: str = "problem_def") -> None:
    """Check the rules that the schema cannot state.

    Raises:
        Wrong: names that clash or mean nothing, sizes that are missing or too large, invalid Python source.
    """
    signature = definition.signature
    if dtype not in (definition.dtypes or DTYPES):
        raise Wrong("dtype", f"{dtype!r} is not one of those of the problem: {', '.join(definition.dtypes)}")
    _check_names(signature, f"{where}.signature")
    for index, given in enumerate(signature.inputs):
        if not -1e30 <= given.low <= given.high <= 1e30:
            raise Wrong(f"{where}.signature.inputs[{index}].low", "low must be at most high, both within ±1e30")
        whole = given.low >= -(2**31) and given.high < 2**31 and math.ceil(given.low) <= math.floor(given.high)
        if (given.dtype or dtype) == "int32" and not whole:
            raise Wrong(f"{where}.signature.inputs[{index}].low", "there is no 32-bit whole number from low to high")
    _check_sizes(definition.operations, signature, f"{where}.operations")
    _check_sizes(definition.terms, signature, f"{where}.terms")
    _check_reference(definition.reference, f"{where}.reference")
    for field, case in definition.cases(where):
        _check_words(case.sizes, signature.sizes, f"{field}.sizes")
        _check_words(case.parameters, signature.parameters, f"{field}.parameters")
    expect_room(definition, dtype, LARGEST, where)
    if benchmark and not definition.benchmarks:
        raise Wrong(f"{where}.benchmarks", "the endpoint `benchmark` needs at least one; `checker` needs none")


def expect_room(definition: Definition, dtype: str, room: int, where: str = "problem_def") -> None:
    """Raises `Wrong` if the tensors of one call take more than so many bytes."""
    for field, case in definition.cases(where):
        signature = definition.signature
        parts = {given.name: entries(given, case.sizes) * SIZES[given.dtype or dtype] for given in signature.inputs}
        parts |= {output.name: entries(output, case.sizes) * SIZES[dtype] for output in signature.outputs}
        if sum(parts.values()) > room:
            added = " + ".join(f"{name} {size}" for name, size in parts.items())
            detail = f"the tensors of one call take {sum(parts.values())} bytes ({added}); a batch has room for {room}"
            raise Wrong(f"{field}.sizes", detail)


def entries(tensor: Tensor, sizes: dict[str, int]) -> int:
    return product(tensor.shape, sizes)


def product(factors: tuple[Dimension, ...], sizes: dict[str, int]) -> int:
    return math.prod(sizes[factor] if isinstance(factor, str) else factor for factor in factors)


def _check_names(signature: Signature, where: str) -> None:
    tensors: list[tuple[str, Tensor]] = [(f"inputs[{at}]", tensor) for at, tensor in enumerate(signature.inputs)]
    tensors += [(f"outputs[{at}]", tensor) for at, tensor in enumerate(signature.outputs)]
    named = [(f"{place}.name", tensor.name) for place, tensor in tensors]
    named += [(f"parameters[{at}]", name) for at, name in enumerate(signature.parameters)]
    named += [(f"sizes[{at}]", name) for at, name in enumerate(signature.sizes)]
    seen: set[str] = set()
    for field, name in (*named, ("function", signature.function)):
        if name in _RESERVED or keyword.iskeyword(name) or name.startswith("steno_"):
            raise Wrong(f"{where}.{field}", f"{name!r} is a word of the language and cannot be a name")
        if name in seen:
            raise Wrong(f"{where}.{field}", f"{name!r} is there twice")
        seen.add(name)
    for place, tensor in tensors:
        _check_sizes(tensor.shape, signature, f"{where}.{place}.shape")


def _check_sizes(factors: tuple[Dimension, ...], signature: Signature, where: str) -> None:
    for at, factor in enumerate(factors):
        if isinstance(factor, str) and factor not in signature.sizes:
            raise Wrong(f"{where}[{at}]", f"{factor!r} is not one of the sizes: {', '.join(signature.sizes)}")


def _check_reference(reference: Reference, where: str) -> None:
    if (reference.python is None) == (reference.problem is None):
        raise Wrong(where, "give either `python` (source) or `problem` (the name of a shipped one)")
    if reference.problem not in {None, *shipped()}:
        raise Wrong(f"{where}.problem", f"no such problem is shipped; there is {', '.join(shipped())}")
    try:
        with _PARSING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(reference.python or "")  # compiled where it runs: its constants may take gigabytes
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Wrong(f"{where}.python", f"it is not valid Python: {error}") from None


def _check_words(given: Collection[str], wanted: tuple[str, ...], where: str) -> None:
    missing, unknown = [name for name in wanted if name not in given], sorted({*given} - {*wanted})
    faults = [f"without {', '.join(missing)}"] if missing else []
    faults += [f"with {', '.join(unknown)}, which the signature does not have"] if unknown else []
    if faults:
        raise Wrong(where, f"it is {' and '.join(faults)}")


_FOLDER: Final = Path(__file__).parent / "problems"


class KernelProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A shipped problem, with a solution of it that works."""

    problem: str
    title: str
    problem_def: Definition
    example: str  # a solution for float32


@cache
def problems() -> tuple[KernelProblem, ...]:
    return tuple(_read(path.parent) for path in sorted(_FOLDER.glob("*/problem.json")))


def shipped() -> dict[str, Definition]:
    return {each.problem: each.problem_def for each in problems()}


def reference_of(definition: Definition) -> str:
    """The Python source of the reference, its own or that of the shipped problem it names."""
    named = definition.reference.problem
    return (definition.reference.python if named is None else shipped()[named].reference.python) or ""


def definition_hash(definition: Definition) -> str:
    """SHA-256 of everything that decides which answers are right and which cases are timed, as hex."""
    reference = Reference(python=reference_of(definition))
    bare = msgspec.structs.replace(definition, title="", description="", reference=reference)
    return hashed(msgspec.json.encode(bare, order="deterministic").decode())


def _read(folder: Path) -> KernelProblem:
    members = msgspec.json.decode((folder / "problem.json").read_bytes(), type=dict[str, object])
    members["reference"] = {"python": (folder / "reference.txt").read_text("utf-8")}
    definition, example = msgspec.convert(members, Definition), (folder / "solution.hip").read_text("utf-8")
    return KernelProblem(problem=folder.name, title=definition.title, problem_def=definition, example=example)
