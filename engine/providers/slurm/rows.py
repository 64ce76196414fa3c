"""Answers of squeue, sacct and scontrol as rows: text by its own format, or JSON of 22.05 to 25.x. Pure."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from engine.providers.slurm.words import said, state_word
from events.clock import SECOND

MOST_TASKS: Final = 100_000
"""Tasks of one array that are told apart; Slurm's own limit (MaxArraySize) is 4 million, usually 1,001."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One job, or one attempt at it, as one source shows it. Times are microseconds, UTC."""

    job: str
    """As people type it: `12`, `12_3` for a task of an array."""
    state: str
    """Slurm's own word, upper case."""
    reason: str | None = None
    name: str | None = None
    user: str | None = None
    partition: str | None = None
    comment: str | None = None
    exit_code: str | None = None
    derived: str | None = None
    submitted: int | None = None
    started: int | None = None
    ended: int | None = None
    nodes: str | None = None
    tres: str | None = None
    """What it has: `billing=101,cpu=1,gres/gpu:a6000=1,mem=500M,node=1`."""
    restarts: int | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A command, read."""

    tool: str
    """`squeue`, `sacct`, `scontrol`, `sinfo`; or anything else."""
    columns: tuple[str, ...] = ()
    """Names of the columns of a text answer, ours where we use them: see `_SQUEUE` and `_SACCT`."""
    separator: str = "|"
    json: bool = False
    jobs: frozenset[str] | None = None
    """The ids it asks for; None: all."""
    filtered: bool = False
    """Something else narrows the answer: a user, a partition, states."""
    duplicates: bool = False
    """`sacct -D`: every attempt."""
    environment: Mapping[str, str] = {}
    """Variables that `env` sets for it."""


_SQUEUE: Final = {
    "i": "job", "T": "state", "r": "reason", "j": "name", "u": "user", "P": "partition", "k": "comment",
    "V": "submitted", "S": "started", "e": "ended", "N": "nodes", "A": "id", "F": "array", "K": "task",
}  # fmt: skip
_SACCT: Final = {
    "jobid": "job", "state": "state", "jobname": "name", "user": "user", "partition": "partition",
    "comment": "comment", "exitcode": "exit_code", "derivedexitcode": "derived", "submit": "submitted",
    "start": "started", "end": "ended", "nodelist": "nodes", "alloctres": "tres", "reason": "reason",
}  # fmt: skip
_SCONTROL: Final = {
    "JobState": "state", "Reason": "reason", "Partition": "partition", "Comment": "comment", "ExitCode": "exit_code",
    "DerivedExitCode": "derived", "SubmitTime": "submitted", "StartTime": "started", "EndTime": "ended",
    "NodeList": "nodes", "TRES": "tres", "AllocTRES": "tres", "JobName": "name",
}  # fmt: skip
_TIMES: Final = frozenset({"submitted", "started", "ended"})
_FORMAT: Final = re.compile(r"%[.\-]?\d*([A-Za-z])")
_PAIR: Final = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z/:]*)=")
ENDS: Final = "grep"
"""Reads the files into which job scripts write their exit status."""
REPORTS: Final = "find"
"""Reads the files into which job scripts write what they found, and when they began what."""
NONE: Final = "No jobs"
"""How an answer of `scontrol show job` begins that has none."""
_UNREADABLE: Final = "a line without the columns that were asked for"
_VALUED: Final = {
    "squeue": frozenset("jutpwnqAMrRSLOo"),
    "sacct": frozenset("jusSEoAkrwNqTx"),
}


@lru_cache(maxsize=4096)
def question(words: tuple[str, ...]) -> Question:
    """What a command asks; never raises."""
    environment: dict[str, str] = {}
    rest = list(words)
    if rest[:1] == ["env"]:
        rest.pop(0)
        while rest and "=" in rest[0]:
            name, _, value = rest.pop(0).partition("=")
            environment[name] = value
    if rest[:1] == ["xargs"]:  # the ids come from standard input
        rest = [*rest[2:], ""]
    tool = rest.pop(0).rpartition("/")[2] if rest else ""
    if tool == "scontrol":
        shows = [word for word in rest if not word.startswith("-")]
        ids = frozenset(shows[2].split(",")) if shows[:2] == ["show", "job"] and len(shows) > 2 else None
        tool = "scontrol" if shows[:2] in (["show", "job"], ["show", "jobs"]) else "scontrol-other"
        return Question(tool=tool, jobs=ids, environment=environment)
    if tool not in ("squeue", "sacct"):
        return Question(tool=tool, environment=environment)
    flags, values = _options(tool, rest)
    columns: tuple[str, ...] = ()
    separator = "|"
    given = values.get("o") or values.get("format")
    if tool == "squeue" and given is not None:
        columns = tuple(_SQUEUE.get(letter, "") for letter in _FORMAT.findall(given))
        between = {text for text in _FORMAT.split(given)[2:-1:2] if text}
        separator = between.pop() if len(between) == 1 else " "
    elif tool == "sacct":
        names = [name.partition("%")[0].lower() for name in (given or "").split(",")]
        columns = tuple(_SACCT.get(name, "") for name in names)
        separator = values.get("delimiter", "|")
    jobs = values.get("j") or values.get("jobs") or values.get("job")
    narrowing = {"u", "user", "users", "p", "partition", "A", "account", "w", "nodelist", "n", "name", "s", "E"}
    if "STENO_CLUSTER" not in environment:  # all that Steno asks is of one user
        narrowing.add("me")
    if tool == "sacct":  # a window leaves out what was cancelled while it was held
        narrowing |= {"S", "starttime"}
    states = values.get("t") or values.get("states") or values.get("state")
    return Question(
        tool=tool,
        columns=columns,
        separator=separator,
        json="json" in flags,
        jobs=frozenset(jobs.split(",")) if jobs else None,
        # `squeue --json` of 22.05 ignores -j, -u and -t.
        filtered=bool(narrowing & {*values, *flags}) or (states is not None and states.lower() != "all"),
        duplicates=bool({"D", "duplicates"} & flags),
        environment=environment,
    )


def _options(tool: str, words: Sequence[str]) -> tuple[set[str], dict[str, str]]:
    flags: set[str] = set()
    values: dict[str, str] = {}
    left = iter(words)
    for word in left:
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            if given:
                values[name] = value
            elif name in ("format", "jobs", "states", "user", "delimiter", "starttime", "endtime"):
                values[name] = next(left, "")
            else:
                flags.add(name)
        elif word.startswith("-"):
            for index, letter in enumerate(word[1:], 1):
                if letter in _VALUED[tool] and not (tool == "sacct" and letter == "n"):
                    values[letter] = word[index + 1 :] or next(left, "")
                    break
                flags.add(letter)
    return flags, values


# -- rows --------------------------------------------------------------------------------------------------------------


def rows(asked: Question, item: str) -> Iterator[Row]:
    """The rows of one item of an answer: a line, or the whole answer where it is JSON.

    Raises:
        ValueError: it cannot be read.
    """
    if asked.json:
        yield from _json_rows(asked, item)
    elif asked.tool == "scontrol":
        mine = asked.environment.get("STENO_USER")
        yield from (row for row in _scontrol_rows(item) if mine is None or row.user == mine)
    elif asked.tool == ENDS:
        yield from _written(item)
    elif asked.columns:
        yield from _text_rows(asked, item)


def is_row(asked: Question, line: str) -> bool:
    """Whether a line is one of the answer asked for, if only its header or a step."""
    return "JobId=" in line if asked.tool == "scontrol" else line.count(asked.separator) >= len(asked.columns) - 1


def _text_rows(asked: Question, line: str) -> Iterator[Row]:
    values = line.split(asked.separator)
    if asked.tool == "sacct" and values and values[-1] == "" and len(values) == len(asked.columns) + 1:
        values.pop()  # `-p` ends each line with the separator
    more = len(values) - len(asked.columns)
    if more > 0 and "name" in asked.columns:  # only a name may hold the separator
        at = asked.columns.index("name")
        values[at : at + more + 1] = [asked.separator.join(values[at : at + more + 1])]
    if len(values) != len(asked.columns):
        if asked.separator not in line.strip():
            return  # a notice before the answer, or the second line of a name
        raise ValueError(_UNREADABLE)
    found = {name: value.strip() for name, value in zip(asked.columns, values, strict=True) if name}
    if found.get("job", "").upper() in ("JOBID", ""):
        return  # the header
    if "." in found["job"] or "state" not in found:
        return  # a step
    yield from _made(found)


def _scontrol_rows(line: str) -> Iterator[Row]:
    marks = list(_PAIR.finditer(line))
    if not marks:
        return  # `No jobs in the system`
    pairs = {
        mark[1]: line[mark.end() : after.start() if after is not None else len(line)].strip()
        for mark, after in zip(marks, [*marks[1:], None], strict=True)
    }
    if "JobId" not in pairs:
        return  # a notice, or the second line of a job whose name has two
    if "JobState" not in pairs:
        raise ValueError(_UNREADABLE)
    found = {ours: pairs[theirs] for theirs, ours in _SCONTROL.items() if theirs in pairs}
    found["user"] = pairs.get("UserId", "").partition("(")[0]
    found["job"] = pairs["JobId"]
    asked, nodes = pairs.get("TresPerNode", ""), pairs.get("NumNodes", "")
    if asked.startswith("gres:gpu") and "tres" in found and "gres/gpu" not in found["tres"]:
        # Without accounting GPUs are no resource that is counted.
        *model, count = asked.partition(",")[0].split(":")[1:]
        number = int(count) if count.isdecimal() else 1
        many = number * (int(nodes) if nodes.isdecimal() else 1)
        found["tres"] += f",gres/{':'.join(model if count.isdecimal() else [*model, count])}={many}"
    if "ArrayTaskId" in pairs and "ArrayJobId" in pairs:
        tasks = pairs["ArrayTaskId"]
        found["job"] = f"{pairs['ArrayJobId']}_{tasks if tasks.isdecimal() else f'[{tasks}]'}"
    yield from _made(found, restarts=int(pairs["Restarts"]) if pairs.get("Restarts", "").isdecimal() else None)


def _written(line: str) -> Iterator[Row]:
    """`/home/u/steno/ends/12:1 1795182548 RUN NAME`: what a job script wrote of its end, and when.

    The exit status is `-` while it runs; a fifth word is Slurm's own for an end that Slurm made (`TIMEOUT`).
    """
    path, _, said_there = line.rpartition(":")
    status, at, run, name, state, *_ = [*said_there.split(" "), *([""] * 5)]
    if not path or not (status == "-" or status.isdecimal()):
        return
    state = state or ("RUNNING" if status == "-" else "COMPLETED" if status == "0" else "FAILED")
    yield Row(
        job=path.rpartition("/")[2],
        state=state,
        reason=f"as its script wrote: exit status {status}",
        exit_code=None if status == "-" else f"{status}:0",
        ended=time(at),
        name=name or None,
        comment=f"steno:{run}" if run else None,
    )


def _made(found: dict[str, str], restarts: int | None = None) -> Iterator[Row]:
    values: dict[str, Any] = {
        name: time(value) if name in _TIMES else said(value)
        for name, value in found.items()
        if name not in ("job", "state", "id", "array", "task")
    }
    for job in expand(found["job"]):
        yield Row(job=job, state=state_word(found["state"]), restarts=restarts, **values)


def expand(job: str) -> list[str]:
    """`12_[0-2,7%4]` → `12_0, 12_1, 12_2, 12_7`: the tasks of an array that still wait as one line."""
    array, opened, tasks = job.partition("_[")
    if not opened:
        return [job]
    found: list[str] = []
    for part in tasks.rstrip("]").partition("%")[0].split(","):
        first, _, rest = part.partition("-")
        last, _, step = rest.partition(":")
        if not first.isdecimal() or (last and not last.isdecimal()):
            continue  # `...`: cut by the width of a column
        stride = int(step) if step.isdecimal() and int(step) else 1
        numbers = range(int(first), int(last or first) + 1, stride)
        found += [f"{array}_{number}" for number in numbers[: MOST_TASKS - len(found)]]
    return found


def time(text: str | None) -> int | None:
    """Microseconds of `2026-11-20T13:49:08` (UTC: the command runs with TZ=UTC) or of seconds since the epoch."""
    if text is None:
        return None
    if text.isdecimal():
        return int(text) * SECOND or None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()) * SECOND


# -- JSON --------------------------------------------------------------------------------------------------------------


def decode(item: str) -> dict[str, Any] | None:
    """The object of a `--json` answer; None where it is none."""
    try:
        found = msgspec.json.decode(item.encode())
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def has_errors(answer: Mapping[str, Any]) -> bool:
    """Whether a `--json` answer says that its source could not be asked: the exit code is 0 all the same."""
    return bool(answer.get("errors"))


def _json_rows(asked: Question, item: str) -> Iterator[Row]:
    answer = decode(item)
    if answer is None or not isinstance(answer.get("jobs"), list):
        raise ValueError("no JSON object with `jobs`")
    for job in answer["jobs"]:
        if isinstance(job, dict) and job.get("job_id") is not None:
            yield from _accounted(job) if asked.tool == "sacct" else _listed(job)


def _listed(job: Mapping[str, Any]) -> Iterator[Row]:
    found = {
        "state": _word(job.get("job_state")),
        "reason": str(job.get("state_reason") or ""),
        "name": str(job.get("name") or ""),
        "user": str(job.get("user_name") or ""),
        "partition": str(job.get("partition") or ""),
        "comment": str(job.get("comment") or ""),
        "nodes": str(job.get("nodes") or ""),
        "tres": str(job.get("tres_alloc_str") or ""),
        **{name: str(_number(job.get(key)) or "") for name, key in _JSON_TIMES},
    }
    array, task = _number(job.get("array_job_id")), _number(job.get("array_task_id"))
    tasks = job.get("array_task_string")
    found["job"] = str(job["job_id"])
    if array and task is not None:
        found["job"] = f"{array}_{task}"
    elif array and tasks:
        found["job"] = f"{array}_[{tasks}]"
    yield from _made(found, restarts=_number(job.get("restart_cnt")))


_JSON_TIMES: Final = (("submitted", "submit_time"), ("started", "start_time"), ("ended", "end_time"))


def _accounted(job: Mapping[str, Any]) -> Iterator[Row]:
    state, when, array = job.get("state"), job.get("time"), job.get("array")
    state, when, array = (one if isinstance(one, dict) else {} for one in (state, when, array))
    tres = job.get("tres")
    allocated = tres.get("allocated") if isinstance(tres, dict) else None
    found = {
        "state": _word(state.get("current")),
        "reason": str(state.get("reason") or ""),
        "name": str(job.get("name") or ""),
        "user": str(job.get("user") or ""),
        "partition": str(job.get("partition") or ""),
        "comment": _comment(job.get("comment")),
        "nodes": str(job.get("nodes") or ""),
        "tres": ",".join(_tres(one) for one in allocated or () if isinstance(one, dict)),
        "exit_code": _exit(job.get("exit_code")),
        "derived": _exit(job.get("derived_exit_code")),
        **{name: str(_number(when.get(key)) or "") for name, key in _ACCOUNTED_TIMES},
    }
    task, number = _number(array.get("task_id")), _number(array.get("job_id"))
    found["job"] = f"{number}_{task}" if number and task is not None else str(job["job_id"])
    yield from _made(found)


_ACCOUNTED_TIMES: Final = (("submitted", "submission"), ("started", "start"), ("ended", "end"))


def _word(given: object) -> str:
    """22.05 has a text, 23.11 and later a list of which the first is the state and the rest are flags."""
    words = [str(one).upper() for one in given] if isinstance(given, list) else [str(given or "").upper()]
    if "COMPLETING" in words and len(words) > 1:
        return "COMPLETING"
    return words[0] if words else ""


def _number(given: object) -> int | None:
    """A number as 22.05 has it, or as `{"set": true, "infinite": false, "number": 5}` of 23.11 and later."""
    if isinstance(given, dict):
        given = given.get("number") if given.get("set") else None
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _exit(given: object) -> str:
    """`status:signal`. A `return_code` of 0 says nothing: 22.05 gives it for a job that exited 1, too."""
    if not isinstance(given, dict):
        return ""
    status = _number(given.get("return_code"))
    signal = given.get("signal")
    number = _number(signal.get("id") if "id" in signal else signal.get("signal_id")) if isinstance(signal, dict) else 0
    if not status and not number:
        return ""
    return f"{status or 0}:{number or 0}"


def _comment(given: object) -> str:
    return str((given.get("job") if isinstance(given, dict) else given) or "")


def _tres(one: Mapping[str, Any]) -> str:
    name = f"/{one['name']}" if one.get("name") else ""
    return f"{one.get('type', '')}{name}={_number(one.get('count')) or 0}"


def command_of(req: bytes) -> tuple[str, ...]:
    """The words of the command that a poll's request holds; () where it holds none."""
    try:
        words = msgspec.json.decode(req, type=list[str] | str | None)
    except msgspec.DecodeError:
        return ()
    if isinstance(words, str):
        try:
            words = shlex.split(words)
        except ValueError:
            return ()
    return tuple(words or ())
