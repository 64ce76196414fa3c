"""The request to run a kernel: read, checked, and its problem found."""

import re
from typing import Annotated, Final, Literal, TypeVar, get_args

import msgspec

from steno.engine.kernel.definition import DTYPES, Definition, Dtype, Wrong, check, shipped

LONGEST_SOURCE: Final = 65_536  # bytes of a solution
Gpu = Literal["MI300X", "MI300A", "MI250X", "MI210", "H100", "A100", "CPU"]
Language = Literal["hip", "cuda", "cpp"]
GPUS: Final[tuple[str, ...]] = get_args(Gpu)
LANGUAGES: Final = {"hip": ("MI300X", "MI300A", "MI250X", "MI210"), "cuda": ("H100", "A100"), "cpp": GPUS}
"""The GPUs that each is for; C++ runs on the processor of any machine."""
Endpoint = Literal["benchmark", "checker"]
ENDPOINTS: Final[tuple[str, ...]] = get_args(Endpoint)

T = TypeVar("T")
_KNOWN: Final = {"gpu_type": GPUS, "dtype": DTYPES, "language": get_args(Language), "endpoint": ENDPOINTS}
_AT: Final = re.compile(r"^(?P<what>.*?) - at (?:`key` in )?`\$(?P<path>[^`]*)`$", re.DOTALL)
_MISSING: Final = re.compile(r"required field `(\w+)`")


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a submission. Unknown keys are ignored: a front end may have its own."""

    solution_code: Annotated[str, msgspec.Meta(min_length=1, description="source; at most 64 KiB of UTF-8")]
    problem: Annotated[
        str,
        msgspec.Meta(
            pattern="^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$", description="the name of a shipped problem, or of your own"
        ),
    ]
    problem_def: Definition | str | None = None
    """The problem, or the JSON text of one; null or left out: that of the shipped `problem`."""
    gpu_type: Gpu
    dtype: Dtype = "float32"
    language: Language = "hip"
    endpoint: Endpoint = "benchmark"
    """`benchmark` checks and times and ends BENCHMARKED, `checker` only checks and ends CHECKED."""


class KernelSubmission(Payload, frozen=True, kw_only=True):
    """A submission that was read: the solution, and the definition of its problem."""

    definition: Definition


def read_submission(body: bytes) -> KernelSubmission:
    """The submission in a request's body.

    Raises:
        Wrong: what is wrong, and where; `field` is empty if the body is not a JSON object.
    """
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Wrong("", f"the request is not valid UTF-8: byte {error.start} is {body[error.start]:#04x}") from None
    payload = _decoded(Payload, body, "")
    source = _encoded(payload.solution_code, "solution_code")
    if not payload.solution_code.strip():
        raise Wrong("solution_code", "it is empty")
    if len(source) > LONGEST_SOURCE:
        raise Wrong("solution_code", f"it has {len(source)} bytes; at most {LONGEST_SOURCE} are taken")
    if b"\0" in source:
        raise Wrong("solution_code", "it holds a zero byte")
    if payload.gpu_type not in LANGUAGES[payload.language]:
        fitting = ", ".join(LANGUAGES[payload.language])
        raise Wrong("gpu_type", f"{payload.language} is for {fitting}, not {payload.gpu_type}")
    definition = _definition(payload)
    check(definition, dtype=payload.dtype, benchmark=payload.endpoint == "benchmark")
    return KernelSubmission(**{**msgspec.structs.asdict(payload), "problem_def": None, "definition": definition})


def read_definition(text: str, where: str) -> Definition:
    """A problem of one's own. Raises Wrong, as `read_submission`."""
    definition = _decoded(Definition, _encoded(text, where), where)
    check(definition, dtype=(definition.dtypes or ("float32",))[0], benchmark=False, where=where)
    return definition


def _encoded(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Wrong(field, "it holds half a character (a lone surrogate) and is not valid UTF-8") from None


def _definition(payload: Payload) -> Definition:
    given = payload.problem_def
    if isinstance(given, str):
        text = _encoded(given, "problem_def")
        given = _decoded(Definition | None, text, "problem_def") if text.strip() else None  # type: ignore[arg-type]
    definition = shipped().get(payload.problem) if given is None else given
    if definition is None:
        names = ", ".join(shipped())
        raise Wrong("problem", f"{payload.problem!r} is not shipped ({names}): send its definition as problem_def")
    return definition


def _decoded(shape: type[T], text: bytes, where: str) -> T:
    try:
        return msgspec.json.decode(text, type=shape)
    except msgspec.ValidationError as error:
        matched = _AT.match(str(error))
        what, path = (matched["what"], matched["path"]) if matched is not None else (str(error), "")
        if (missing := _MISSING.search(what)) is not None:
            path += f".{missing[1]}"
        field = (where + path).lstrip(".")
        known = f"; there is {', '.join(_KNOWN[field])}" if field in _KNOWN and "enum" in what else ""
        raise Wrong(field, what + known) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Wrong(where, f"it is not valid JSON: {error}") from None
