"""Reading a task file: YAML to plain values, every failure one line with its place."""

import stat
from collections.abc import Iterator
from pathlib import Path

from engine.errors import TaskInvalid
from events.errors import UnreadableInput

LARGEST = 512 << 10
"""Bytes of a task file; usual ones have 1 kB, and YAML of this size is read in seconds."""
_DEEPEST = 30
_MOST = 10_000
"""Values of a task; a dozen lines of aliases to aliases stand for a billion."""


def read_task_file(path: Path) -> dict[str, object]:
    """The mapping a task file holds, not yet validated.

    Raises:
        UnreadableInput: the file does not exist, or is not a YAML mapping.
        TaskInvalid: a key that is not text.
    """
    try:
        # A pipe that nobody writes to would be waited for, and a device never ends.
        if not stat.S_ISREG(path.stat().st_mode):
            raise UnreadableInput(f"{path} is not a regular file; name a task file with -f FILE")
        with path.open("rb") as file:
            given = file.read(LARGEST + 1)
        if len(given) > LARGEST:
            raise UnreadableInput(
                f"task file {path} is larger than {LARGEST >> 10} kB; put what is large into a script"
            )
        text = given.decode()
    except FileNotFoundError:
        raise UnreadableInput(f"there is no task file {path}; name one with -f FILE") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UnreadableInput(f"cannot read task file {path}: {reason}") from None
    return parse_task(text, str(path))


def parse_task(text: str, name: str) -> dict[str, object]:
    """The mapping in a task file's text; `name` is what to call the file in a message."""
    import yaml

    try:
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        raise UnreadableInput(f"{name} is not valid YAML: {place}: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UnreadableInput(f"{name} is not valid YAML: line {line}: a character YAML does not allow") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableInput(f"{name} is not valid YAML: {' '.join(str(error).split())[:200]}") from None
    if content is None:
        raise UnreadableInput(f"{name} is empty; a task needs at least `type: task` and `commands:`")
    if not isinstance(content, dict):
        raise UnreadableInput(f"{name} must be a mapping (`type: task` …), not a {_kind(content)}")
    return _plain(content, name)


def _plain(mapping: dict[object, object], name: str) -> dict[str, object]:
    """JSON values only: YAML also has dates and sets."""
    left = iter(range(_MOST))
    return {_key(key, name): _value(value, name, _key(key, name), left) for key, value in mapping.items()}


def _key(key: object, name: str) -> str:
    if not isinstance(key, str):
        raise TaskInvalid(f"{name}: {key!r} cannot be the name of a field; put it in quotes")
    return key


def _value(value: object, name: str, where: str, left: Iterator[int]) -> object:
    if next(left, None) is None:
        raise TaskInvalid(f"{name}: more than {_MOST:,} values (aliases to aliases?)")
    if where.count(".") + where.count("[") > _DEEPEST:
        raise TaskInvalid(f"{name}: {where[:40]}… is nested deeper than {_DEEPEST} levels (an alias to itself?)")
    if isinstance(value, dict):
        return {
            str(key) if isinstance(key, int | float) else _key(key, name): _value(inner, name, f"{where}.{key}", left)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_value(inner, name, f"{where}[{index}]", left) for index, inner in enumerate(value)]
    if isinstance(value, int | float) and not abs(value) < 2**63:
        raise TaskInvalid(f"{name}: the number of {where} is out of range")
    if value is None or isinstance(value, str | int | float):
        return value
    raise TaskInvalid(f"{name}: {where} is a {_kind(value)}; put it in quotes if it is meant as text")


def _kind(value: object) -> str:
    return {"list": "list", "str": "text", "int": "number", "float": "number", "bool": "true or false"}.get(
        type(value).__name__, type(value).__name__
    )
