"""A job as it will be submitted: typed, complete, made from a task. Pure."""

import math
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from engine.errors import TaskInvalid
from engine.providers.slurm.cluster import UNTYPED

_GPU: Final = re.compile(r"(?:([A-Za-z0-9][\w.+-]*)?:)?(\d+)|([A-Za-z0-9][\w.+-]*)", re.ASCII)
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
    """One job. Memory in MiB, time in minutes."""

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
    requeue: bool | None = None
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
    found = _SIZE.fullmatch(str(text).strip())
    size = 0.0 if found is None else float(found[1]) * _MIB[found[2].upper()]
    if not 1 <= size < 1 << 40:
        raise TaskInvalid(f"{where}: {text!r} is not a size; write 32G or 500M")
    return math.ceil(size)


def gpus(text: object, where: str) -> tuple[str | None, int]:
    """`a6000:2`, `a6000`, `2`, `gpu:2` → type, as it is spelled (None: any), and count. Raises TaskInvalid."""
    if isinstance(text, Mapping):
        text = f"{text.get('name') or ''}:{text.get('count') or 1}".lstrip(":")
    found = _GPU.fullmatch(str(text).strip())
    if found is None:
        raise TaskInvalid(f"{where}: {text!r} is no GPU; write TYPE:COUNT, TYPE or COUNT, as a6000:2")
    kind = found[1] or found[3]
    return (None if kind == UNTYPED else kind), int(found[2] or 1)


def gres(kind: str | None, count: int) -> str:
    """A request for GPUs as Slurm takes it: `gpu:a6000:2`, `gpu:2` of any type, or of none."""
    return f"gpu:{count}" if kind in (None, UNTYPED) else f"gpu:{kind}:{count}"


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
    cpu, memory, limit = resources.get("cpu"), resources.get("memory"), task.get("max_duration") or task.get("time")
    env, commands = task.get("env") or {}, task.get("commands") or ()
    assert isinstance(env, Mapping)  # noqa: S101 - `complete_plain` has made it so
    assert isinstance(commands, list | tuple)  # noqa: S101
    if not commands:
        raise TaskInvalid("commands is empty: there is nothing to run")
    cpus = None if cpu in (None, "") else int(str(cpu).partition(".")[0] or 1)
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
        cpus=cpus,
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
