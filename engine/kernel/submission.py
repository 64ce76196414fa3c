"""The request to run a kernel: read, checked, and its problem found."""

import re
from typing import Annotated, Final, Literal, TypeVar, get_args

import msgspec

from engine.kernel.definition import DTYPES, Definition, Wrong, check, definition_of, names

LONGEST_SOURCE: Final = 65_536
"""Bytes of a solution."""
GPUS: Final = ("MI300X",)
LANGUAGES: Final = ("hip",)

Dtype = Literal["float32", "float64", "float16", "bfloat16", "int32"]
Endpoint = Literal["benchmark", "checker"]
ENDPOINTS: Final[tuple[str, ...]] = get_args(Endpoint)

T = TypeVar("T")
_AT: Final = re.compile(r"^(?P<what>.*?) - at (?:`key` in )?`\$(?P<path>[^`]*)`$", re.DOTALL)


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """What is posted. Keys it does not name are let be: a front end may have its own."""

    solution_code: Annotated[str, msgspec.Meta(min_length=1, description="HIP source; at most 64 KiB of UTF-8")]
    problem: Annotated[
        str,
        msgspec.Meta(
            pattern="^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$", description="the name of a shipped problem, or of your own"
        ),
    ]
    problem_def: Definition | str | None = None
    """The problem, or the JSON text of one; null or left out: that of the shipped `problem`."""
    gpu_type: Literal["MI300X"]
    dtype: Dtype = "float32"
    language: Literal["hip"] = "hip"
    endpoint: Endpoint = "benchmark"
    """`benchmark` checks and times and ends BENCHMARKED, `checker` only checks and ends CHECKED."""


class KernelSubmission(msgspec.Struct, frozen=True, kw_only=True):
    """A request that can be carried out."""

    solution: str
    problem: str
    definition: Definition
    gpu: str
    dtype: Dtype
    language: str
    endpoint: Endpoint


class _Loose(msgspec.Struct, frozen=True, kw_only=True):
    """The payload with its problem left unread, so that what is wrong in it is named by its own path."""

    solution_code: str
    problem: str
    gpu_type: str
    problem_def: msgspec.Raw = msgspec.Raw(b"null")
    dtype: str = "float32"
    language: str = "hip"
    endpoint: str = "benchmark"


_loose = msgspec.json.Decoder(_Loose)
_definition = msgspec.json.Decoder(Definition)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def read_submission(body: bytes) -> KernelSubmission:
    """The submission in a request's body.

    Raises:
        Wrong: what is wrong, and where; `field` is empty where the body is no JSON object.
    """
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Wrong("", f"the request is not valid UTF-8: byte {error.start} is {body[error.start]:#04x}") from None
    asked = _decoded(_loose, body, "")
    for field, value, known in (
        ("gpu_type", asked.gpu_type, GPUS),
        ("dtype", asked.dtype, DTYPES),
        ("language", asked.language, LANGUAGES),
        ("endpoint", asked.endpoint, ENDPOINTS),
    ):
        if value not in known:
            raise Wrong(field, f"{value[:60]!r} is not known here; there is {', '.join(known)}")
    if _NAME.fullmatch(asked.problem) is None:
        raise Wrong("problem", f"{asked.problem[:60]!r} is not a name of letters, digits, - and _")
    _check_source(asked.solution_code)
    definition = _problem(asked)
    endpoint = msgspec.convert(asked.endpoint, Endpoint)
    dtype = msgspec.convert(asked.dtype, Dtype)
    check(definition, dtype=dtype, benchmark=endpoint == "benchmark")
    if definition.reference.problem is not None and definition_of(definition.reference.problem) is None:
        raise Wrong("problem_def.reference.problem", f"no such problem is shipped; there is {', '.join(names())}")
    return KernelSubmission(
        solution=asked.solution_code,
        problem=asked.problem,
        definition=definition,
        gpu=asked.gpu_type,
        dtype=dtype,
        language=asked.language,
        endpoint=endpoint,
    )


def _check_source(source: str) -> None:
    if not source.strip():
        raise Wrong("solution_code", "it is empty")
    try:
        size = len(source.encode("utf-8"))
    except UnicodeEncodeError:
        raise Wrong("solution_code", "it holds half a character (a lone surrogate) and is not valid UTF-8") from None
    if size > LONGEST_SOURCE:
        raise Wrong("solution_code", f"it has {size} bytes; at most {LONGEST_SOURCE} are taken")
    if "\0" in source:
        raise Wrong("solution_code", "it holds a zero byte")


def _problem(asked: _Loose) -> Definition:
    given = bytes(asked.problem_def)
    if given.lstrip()[:1] == b'"':
        try:
            given = _decoded(msgspec.json.Decoder(str), given, "problem_def").encode()
        except UnicodeEncodeError:
            raise Wrong("problem_def", "it holds half a character (a lone surrogate) and is not valid UTF-8") from None
        if not given.strip():
            given = b"null"
    if given.strip() == b"null":
        found = definition_of(asked.problem)
        if found is None:
            shipped = ", ".join(names())
            raise Wrong("problem", f"{asked.problem!r} is not shipped ({shipped}): send its definition as problem_def")
        return found
    return _decoded(_definition, given, "problem_def")


def _decoded(decoder: "msgspec.json.Decoder[T]", text: bytes, where: str) -> T:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        said = _AT.match(str(error))
        what, path = (said["what"], said["path"]) if said is not None else (str(error), "")
        field = (where + path).lstrip(".")
        if said is None and (missing := re.search(r"required field `(\w+)`", str(error))) is not None:
            field = f"{where}.{missing[1]}".lstrip(".")
        raise Wrong(field, what) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Wrong(where, f"it is not valid JSON: {error}") from None
