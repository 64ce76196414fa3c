"""What a problem is: the signature of a solution, the reference, and the cases to test and time."""

import keyword
import math
import threading
import warnings
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import msgspec

from engine.kernel.machine.tensors import SIZES
from engine.kernel.problem_files import merged_problem
from engine.kernel_mark import hashed

Dtype = Literal["float32", "float64", "float16", "bfloat16", "int32"]
DTYPES: Final[tuple[str, ...]] = get_args(Dtype)
TOLERANCES: Final = {"float32": 1e-4, "float64": 1e-9, "float16": 1e-2, "bfloat16": 5e-2, "int32": 0.0}
"""Absolute and relative, if a definition has none."""
LARGEST: Final = 1 << 30  # bytes of one tensor

Name = Annotated[str, msgspec.Meta(pattern="^[A-Za-z][A-Za-z0-9_]{0,31}$", description="a name C and Python can have")]
Length = Annotated[int, msgspec.Meta(ge=1, le=1 << 30)]
Dimension = Name | Length
_RESERVED: Final = frozenset(
    {
        "alignas", "alignof", "and", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char",
        "char8_t", "char16_t", "char32_t", "class", "compl", "concept", "const", "consteval", "constexpr", "constinit",
        "const_cast", "continue", "decltype", "default", "delete", "do", "double", "dynamic_cast", "else", "enum",
        "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "half", "if", "inline", "int",
        "long", "main", "mutable", "namespace", "new", "noexcept", "not", "nullptr", "operator", "or", "private",
        "protected", "public", "register", "reinterpret_cast", "requires", "return", "short", "signed", "size_t",
        "sizeof", "static", "static_assert", "static_cast", "steno", "struct", "switch", "template", "this",
        "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using",
        "virtual", "void", "volatile", "wchar_t", "while", "xor", "reference",
    }
)  # fmt: skip
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
    """An unknown key is an error: a misspelt one would change what is right."""


class Tensor(_Strict, frozen=True, kw_only=True):
    """One tensor, row by row."""

    name: Name
    shape: Annotated[tuple[Dimension, ...], msgspec.Meta(min_length=1, max_length=6)]
    """Each a name of `sizes`, or a number."""


class Input(Tensor, frozen=True, kw_only=True):
    """A tensor of random numbers, from the seed of the case."""

    low: float = -1.0
    high: float = 1.0


class Signature(_Strict, frozen=True, kw_only=True):
    """What a solution defines: `extern "C" void solution(inputs…, outputs…, parameters…, sizes…)`, tensors as pointers
    into the device's memory, parameters as numbers, sizes as `size_t`.
    """

    inputs: Annotated[tuple[Input, ...], msgspec.Meta(min_length=1, max_length=8)]
    outputs: Annotated[tuple[Tensor, ...], msgspec.Meta(min_length=1, max_length=4)]
    sizes: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=8)]
    parameters: Annotated[tuple[Name, ...], msgspec.Meta(max_length=8)] = ()
    function: Name = "solution"


class Test(_Strict, frozen=True, kw_only=True):
    """One case that is compared with the reference."""

    sizes: dict[Name, Length]
    seed: int = 0
    parameters: dict[Name, float] = {}


class Benchmark(Test, frozen=True, kw_only=True):
    """One case that is timed, every call on inputs of its own, and compared."""

    warm_ups: Annotated[int, msgspec.Meta(ge=0, le=100)] = 2
    repeats: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10


class Reference(_Strict, frozen=True, kw_only=True):
    """What is right: Python that defines `reference(inputs, sizes, parameters)`, or that of a shipped problem.

    `inputs` maps names to flat lists of numbers; it answers a flat list, or a mapping of the outputs' names to such.
    Exactly one of the two is given.
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
    """Factors of how many operations a case takes at least; none: only the bytes bound how fast it can be."""
    tolerance: Tolerance | None = None  # None: that of the dtype (`TOLERANCES`)
    title: Annotated[str, msgspec.Meta(max_length=200)] = ""
    description: Annotated[str, msgspec.Meta(max_length=16_384)] = ""


def check(definition: Definition, *, dtype: str, benchmark: bool, where: str = "problem_def") -> None:
    """What the schema cannot check.

    Raises:
        Wrong: names that clash or mean nothing, sizes that are missing or too large, invalid Python source.
    """
    signature = definition.signature
    _check_names(signature, f"{where}.signature")
    for index, given in enumerate(signature.inputs):
        if not -1e30 <= given.low <= given.high <= 1e30:
            raise Wrong(f"{where}.signature.inputs[{index}].low", "low must be at most high, both within ±1e30")
        whole = given.low >= -(2**31) and given.high < 2**31 and math.ceil(given.low) <= math.floor(given.high)
        if dtype == "int32" and not whole:
            raise Wrong(f"{where}.signature.inputs[{index}].low", "there is no 32-bit whole number from low to high")
    for index, factor in enumerate(definition.operations):
        if isinstance(factor, str) and factor not in signature.sizes:
            raise Wrong(
                f"{where}.operations[{index}]", f"{factor!r} is not one of the sizes: {', '.join(signature.sizes)}"
            )
    _check_reference(definition.reference, f"{where}.reference")
    for kind, cases in (("tests", definition.tests), ("benchmarks", definition.benchmarks)):
        for index, case in enumerate(cases):
            _check_case(case, signature, dtype, f"{where}.{kind}[{index}]")
    if benchmark and not definition.benchmarks:
        raise Wrong(f"{where}.benchmarks", "the endpoint `benchmark` needs at least one; `checker` needs none")


def entries(tensor: Tensor, sizes: dict[str, int]) -> int:
    return product(tensor.shape, sizes)


def product(factors: tuple[Dimension, ...], sizes: dict[str, int]) -> int:
    return math.prod(sizes[one] if isinstance(one, str) else one for one in factors)


def _check_names(signature: Signature, where: str) -> None:
    named = [(f"inputs[{index}].name", one.name) for index, one in enumerate(signature.inputs)]
    named += [(f"outputs[{index}].name", one.name) for index, one in enumerate(signature.outputs)]
    named += [(f"parameters[{index}]", name) for index, name in enumerate(signature.parameters)]
    named += [(f"sizes[{index}]", name) for index, name in enumerate(signature.sizes)]
    named.append(("function", signature.function))
    seen: set[str] = set()
    for field, name in named:
        if name in _RESERVED or keyword.iskeyword(name) or name.startswith("steno_"):
            raise Wrong(f"{where}.{field}", f"{name!r} is a word of the language and cannot be a name")
        if name in seen:
            raise Wrong(f"{where}.{field}", f"{name!r} is there twice")
        seen.add(name)
    for kind, tensors in (("inputs", signature.inputs), ("outputs", signature.outputs)):
        for index, tensor in enumerate(tensors):
            for at, dimension in enumerate(tensor.shape):
                if isinstance(dimension, str) and dimension not in signature.sizes:
                    field = f"{where}.{kind}[{index}].shape[{at}]"
                    raise Wrong(field, f"{dimension!r} is not one of the sizes: {', '.join(signature.sizes)}")


def _check_reference(reference: Reference, where: str) -> None:
    if (reference.python is None) == (reference.problem is None):
        raise Wrong(where, "give either `python` (source) or `problem` (the name of a shipped one)")
    if reference.python is None:
        return
    try:
        with _PARSING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(reference.python, "reference", "exec")  # parsed here, run on the machine only
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Wrong(f"{where}.python", f"it is not valid Python: {error}") from None


def _check_case(case: Test, signature: Signature, dtype: str, where: str) -> None:
    for kind, given, wanted in (
        ("sizes", set(case.sizes), signature.sizes),
        ("parameters", set(case.parameters), signature.parameters),
    ):
        missing, unknown = [name for name in wanted if name not in given], sorted(given - set(wanted))
        if missing or unknown:
            said = [f"without {', '.join(missing)}"] if missing else []
            said += [f"with {', '.join(unknown)}, which the signature does not have"] if unknown else []
            raise Wrong(f"{where}.{kind}", f"it is {' and '.join(said)}")
    for tensor in (*signature.inputs, *signature.outputs):
        if entries(tensor, case.sizes) * SIZES[dtype] > LARGEST:
            raise Wrong(f"{where}.sizes", f"{tensor.name} would be larger than 1 GiB")
    if not abs(case.seed) < 2**63:
        raise Wrong(f"{where}.seed", "a seed has at most 63 bits")


# -- the shipped problems ----------------------------------------------------------------------------------------------

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
    return {one.problem: one.problem_def for one in problems()}


def reference_of(definition: Definition) -> str:
    """The Python source of what is right, its own or that of the shipped problem it names; LookupError if none is."""
    named = definition.reference.problem
    source = definition.reference.python if named is None else shipped()[named].reference.python
    if source is None:
        raise LookupError(named)
    return source


def definition_hash(definition: Definition) -> str:
    """SHA-256 of everything that decides what is right and what is timed, as hex."""
    reference = Reference(python=reference_of(definition))
    bare = msgspec.structs.replace(definition, title="", description="", reference=reference)
    return hashed(msgspec.json.encode(bare, order="deterministic").decode())


def _read(folder: Path) -> KernelProblem:
    texts = {name: (folder / name).read_text("utf-8") for name in ("problem.json", "reference.txt", "solution.hip")}
    texts["reference.py"] = texts["reference.txt"]
    definition, example = msgspec.convert(merged_problem(texts, folder.name), Definition), texts["solution.hip"]
    return KernelProblem(problem=folder.name, title=definition.title, problem_def=definition, example=example)
