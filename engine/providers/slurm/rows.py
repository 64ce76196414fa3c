"""Answers of squeue, sacct and scontrol as rows: text by its own format, or JSON of 22.05 to 25.x. Pure."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, Final

import msgspec

from engine.providers.slurm.job_line import job_pairs
from engine.providers.slurm.question import ENDS, FREE_TEXT, Question
from engine.providers.slurm.spec import MARK
from engine.providers.slurm.words import said, state_word
from events.clock import SECOND

MOST_TASKS: Final = 100_000  # of one array, told apart; MaxArraySize is at most 4 million, usually 1,001


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One job, or one attempt at it, as one source shows it. Times are microseconds, UTC."""

    job: str  # as people type it: `12`, `12_3` for a task of an array, `12+0` for a component of a het job
    state: str  # Slurm's own word, upper case
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
    tres: str | None = None  # what it has: `billing=101,cpu=1,gres/gpu:a6000=1,mem=500M,node=1`
    restarts: int | None = None
    suspended: int | None = None  # how long it was suspended so far, microseconds
    limit: int | None = None  # its time limit, microseconds; None: none, or not said
    cut: bool = False  # its array has tasks that the answer does not list


_SCONTROL: Final = {
    "JobState": "state", "Reason": "reason", "Partition": "partition", "Comment": "comment", "ExitCode": "exit_code",
    "DerivedExitCode": "derived", "SubmitTime": "submitted", "StartTime": "started", "EndTime": "ended",
    "NodeList": "nodes", "TRES": "tres", "AllocTRES": "tres", "JobName": "name", "TimeLimit": "limit",
}  # fmt: skip
_TIMES: Final = frozenset({"submitted", "started", "ended"})
_SPANS: Final = frozenset({"suspended", "limit"})
_SPAN: Final = re.compile(r"(?:(\d{1,5})-)?(?:(?:(\d{1,5}):)?(\d{1,7}):)?(\d{1,9})", re.ASCII)
_PAIR: Final = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z/:]*)=")
NONE: Final = "No jobs"  # start of an answer of `scontrol show job` without jobs
_UNREADABLE: Final = "a line without the requested columns"


def rows(asked: Question, item: str) -> Iterator[Row]:
    """The rows of one item of an answer: a line, or all of a JSON answer. Raises ValueError if it is unreadable."""
    if asked.json:
        yield from _json_rows(asked, item)
    elif asked.tool == "scontrol":
        mine = asked.environment.get("STENO_USER")
        yield from (row for row in _scontrol_rows(item) if mine is None or row.user == mine)
    elif asked.tool == ENDS:
        yield from _written(item)
    elif asked.columns:
        yield from _text_rows(asked, item)


def is_silent(text: str) -> bool:
    """Whether an answer lists nothing: only warnings of a site's wrapper."""
    return all(not line.strip() or "warning" in line.lower() for line in text.splitlines())


def is_row(asked: Question, line: str) -> bool:
    """Whether a line belongs to the answer, even as its header or a step."""
    return (
        line.startswith("JobId=") if asked.tool == "scontrol" else line.count(asked.separator) >= len(asked.columns) - 1
    )


def _text_rows(asked: Question, line: str) -> Iterator[Row]:
    values = _cells(asked, line)
    if len(values) != len(asked.columns):
        if asked.separator not in line.strip():
            return  # a notice before the answer, or the second line of a name
        raise ValueError(_UNREADABLE)
    found: dict[str, str] = {}
    for name, value in zip(asked.columns, values, strict=True):
        if name and value is not None:
            found.setdefault(name, value.strip())
    if found.get("job", "").upper() in ("JOBID", ""):
        return  # the header
    if "." in found["job"].partition("_[")[0] or "state" not in asked.columns:
        return  # a step
    if "state" not in found:
        raise ValueError(_UNREADABLE)
    if asked.tool == "sacct" and found.get("partition") == "":
        return  # accounting has half of it only, in which a task of an array has the id of the whole
    yield from _made(found)


def _cells(asked: Question, line: str) -> list[str | None]:
    """The values of the columns, if there are as many. A separator too much belongs to the columns of free text, and
    one too few to the last of them: a line break cut it off. None: nobody can say what of it is that column's.
    """
    values, columns = line.split(asked.separator), asked.columns
    if asked.closed and values[-1] == "":
        values.pop()
    free = [at for at, name in enumerate(columns) if name in FREE_TEXT]
    more = len(values) - len(columns)
    if not free or more == 0 or (more < 0 and (free[-1] + 1 < len(columns) or len(values) <= free[0])):
        return [*values]
    first, last = free[0], free[-1] + 1
    key = values[columns.index("job")] if "job" in columns[:first] else None
    between = _free(columns[first:last], values[first : last + more], asked.separator, key)
    return [*values[:first], *between, *values[last + more :]]


def _free(names: tuple[str, ...], parts: list[str], separator: str, key: str | None) -> list[str | None]:
    """The columns from the first of free text to the last. Steno asks for the job's id between comment and name, so
    that neither can be taken for a part of the other. Where it stands not between them, the name is the last column
    and has no separator, unless the comment is none, or our mark: those have none.
    """
    if len(names) == 1:
        return [separator.join(parts)]
    if names == ("comment", "job", "name"):
        marks = [at for at, part in enumerate(parts) if part == key and 0 < at < len(parts) - 1]
        if len(marks) == 1:
            return [separator.join(parts[: marks[0]]), key, separator.join(parts[marks[0] + 1 :])]
    elif names in (("comment", "name"), ("name", "comment")) and len(parts) > 1:
        comment = parts[0 if names[0] == "comment" else -1].strip()
        plain = said(comment) is None or comment.startswith(MARK)
        at = 1 if plain == (names[0] == "comment") else len(parts) - 1
        return [separator.join(parts[:at]), separator.join(parts[at:])]
    return [None] * len(names)


def _scontrol_rows(line: str) -> Iterator[Row]:
    pairs = job_pairs(line)
    if pairs is None:
        return  # `No jobs in the system`, a notice, or the second line of a job's name
    found = {ours: pairs[theirs] for theirs, ours in _SCONTROL.items() if theirs in pairs}
    found["user"] = pairs.get("UserId", "").partition("(")[0]
    found["job"] = pairs["JobId"]
    asked, nodes = pairs.get("TresPerNode", ""), pairs.get("NumNodes", "")
    if asked.startswith("gres:gpu") and "tres" in found and "gres/gpu" not in found["tres"]:
        # Without accounting, GPUs are not counted as a resource.
        *model, count = asked.partition(",")[0].split(":")[1:]
        number = int(count) if count.isdecimal() else 1
        many = number * (int(nodes) if nodes.isdecimal() else 1)
        found["tres"] += f",gres/{':'.join(model if count.isdecimal() else [*model, count])}={many}"
    if "ArrayTaskId" in pairs and "ArrayJobId" in pairs:
        tasks = pairs["ArrayTaskId"]
        found["job"] = f"{pairs['ArrayJobId']}_{tasks if tasks.isdecimal() else f'[{tasks}]'}"
    elif "HetJobId" in pairs:
        found["job"] = f"{pairs['HetJobId']}+{pairs['HetJobOffset']}"
    yield from _made(found, restarts=int(pairs["Restarts"]) if pairs.get("Restarts", "").isdecimal() else None)


def _pairs(line: str) -> dict[str, str]:
    marks = list(_PAIR.finditer(line))
    return {
        mark[1]: line[mark.end() : after.start() if after is not None else len(line)].strip()
        for mark, after in zip_longest(marks, marks[1:])
    }


def maintenance(text: str, now: int) -> str:
    """`<start>/<end>` of the next maintenance that `scontrol show reservation` lists, the start empty if it has begun;
    "" if there is none.
    """
    listed = (_pairs(line) for line in text.splitlines() if "MAINT" in line)
    times = sorted((one.get("EndTime", ""), one.get("StartTime", "")) for one in listed)
    for end, start in times:
        if (time(end) or 0) > now:
            return f"{start if (time(start) or 0) > now else ''}/{end}"
    return ""


def _written(line: str) -> Iterator[Row]:
    """`/home/u/steno/ends/12:1 1795182548 RUN NAME`: what a job script wrote of its end, and when.

    The exit status is `-` while it runs; a fifth word is Slurm's own for an end by Slurm (`TIMEOUT`).
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
        name: time(value) if name in _TIMES else duration(value) if name in _SPANS else said(value)
        for name, value in found.items()
        if name not in ("job", "state", "id", "array", "task", "text")
    }
    if _is_rejected(found, values):
        return
    jobs, cut = expand(found["job"])
    if cut and not jobs:
        raise ValueError("a list of tasks that was cut before its first task")
    for job in jobs:
        yield Row(job=job, state=state_word(found["state"]), restarts=restarts, cut=cut, **values)


def _is_rejected(found: Mapping[str, str], values: Mapping[str, Any]) -> bool:
    """Whether `sbatch` was refused: some refusals leave a job that FAILED as it was submitted, and never had a node."""
    at_once = values.get("submitted") is not None and values.get("submitted") == values.get("started")
    return state_word(found["state"]) == "FAILED" and at_once and "nodes" in found and values["nodes"] is None


def expand(job: str) -> tuple[list[str], bool]:
    """`12_[0-2,7%4]` → `12_0, 12_1, 12_2, 12_7`: the waiting tasks of an array, which are one line; and whether the
    list was cut by the width of a column. Of such a list only a number before a comma or a hyphen is whole.
    """
    array, opened, tasks = job.partition("_[")
    if not opened:
        return [job], False
    found: list[str] = []
    listed, closed, _ = tasks.replace("%", "]").partition("]")
    listed, dots, _ = listed.partition("...")
    cut = bool(dots) or not closed
    if cut:
        whole, _, last = listed.rpartition(",")
        listed = f"{whole},{last.partition('-')[0] if '-' in last else ''}"
    for part in listed.split(","):
        first, _, rest = part.partition("-")
        last, _, step = rest.partition(":")
        if not first.isdecimal() or (last and not last.isdecimal()):
            continue
        stride = int(step) if step.isdecimal() and int(step) else 1
        numbers = range(int(first), int(last or first) + 1, stride)
        found += [f"{array}_{number}" for number in numbers[: MOST_TASKS - len(found)]]
    return found, cut


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


def duration(text: str) -> int | None:
    """Microseconds of `1-02:03:04`, `02:03:04`, `03:04` or `4` (seconds); None: `UNLIMITED`, or another word."""
    found = _SPAN.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * SECOND


# -- JSON --------------------------------------------------------------------------------------------------------------


def decode(item: str) -> dict[str, Any] | None:
    """The object of a `--json` answer, or None."""
    try:
        found = msgspec.json.decode(item.encode())
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def has_errors(answer: Mapping[str, Any]) -> bool:
    """Whether a `--json` answer says that its source did not answer; the exit code is 0 even so."""
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
    elif whole := _number(job.get("het_job_id")):
        found["job"] = f"{whole}+{_number(job.get('het_job_offset')) or 0}"
    yield from _made(found, restarts=_number(job.get("restart_cnt")))


_JSON_TIMES: Final = (("submitted", "submit_time"), ("started", "start_time"), ("ended", "end_time"))


def _accounted(job: Mapping[str, Any]) -> Iterator[Row]:
    if job.get("partition") == "":
        return  # as in text
    state, when, array, het = (
        one if isinstance(one, dict) else {} for one in map(job.get, ("state", "time", "array", "het"))
    )
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
        "suspended": str(_number(when.get("suspended")) or ""),
        **{name: str(_number(when.get(key)) or "") for name, key in _ACCOUNTED_TIMES},
    }
    task, number = _number(array.get("task_id")), _number(array.get("job_id"))
    found["job"] = f"{number}_{task}" if number and task is not None else str(job["job_id"])
    if whole := _number(het.get("job_id")):
        found["job"] = f"{whole}+{_number(het.get('job_offset')) or 0}"
    yield from _made(found)


_ACCOUNTED_TIMES: Final = (("submitted", "submission"), ("started", "start"), ("ended", "end"))


def _word(given: object) -> str:
    """22.05 has a text; 23.11 and later have a list: the state, then flags."""
    words = [str(one).upper() for one in given] if isinstance(given, list) else [str(given or "").upper()]
    if "COMPLETING" in words and len(words) > 1:
        return "COMPLETING"
    return words[0] if words else ""


def _number(given: object) -> int | None:
    """A number as in 22.05, or as `{"set": true, "infinite": false, "number": 5}` of 23.11 and later."""
    if isinstance(given, dict):
        given = given.get("number") if given.get("set") else None
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _exit(given: object) -> str:
    """`status:signal`. A `return_code` of 0 means nothing: 22.05 gives it even after exit 1."""
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
