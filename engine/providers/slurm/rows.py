"""Answers of squeue, sacct and scontrol as rows: text by its own format, or JSON of 22.05 to 25.x. Pure."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from steno.engine.providers.slurm.jobs import DEVICES, job_pairs
from steno.engine.providers.slurm.query import ENDS, FREE_TEXT, Question, question_of
from steno.engine.providers.slurm.spec import MARK
from steno.engine.providers.slurm.words import duration, state_word, value_of
from steno.events.clock import SECOND

MOST_TASKS: Final = 100_000  # of one array, told apart; MaxArraySize is at most 4 million, usually 1,001


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A job, or an attempt at it, as one source shows it. Times are microseconds, UTC."""

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
    tres: str | None = None  # its resources: `billing=101,cpu=1,gres/gpu:a6000=1,mem=500M,node=1`
    restarts: int | None = None
    suspended: int | None = None  # how long it was suspended so far, microseconds
    limit: int | None = None  # its time limit, microseconds; None: none, or not said
    uid: str | None = None  # its owner
    by: str | None = None  # the id of the user who cancelled it, in accounting's text; "": it names none
    cut: bool = False  # its array has tasks that the answer does not list


_SCONTROL: Final = {
    "JobState": "state", "Reason": "reason", "Partition": "partition", "Comment": "comment", "ExitCode": "exit_code",
    "DerivedExitCode": "derived", "SubmitTime": "submitted", "StartTime": "started", "EndTime": "ended",
    "NodeList": "nodes", "TRES": "tres", "AllocTRES": "tres", "JobName": "name", "TimeLimit": "limit",
}  # fmt: skip
_GPUS: Final = re.compile(r"(?:^|,)gres[:/]gpu(:(?!\d+(?:,|$))[^:=,]+)?(?:[:=](\d+))?(?:,|$)")
_TIMES: Final = frozenset({"submitted", "started", "ended"})
_SPANS: Final = frozenset({"suspended", "limit"})
NONE: Final = "No jobs"  # start of an answer of `scontrol show job` without jobs
_CACHED_ROWS: Final = 4096  # then those that were not read since as many others are evicted
_UNREADABLE: Final = "a line without the requested columns"


def rows(question: Question, item: str) -> Iterator[Row]:
    """The rows of one item of an answer: a line, or all of a JSON answer. Raises ValueError if it is unreadable."""
    if question.json:
        yield from _json_rows(question, item)
    elif question.tool == "scontrol":
        mine = question.environment.get("STENO_USER")
        yield from (row for row in _scontrol_rows(item) if mine is None or row.user == mine)
    elif question.tool == ENDS:
        yield from _written(item)
    elif question.columns:
        yield from _text_rows(question, item)


def readable_rows(question: Question, text: str) -> list[Row]:
    """The rows of all lines of an answer; none of an unreadable line."""
    listed: list[Row] = []
    for line in text.splitlines():
        with suppress(ValueError):
            listed += rows(question, line)
    return listed


class RowCache:
    """The rows of the lines of recent answers. Counts rows, not lines: a line of an array can have thousands."""

    def __init__(self) -> None:
        self._recent: dict[tuple[bytes, str], tuple[Row, ...]] = {}
        self._older = self._recent
        self._count = 0

    def get(self, req: bytes, line: str) -> tuple[Row, ...]:
        """As `rows`, of the question that the request `req` asks."""
        key = req, line
        known = self._recent.get(key)
        if known is None:
            known = self._older.get(key)
            if known is None:
                known = tuple(rows(question_of(req), line))
            if self._count > _CACHED_ROWS:
                self._recent, self._older, self._count = {}, self._recent, 0
            self._recent[key] = known
            self._count += max(1, len(known))
        return known


def is_silent(text: str) -> bool:
    """True if an answer lists nothing: only warnings of a site's wrapper."""
    return all(not line.strip() or "warning" in line.lower() for line in text.splitlines())


def is_row(question: Question, line: str) -> bool:
    """True if a line belongs to the answer, even as its header or a step."""
    if question.tool == "scontrol":
        return line.startswith("JobId=")
    return line.count(question.separator) >= len(question.columns) - 1


def _text_rows(question: Question, line: str) -> Iterator[Row]:
    values = _cells(question, line)
    if len(values) != len(question.columns):
        if question.separator not in line.strip():
            return  # a notice before the answer, or the second line of a name
        raise ValueError(_UNREADABLE)
    cells: dict[str, str] = {}
    for name, value in zip(question.columns, values, strict=True):
        if name and value is not None:
            cells.setdefault(name, value.strip())
    if cells.get("job", "").upper() in ("JOBID", ""):
        return  # the header
    if "." in cells["job"].partition("_[")[0] or "state" not in question.columns:
        return  # a step
    if "state" not in cells:
        raise ValueError(_UNREADABLE)
    if question.tool == "sacct" and cells.get("partition") == "":
        return  # accounting has half of it only, in which a task of an array has the id of the whole
    if question.tool == "sacct" and value_of(cells.get("nodes")):
        cells.pop("reason", None)  # accounting keeps why it waited, also once it has run
    yield from _made(cells)


def _cells(question: Question, line: str) -> list[str | None]:
    """The values of the columns, if there are as many. A separator too much belongs to the columns of free text, and
    one too few to the last of them: a line break cut it off. None: the value of that column cannot be told apart.
    """
    values, columns = line.split(question.separator), question.columns
    if question.closed and values[-1] == "":
        values.pop()
    free = [at for at, name in enumerate(columns) if name in FREE_TEXT]
    more = len(values) - len(columns)
    if not free or more == 0 or (more < 0 and (free[-1] + 1 < len(columns) or len(values) <= free[0])):
        return [*values]
    first, last = free[0], free[-1] + 1
    key = values[columns.index("job")] if "job" in columns[:first] else None
    between = _free(columns[first:last], values[first : last + more], question.separator, key)
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
        plain = value_of(comment) is None or comment.startswith(MARK)
        at = 1 if plain == (names[0] == "comment") else len(parts) - 1
        return [separator.join(parts[:at]), separator.join(parts[at:])]
    return [None] * len(names)


def _scontrol_rows(line: str) -> Iterator[Row]:
    pairs = job_pairs(line)
    if pairs is None:
        return  # `No jobs in the system`, a notice, or the second line of a job's name
    cells = {ours: pairs[theirs] for theirs, ours in _SCONTROL.items() if theirs in pairs}
    cells["user"] = pairs.get("UserId", "").partition("(")[0]
    cells["job"] = pairs["JobId"]
    if "tres" in cells and "gres/gpu" not in cells["tres"]:
        cells["tres"] += _devices(pairs)  # without accounting, GPUs are not counted as a resource
    if "ArrayTaskId" in pairs and "ArrayJobId" in pairs:
        tasks = pairs["ArrayTaskId"]
        cells["job"] = f"{pairs['ArrayJobId']}_{tasks if tasks.isdecimal() else f'[{tasks}]'}"
    elif "HetJobId" in pairs:
        cells["job"] = f"{pairs['HetJobId']}+{pairs['HetJobOffset']}"
    yield from _made(cells, restarts=int(pairs["Restarts"]) if pairs.get("Restarts", "").isdecimal() else None)


def _devices(pairs: Mapping[str, str]) -> str:
    """The GPUs that a job asks for, as accounting counts them: `gres:gpu:a6000:2` on 2 nodes → `,gres/gpu:a6000=4`."""
    for key, times in DEVICES.items():
        gpus = _GPUS.search(pairs.get(key, ""))
        if gpus is not None:
            many = pairs.get(times or "", "")
            number = int(gpus[2] or 1) * (int(many) if many.isdecimal() else 1)
            return f",gres/gpu{gpus[1] or ''}={number}"
    return ""


def _written(line: str) -> Iterator[Row]:
    """`/home/u/steno/ends/12:1 1795182548 RUN NAME`: what a job script wrote of its end, and when.

    The exit status is `-` while it runs; a fifth word is Slurm's own for an end by Slurm (`TIMEOUT`).
    """
    path, _, words = line.rpartition(":")
    status, at, run, name, state, *_ = [*words.split(" "), *([""] * 5)]
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


def _made(cells: dict[str, str], restarts: int | None = None) -> Iterator[Row]:
    values: dict[str, Any] = {
        name: time(value) if name in _TIMES else duration(value) if name in _SPANS else value_of(value)
        for name, value in cells.items()
        if name not in ("job", "state", "id", "array", "task", "text")
    }
    state, (_, _, by) = state_word(cells["state"]), cells["state"].partition(" by ")
    if state == "CANCELLED":
        values["by"] = by if by or cells["state"] == state else None
    at_once = values.get("submitted") is not None and values.get("submitted") == values.get("started")
    if state == "FAILED" and at_once and "nodes" in cells and values["nodes"] is None:
        return  # `sbatch` was refused: some refusals leave such a job
    jobs, cut = expand(cells["job"])
    if cut and not jobs:
        raise ValueError("a list of tasks that was cut before its first task")
    for job in jobs:
        yield Row(job=job, state=state, restarts=restarts, cut=cut, **values)


def expand(job: str) -> tuple[list[str], bool]:
    """`12_[0-2,7%4]` → `12_0, 12_1, 12_2, 12_7`: the waiting tasks of an array, which are one line; and whether the
    list was cut by the width of a column. Of such a list only a number before a comma or a hyphen is whole.
    """
    array, opened, tasks = job.partition("_[")
    if not opened:
        return [job], False
    jobs: list[str] = []
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
        jobs += [f"{array}_{number}" for number in numbers[: MOST_TASKS - len(jobs)]]
    return jobs, cut


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


def decode(item: str) -> dict[str, Any] | None:
    """The object of a `--json` answer, or None."""
    try:
        answer = msgspec.json.decode(item.encode())
    except (msgspec.DecodeError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _json_rows(question: Question, item: str) -> Iterator[Row]:
    answer = decode(item)
    if answer is None or not isinstance(answer.get("jobs"), list):
        raise ValueError("no JSON object with `jobs`")
    for job in answer["jobs"]:
        if isinstance(job, dict) and job.get("job_id") is not None:
            yield from _accounted(job) if question.tool == "sacct" else _listed(job)


def _listed(job: Mapping[str, Any]) -> Iterator[Row]:
    cells = {
        "state": _word(job.get("job_state")),
        "comment": str(job.get("comment") or ""),
        **_texts(job, reason="state_reason", user="user_name", tres="tres_alloc_str"),
        **_numbers(job, submitted="submit_time", started="start_time", ended="end_time"),
    }
    array, task = _number(job.get("array_job_id")), _number(job.get("array_task_id"))
    tasks = job.get("array_task_string")
    cells["job"] = str(job["job_id"])
    if array and task is not None:
        cells["job"] = f"{array}_{task}"
    elif array and tasks:
        cells["job"] = f"{array}_[{tasks}]"
    elif whole := _number(job.get("het_job_id")):
        cells["job"] = f"{whole}+{_number(job.get('het_job_offset')) or 0}"
    yield from _made(cells, restarts=_number(job.get("restart_cnt")))


def _accounted(job: Mapping[str, Any]) -> Iterator[Row]:
    if job.get("partition") == "":
        return  # as in text
    state, when, array, het, tres, comment = (
        _object(job.get(name)) for name in ("state", "time", "array", "het", "tres", "comment")
    )
    cells = {
        "state": _word(state.get("current")),
        "reason": "" if value_of(str(job.get("nodes") or "")) else str(state.get("reason") or ""),
        "comment": str((comment.get("job") if isinstance(job.get("comment"), dict) else job.get("comment")) or ""),
        "tres": ",".join(_resource(part) for part in tres.get("allocated") or () if isinstance(part, dict)),
        "exit_code": _exit(job.get("exit_code")),
        "derived": _exit(job.get("derived_exit_code")),
        **_texts(job, user="user"),
        **_numbers(when, suspended="suspended", submitted="submission", started="start", ended="end"),
    }
    task, number = _number(array.get("task_id")), _number(array.get("job_id"))
    cells["job"] = f"{number}_{task}" if number and task is not None else str(job["job_id"])
    if whole := _number(het.get("job_id")):
        cells["job"] = f"{whole}+{_number(het.get('job_offset')) or 0}"
    yield from _made(cells)


def _texts(job: Mapping[str, Any], **keys: str) -> dict[str, str]:
    names = {"name": "name", "partition": "partition", "nodes": "nodes", **keys}
    return {name: str(job.get(key) or "") for name, key in names.items()}


def _numbers(times: Mapping[str, Any], **keys: str) -> dict[str, str]:
    return {name: str(_number(times.get(key)) or "") for name, key in keys.items()}


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _word(state: object) -> str:
    """22.05 has a text; 23.11 and later have a list: the state, then flags."""
    words = [str(word).upper() for word in state] if isinstance(state, list) else [str(state or "").upper()]
    if "COMPLETING" in words and len(words) > 1:
        return "COMPLETING"
    return words[0] if words else ""


def _number(value: object) -> int | None:
    """A number as in 22.05, or as `{"set": true, "infinite": false, "number": 5}` of 23.11 and later."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _exit(value: object) -> str:
    """`status:signal`. A `return_code` of 0 means nothing: 22.05 gives it even after exit 1."""
    code = _object(value)
    status, signal = _number(code.get("return_code")), _object(code.get("signal"))
    number = _number(signal.get("id" if "id" in signal else "signal_id"))
    return f"{status or 0}:{number or 0}" if status or number else ""


def _resource(part: Mapping[str, Any]) -> str:
    name = f"/{part['name']}" if part.get("name") else ""
    return f"{part.get('type', '')}{name}={_number(part.get('count')) or 0}"
