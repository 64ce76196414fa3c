"""A task as a user describes it: file, name, flags and environment. Providers validate it (`ProviderKind.complete`)."""

import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from steno.engine.errors import TaskInvalid
from steno.events.errors import UnreadableInput

_VARIABLE = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
LISTENER = "STENO_LISTENER"  # the variable of a task whose ports are to be reached: it brings a listener
RESOURCES = ("gpu", "cpu", "memory", "disk")  # flags that are fields of `resources`


def _ignore(line: str) -> None:
    """Nobody reads it."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A task before its provider has completed it."""

    configuration: dict[str, object]  # JSON values; `type: task` with `commands`
    where: str  # its name in messages: the file's, or `the flags`
    environ: Mapping[str, str]  # for `env: [NAME]` without a value
    fallback: tuple[str, ...] = ()  # GPU models of later submissions
    bare: bool = False  # a command with flags, without a file
    folder: Path | None = None  # relative paths start here; None: nothing of this machine may be read
    recorded: bool = False  # a task of the record, submitted again: it takes nothing new from the environment
    given: Mapping[str, object] = {}  # the fields that flags set over the file; `configuration` has them too
    profile: str | None = None  # the profile wanted by name
    stem: str | None = None  # how a generated name begins
    kernel: bytes | None = None  # the mark of a task whose output is read
    notify: Callable[[str], None] = _ignore  # gets a line on what its provider took from the environment


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """A task ready to be requested; secret values in clear, in memory only."""

    name: str
    configuration: dict[str, object]
    base: str | None = None  # relative `files:` and `repos:` paths start here
    fallback: tuple[str, ...] = ()  # GPU models to try in turn if the provider has none of the task's own
    kernel: bytes | None = None  # the mark of a task whose output is read


def overlaid(
    base: Mapping[str, object] | None, *, command: Sequence[str] = (), env: Sequence[str] = (), **flags: object
) -> dict[str, object]:
    """The configuration with the flags over it: a flag replaces the field of its name. Not validated.

    Without a `base`, `command` is what runs: one word is a shell line, several are quoted. `env`: `NAME=value`, or
    `NAME` for its value here. `flags`: by field (those of `RESOURCES` in `resources`); None and () are unset.
    """
    task: dict[str, object] = dict(base) if base is not None else {"type": "task"}
    if command:
        task["commands"] = [command[0] if len(command) == 1 else shlex.join(command)]
    given = {name: value for name, value in flags.items() if value is not None and value != ()}
    wanted = {name: given.pop(name) for name in RESOURCES if name in given}
    if wanted:
        resources = task.get("resources") or {}
        if not isinstance(resources, dict):
            raise TaskInvalid("`resources`: must be a mapping (`gpu:`, `cpu:`, `memory:`, `disk:`)")
        task["resources"] = {**resources, **wanted}
    task.update({name: list(value) if isinstance(value, tuple) else value for name, value in given.items()})
    if env:
        task["env"] = _merged(task.get("env"), env)
    return task


def complete_plain(draft: Draft) -> dict[str, object]:
    """A task of which only commands and variables matter, with every variable's value.

    Raises TaskInvalid if it is not a task, has no commands, or a variable is not set.
    """
    task = dict(draft.configuration)
    if task.get("type", "task") != "task":
        raise TaskInvalid(
            f"{draft.where}: `type` is {task['type']!r}, and Steno runs tasks only; give it a task (`type: task` and "
            "`commands`), and run this one with the tool that it was written for"
        )
    commands = task.get("commands")
    if not isinstance(commands, list) or not commands or not all(isinstance(line, str) for line in commands):
        raise TaskInvalid(f"{draft.where}: `commands` must be a list of shell lines")
    task["env"] = resolve_env(task.get("env"), draft.environ, draft.where)
    return task


def resolve_env(env: object, environ: Mapping[str, str], where: str) -> object:
    """`env` as a mapping with every value; anything but a mapping or a list of texts comes back unchanged.

    Raises TaskInvalid if a name without a value is not set in `environ`, or a name comes twice.
    """
    if env is None:
        return {}
    if isinstance(env, dict):
        for name in env:
            _check_variable(name, where)
        return {name: str(value) if type(value) in (int, float) else value for name, value in env.items()}
    if not isinstance(env, list) or not all(isinstance(entry, str) for entry in env):
        return env
    variables: dict[str, str] = {}
    for entry in env:
        name, given, value = entry.partition("=")
        _check_variable(name, where)
        if name in variables:
            raise TaskInvalid(f"{where}: env has {name} twice")
        if not given and name not in environ:
            raise TaskInvalid(f"{where}: env wants {name} from your environment, where it is not set; export it first")
        variables[name] = value if given else environ.get(name, "")
    return variables


def _check_variable(name: object, where: str) -> None:
    if not isinstance(name, str) or _VARIABLE.fullmatch(name) is None:
        raise TaskInvalid(f"{where}: env: {name!r} is not a variable name; write NAME=value, NAME, or NAME: value")


def _merged(before: object, env: Sequence[str]) -> object:
    """The file's `env` with the flags' over it, as a list: a bare NAME keeps its meaning."""
    if before is None:
        before = []
    if isinstance(before, dict):
        before = [f"{name}={value}" for name, value in before.items()]
    if not isinstance(before, list):
        return before
    latest = {entry.partition("=")[0]: entry for entry in env}
    kept = [entry for entry in before if not (isinstance(entry, str) and entry.partition("=")[0] in latest)]
    return [*kept, *latest.values()]


PATTERN = "^[a-z][a-z0-9-]{1,40}$"  # the strictest rule of all providers: such a name fits anywhere

_NAME = re.compile(PATTERN[1:-1])


def check_name(name: str) -> str:
    """The name; TaskInvalid if it is not valid."""
    if _NAME.fullmatch(name) is None:
        raise TaskInvalid(
            f"invalid name {name!r}: use 2 to 41 of a-z, 0-9 and '-', and start with a letter ({PATTERN})"
        )
    return name


def choose_name(run_id: str, stem: str | None = None) -> str:
    """A unique name: the stem (default `steno`) and 12 hexadecimal digits of the run id.

    The same run id gives the same name, so that a submission repeated after a crash finds the first submission.
    """
    digits = run_id.replace("-", "").lower()[-12:]
    words = re.sub("[^a-z0-9]+", "-", (stem or "").lower()).strip("-")
    words = words if words[:1].isalpha() else "steno"
    return f"{words[:28].rstrip('-')}-{digits}"


def alternatives(name: str, run_id: str) -> tuple[str, ...]:
    """The names a run may be submitted under, in turn: its own and, if Steno chose that, its own with a number."""
    digits = choose_name(run_id).removeprefix("steno")
    if not name.endswith(digits):
        return (name,)
    stem = name.removesuffix(digits)[:26].rstrip("-")
    return (name, *(f"{stem}{digits}-{number}" for number in range(2, 10)))


LARGEST = 512 << 10  # bytes of a task file; usually it has 1 kB, and this size takes seconds
_DEEPEST = 30
_MOST = 10_000  # values of a task: a dozen lines of nested aliases mean a billion


TASK_NEEDS = "`type: task` and `commands:`"


def read_task_file(path: Path, needs: str = TASK_NEEDS) -> dict[str, object]:
    """The mapping in a task file, not validated; `needs`: what it has at least, for messages.

    Raises UnreadableInput if the file does not exist or is not a YAML mapping, TaskInvalid if a key is not text.
    """
    try:
        # A pipe without a writer would block, and a device never ends.
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
    return parse_task(text, str(path), needs)


def parse_task(text: str, name: str, needs: str = TASK_NEEDS) -> dict[str, object]:
    """The mapping in a task file's text; `name` is the file's, for messages."""
    import yaml

    try:
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark and error.context == "expected a single document in the stream":
            raise UnreadableInput(
                f"{name} has several documents: another begins in line {mark.line + 1} (`---`); put each task into a "
                "file of its own"
            ) from None
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        raise UnreadableInput(f"{name} is not valid YAML: {place}: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UnreadableInput(f"{name} is not valid YAML: line {line}: a character YAML does not allow") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableInput(f"{name} is not valid YAML: {' '.join(str(error).split())[:200]}") from None
    if content is None:
        raise UnreadableInput(f"{name} is empty; it needs at least {needs}")
    if not isinstance(content, dict):
        raise UnreadableInput(f"{name} must be a mapping ({needs.partition(' and ')[0]} …), not a {_kind(content)}")
    # JSON values only: YAML also has dates and sets
    left = iter(range(_MOST))
    return {_key(key, name): _value(value, name, _key(key, name), left) for key, value in content.items()}


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
