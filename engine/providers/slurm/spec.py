"""A job as it will be submitted: typed, complete, made from a task; and the parts of a task that
come from its caller: the variables that sbatch reads, and the current folder.
"""

import math
import os
import posixpath
import re
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from steno.engine.errors import ProviderRefused, ProviderUnreachable, TaskInvalid
from steno.engine.providers.slurm.cluster import UNTYPED
from steno.engine.providers.slurm.shell import Shell

_GPU: Final = re.compile(r"(?:([A-Za-z0-9][\w.+-]*)?:)?(\d+)|([A-Za-z0-9][\w.+-]*)", re.ASCII)
_CPUS: Final = re.compile(r"(\d*)(?:\..*)?", re.ASCII)
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?(?:\.\.)?", re.IGNORECASE)
_MIB: Final = {"K": 1 / 1024, "M": 1, "": 1024, "G": 1024, "T": 1024 * 1024}
_MINUTES: Final = re.compile(r"(?:(\d+)-)?(\d+):(\d{2})(?::(\d{2}))?")
_DAYS: Final = re.compile(r"(\d+)-(\d+)")  # D-HH, as sbatch takes it
_UNITS: Final = {"s": 1 / 60, "m": 1, "h": 60, "d": 1440, "w": 10080}
_WORD: Final = re.compile(r"[A-Za-z0-9_.@:+,\[\]%-]+")
_TERMS: Final = re.compile(r"[A-Za-z0-9_.:+,\[\]?&|*()!-]+")  # `afterok:1?afterany:2`, `(a100|h100)&nvlink*2`

MARK: Final = "steno:"  # start of the comment of a job of ours; its run id follows
SHORTEST_SEGMENT: Final = 2  # minutes; the last of them is for the checkpoint
MOST_SEGMENTS: Final = 20  # after the first, by default


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A job. Memory in MiB, time in minutes."""

    commands: tuple[str, ...]
    env: dict[str, str] = {}
    gpu: str | None = None  # the type (`A100`), or a slice (`a100_3g.20gb`); None: any
    gpus: int = 0  # of one node
    nodes: int = 1
    cpus: int | None = None
    memory: int | None = None  # of one node
    time: int | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    array: str | None = None
    dependency: str | None = None
    constraint: str | None = None
    workdir: str | None = None
    environment: str | None = None  # `<lock file, from the snapshot's top>@<hash>`; None: the machine's
    snapshot: str | None = None  # of its files: `<project>/<time>-<digest>`
    workers: int | None = None  # data workers that its command asks for
    checkpoint: bool = False  # SIGUSR1 shortly before the end of each segment (`time`), then a requeue
    total: int | None = None  # minutes of all segments; None: `resubmissions` limits them
    resubmissions: int = MOST_SEGMENTS  # the most segments after the first


def minutes(text: object, where: str) -> int:
    """`30m`, `2h`, `1-12:00:00`, `1-12`, `90` (minutes) → whole minutes, at least 1. Raises TaskInvalid."""
    given = str(text).strip().lower()
    clock = _MINUTES.fullmatch(given)
    if clock is not None:
        days, first, second, third = (int(part or 0) for part in clock.groups())
        if clock[4] is None and clock[1] is None:
            first, second, third = 0, first, second  # M:SS
        total = days * 1440 + first * 60 + second + math.ceil(third / 60)
    elif given.isdecimal():
        total = int(given)
    elif (parts := _DAYS.fullmatch(given)) is not None:
        total = int(parts[1]) * 1440 + int(parts[2]) * 60
    elif given[-1:] in _UNITS and given[:-1].replace(".", "", 1).isdecimal():
        total = math.ceil(float(given[:-1]) * _UNITS[given[-1]])
    else:
        raise TaskInvalid(f"{where}: {text!r} is not a time; write 30m, 2h, 1d or D-HH:MM:SS")
    if not 0 < total < 1 << 31:
        raise TaskInvalid(f"{where}: {text!r} must be at least a minute")
    return total


def mebibytes(text: object, where: str) -> int:
    """`32G`, `16GB`, `500M`, `64` (GB) → MiB. Raises TaskInvalid."""
    match = _SIZE.fullmatch(str(text).strip())
    size = 0.0 if match is None else float(match[1]) * _MIB[match[2].upper()]
    if not 1 <= size < 1 << 40:
        raise TaskInvalid(f"{where}: {text!r} is not a size; write 32G or 500M")
    return math.ceil(size)


def gpus(text: object, where: str) -> tuple[str | None, int]:
    """`a6000:2`, `a6000`, `2`, `gpu:2` → type, as it is spelled (None: any), and count. Raises TaskInvalid."""
    if isinstance(text, Mapping):
        text = f"{text.get('name') or ''}:{text.get('count') or 1}".lstrip(":")
    match = _GPU.fullmatch(str(text).strip())
    if match is None:
        raise TaskInvalid(f"{where}: {text!r} is not a GPU; write TYPE:COUNT, TYPE or COUNT, as a6000:2")
    kind = match[1] or match[3]
    return (None if kind == UNTYPED else kind), int(match[2] or 1)


def gres(kind: str | None, count: int) -> str:
    """A request for GPUs as Slurm takes it: `gpu:a6000:2`, `gpu:2` of any type, or of none."""
    return f"gpu:{count}" if kind in (None, UNTYPED) else f"gpu:{kind}:{count}"


def _cpus(value: object) -> int | None:
    """`4`, or the least of `4..8`; None: not given. Raises TaskInvalid."""
    match = _CPUS.fullmatch("" if value is None else str(value))
    if match is None:
        raise TaskInvalid(f"resources.cpu: {value!r} is not a number of CPUs; write 4")
    return None if value in (None, "") else int(match[1] or 1)


def _word(task: Mapping[str, object], field: str) -> str | None:
    value = task.get(field)
    if value in (None, ""):
        return None
    text = str(value)
    form = _TERMS if field in ("constraint", "dependency") else _WORD
    if not form.fullmatch(text) or text.startswith("-"):
        raise TaskInvalid(f"`{field}`: {text!r} cannot be the name of one")
    return text


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def spec_of(task: Mapping[str, object], *, partition: str | None = None, account: str | None = None) -> JobSpec:
    """The job of a task (from `complete_plain`). Raises TaskInvalid if a field is malformed."""
    resources = task.get("resources") or {}
    if not isinstance(resources, Mapping):
        raise TaskInvalid("`resources`: must be a mapping (`gpu:`, `cpu:`, `memory:`)")
    model, count = (None, 0) if resources.get("gpu") in (None, "") else gpus(resources["gpu"], "resources.gpu")
    memory, limit = resources.get("memory"), task.get("max_duration") or task.get("time")
    env, commands = task.get("env") or {}, task.get("commands") or ()
    assert isinstance(env, Mapping)  # noqa: S101 - `complete_plain` has made it so
    assert isinstance(commands, list | tuple)  # noqa: S101
    if not commands:
        raise TaskInvalid("commands is empty: there is nothing to run")
    nodes = task.get("nodes") or 1
    if not isinstance(nodes, int) or not 1 <= nodes <= 10_000:
        raise TaskInvalid(f"`nodes`: {nodes!r} must be a whole number from 1")
    segment = None if task.get("checkpoint") is None else minutes(task["checkpoint"], "checkpoint")
    if segment is not None and segment < SHORTEST_SEGMENT:
        raise TaskInvalid(
            f"`checkpoint`: a segment of {segment} min has no time for one; write {SHORTEST_SEGMENT}m or more"
        )
    time = None if limit in (None, "", "off") else minutes(limit, "max_duration")
    total = time if task.get("total_time") is None else minutes(task["total_time"], "total_time")
    again = task.get("resubmissions", MOST_SEGMENTS)
    if not isinstance(again, int) or not 0 <= again <= 10_000:
        raise TaskInvalid(f"`resubmissions`: {again!r} must be a whole number from 0")
    return JobSpec(
        commands=tuple(str(line) for line in commands),
        env={str(name): str(value) for name, value in env.items()},
        gpu=model,
        gpus=count,
        nodes=nodes,
        cpus=_cpus(resources.get("cpu")),
        memory=None if memory in (None, "") else mebibytes(memory, "resources.memory"),
        time=segment or time,
        partition=_word(task, "partition") or partition,
        account=_word(task, "account") or account,
        qos=_word(task, "qos"),
        array=_word(task, "array"),
        dependency=_word(task, "dependency"),
        constraint=_word(task, "constraint"),
        environment=None if task.get("environment") is None else str(task["environment"]),
        snapshot=None if task.get("snapshot") is None else str(task["snapshot"]),
        workers=_count(task.get("workers")),
        workdir=None if task.get("working_dir") is None else str(task["working_dir"]),
        checkpoint=segment is not None,
        total=None if segment is None else total,
        resubmissions=again,
    )


PREFIX: Final = "SBATCH_"
PLAIN: Final = {"ACCOUNT": "account", "PARTITION": "partition", "QOS": "qos", "CONSTRAINT": "constraint"}
_FIELDS: Final = {
    **PLAIN, "TIMELIMIT": "max_duration", "ARRAY_INX": "array", "GRES": "gpu", "GPUS_PER_NODE": "gpu", "GPUS": "gpu",
    "MEM_PER_NODE": "memory",
}  # fmt: skip
RESOURCES: Final = ("gpu", "memory")
_GPU_TRES: Final = re.compile(r"(?:gres[/:])?gpu(?::([^,]+))?")
_WITHOUT_LIMIT: Final = ("unlimited", "infinite", "0", "-1")


def with_variables(
    task: Mapping[str, object], environ: Mapping[str, str], fields: Collection[str] = tuple(_FIELDS.values())
) -> tuple[dict[str, object], str | None]:
    """The task with the values of `SBATCH_*` for those of its `fields` that it leaves open; and a line about them, if
    there are any. As for sbatch, the command line wins over the environment. Raises TaskInvalid for a bad time.
    """
    filled, taken, ignored = dict(task), [], []
    for variable, text in sorted(environ.items()):
        field = _FIELDS.get(variable.removeprefix(PREFIX), "")
        if not variable.startswith(PREFIX) or not text.strip():
            continue
        value = _value(variable, text.strip(), task) if field in fields else None
        if value is None:
            ignored.append(variable)
        elif field in RESOURCES:
            resources = filled.get("resources") or {}
            if isinstance(resources, Mapping) and resources.get(field) in (None, ""):
                filled["resources"] = {**resources, field: value}
                taken.append(f"{field}={value} from {variable}")
        elif filled.get(field) in (None, "") and not (field == "max_duration" and {"time", "checkpoint"} & set(filled)):
            filled[field] = value
            taken.append(f"{field}={value} from {variable}")
    parts = [", ".join(taken), f"ignored: {', '.join(ignored)}" if ignored else ""]
    return filled, "; ".join(filter(None, parts)) or None


def _value(variable: str, text: str, task: Mapping[str, object]) -> str | None:
    """The value of a variable in a task's words; None: no field has it."""
    match variable.removeprefix(PREFIX):
        case "TIMELIMIT":
            return "off" if text.lower() in _WITHOUT_LIMIT else f"{minutes(text, variable)}m"
        case "MEM_PER_NODE":
            return f"{text}M" if text.isdecimal() else text
        case "GRES":
            gres = _GPU_TRES.fullmatch(text)
            return None if gres is None else gres[1] or "1"
        case "GPUS":  # of all nodes
            return text if task.get("nodes") in (None, 1) else None
    return text


def in_folder(task: Mapping[str, object], client: Shell, folder: str) -> tuple[dict[str, object], str | None]:
    """The task with `folder`, where its user is, as its working folder if the cluster has it too; else a line on where
    it runs. Its own `working_dir` counts from there.
    """
    own = str(task.get("working_dir") or "")
    if own.startswith("/"):
        return dict(task), None
    if own.startswith("~/") or own == "~":
        return {**task, "working_dir": posixpath.join(client.home(), own[2:])}, None
    try:
        there, why = _has(client, folder), f"{client.where} has no folder {folder} of yours"
    except (ProviderRefused, ProviderUnreachable):  # its submission says so, or waits until the host answers
        there, why = False, f"{client.where} does not say whether it has {folder}"
    if there:
        return {**task, "working_dir": posixpath.normpath(posixpath.join(folder, own))}, None
    place = posixpath.join(client.site.folder, own)
    return dict(task), f"{why}: the job runs in {place}; `steno slurm run` sends files, `working_dir` names a folder"


def _has(client: Shell, folder: str) -> bool:
    if client.site.host is None:
        return os.path.isdir(folder)  # noqa: PTH112 - a path of the cluster
    return client.run(("test", "-d", folder, "-a", "-O", folder)).status == 0
