"""The requirements of a task: the parts of a dstack configuration that decide where it runs, and how long.

It reads words and short forms as `dstack._internal.core.models.{profiles,resources,duration}` of 0.22.5, and our
`creation_policy: create`. An unreadable value counts as absent.
"""

import hashlib
import re
from typing import Annotated, Any, Final, Literal

import msgspec

from steno.engine.providers.dstack.lenient import at, mapping
from steno.engine.state.policy import OFF
from steno.engine.state.run import ANY, Range, Requirements
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND, UNITS

_DURATION: Final = re.compile(r"^(\d{1,12}) *([smhdw])$")
_SECONDS: Final = re.compile(r"^-?\d{1,12}$")
_LONGEST: Final = 100 * 365 * 86_400  # seconds; a longer time counts as no limit
VENDORS: Final = {"nvidia": "nvidia", "amd": "amd", "google": "google", "tpu": "google", "intel": "intel"}
_OTHER_VENDORS: Final = ("tenstorrent", "tt")
_Spot = Literal["spot", "on-demand", "auto"]
_Creation = Literal["create", "reuse", "reuse-or-create"]
_Price = Annotated[float, msgspec.Meta(gt=0, lt=1_000_000)]
_MOST: Final = 1_000_000_000
_LEAST: Final = {"cpus": Range(2), "memory": Range(8), "disk": Range(100)}
"""dstack's defaults (`core/models/resources.py`)."""
_NOT_PLANNED: Final = frozenset(
    (
        *("name", "commands", "entrypoint", "env", "ports", "files", "repos", "working_dir", "registry_auth", "tags"),
        *("max_duration", "stop_duration", "idle_duration", "utilization_policy", "schedule", "retry", "priority"),
        "stop_criteria",
    )
)
"""Fields that decide about no offer. A field that is not named here counts: at worst the same is asked twice."""


def read_terms(configuration: bytes, submitter: str, fallback: tuple[str, ...] = ()) -> Requirements:
    """The terms of a task as JSON text; never raises. `fallback`: GPU models to ask for after the task's own."""
    task = mapping(configuration)
    resources = task.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    fields = _ranges(resources) | _gpu(resources.get("gpu"))
    limit, price = idle_of(task.get("max_duration")), _fitting(task.get("max_price"), _Price, strict=False)
    return Requirements(
        submitter=submitter,
        gpu_count=int(max(0, min(fields["gpu_counts"].least or 0, _MOST))),
        nodes=max(1, min(_fitting(task.get("nodes"), int, strict=False) or 1, _MOST)),
        backends=_texts(task.get("backends")),
        regions=_texts(task.get("regions")),
        instance_types=_texts(task.get("instance_types")),
        fleets=tuple(name for name in map(_fleet, _list(task.get("fleets"))) if name),
        spot=_fitting(task.get("spot_policy"), _Spot),
        creation=_fitting(task.get("creation_policy"), _Creation) or "reuse-or-create",
        retry=task.get("retry") not in (None, False),
        idle=idle_of(task.get("idle_duration")),
        max_duration=None if limit == OFF else limit,
        max_price=None if price is None else round(price * DOLLAR),
        fallback=fallback,
        plan=_plan_of(task),
        crons=_texts(at(task, "schedule", "cron")),
        labels=_labels(task.get("tags")),
        **fields,
    )


def _labels(tags: object) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in tags.items()) if isinstance(tags, dict) else ()


def _plan_of(task: dict[str, Any]) -> str:
    planned = {key: value for key, value in task.items() if key not in _NOT_PLANNED}
    return hashlib.sha256(msgspec.json.encode(planned, order="deterministic")).hexdigest()[:16]


def _fitting(value: object, kind: Any, *, strict: bool = True) -> Any:
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError:
        return None


def idle_of(value: object) -> int | None:
    """An `idle_duration` in microseconds: "5m", 300, "0s" → 0; "off", false and negative → `OFF`; None: unset."""
    if value is False or value == "off":
        return OFF
    seconds = _seconds(value)
    if seconds is None:
        return None
    return OFF if seconds < 0 else seconds * SECOND


def _gpu(value: object) -> dict[str, Any]:
    """A `resources.gpu` as fields: `MI300X:2`, `A100,H100:80GB:1..4`, `2`, `{"name": ["MI300X"]}`."""
    if isinstance(value, dict):
        fields: dict[str, Any] = {"gpu_counts": Range(1) if value.get("count") is None else _counts(value["count"])}
        fields["gpu"] = _texts(value.get("name"))
        fields["gpu_vendor"] = VENDORS.get(str(value.get("vendor")).lower())
        for key, field in (("memory", "gpu_memory"), ("total_memory", "total_gpu_memory")):
            if value.get(key) is not None:
                fields[field] = read_range(value[key])
        return fields
    if not isinstance(value, str):
        return {"gpu_counts": Range(0) if value is None else read_range(value)}
    fields = {"gpu_counts": Range(int(bool(value.strip())))}
    # dstack's short form, in any order: `amd:MI300X,MI210:80GB:2`
    for word in value.replace(" ", "").split(":"):
        if word.lower() in VENDORS:
            fields["gpu_vendor"] = VENDORS[word.lower()]
        elif not word or word.lower() in _OTHER_VENDORS:
            continue
        elif word[0].isalpha():
            fields["gpu"] = _names(word)
        elif any(letter.isalpha() for letter in word):
            fields["gpu_memory"] = read_range(word)
        else:
            fields["gpu_counts"] = _counts(word)
    return fields


def _names(names: str) -> tuple[str, ...]:
    return tuple(name.strip().removeprefix("tpu-") for name in names.split(",") if name.strip())


def _counts(count: object) -> Range:
    """`2`, `"1..4"`, `"..2"`, `{"min": 1}`; at least one if unreadable."""
    counts = read_range(count)
    return Range(1) if counts == ANY and not isinstance(count, dict) else counts


def _seconds(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return None if value != value else int(max(-1, min(value, _LONGEST)))  # noqa: PLR0124 - no number equals itself not
    if not isinstance(value, str):
        return None
    if _SECONDS.match(value):
        return max(-1, min(int(value), _LONGEST))
    match = _DURATION.match(value)
    return None if match is None else min(int(match[1]) * UNITS[match[2]], _LONGEST)


def _fleet(value: object) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return ""
    project = value.get("project")
    return f"{project}/{value['name']}" if isinstance(project, str) and project else str(value["name"])


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text for text in _list(value) if isinstance(text, str) and text)


def _ranges(given: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = dict(_LEAST)
    if given.get("cpu") is not None:
        fields["cpus"] = _cpus(given["cpu"])
    if given.get("memory") is not None:
        fields["memory"] = read_range(given["memory"])
    if given.get("disk") is not None:
        disk = given["disk"]
        fields["disk"] = read_range(disk.get("size") if isinstance(disk, dict) and "size" in disk else disk)
    return fields


def read_range(value: object) -> Range:
    """`2`, `"2.."`, `"8GB..16GB"`, `{"min": 8.0, "max": null}`; no limits if unreadable."""
    if isinstance(value, dict):
        return Range(_size(value.get("min")), _size(value.get("max")))
    if isinstance(value, str) and ".." in value:
        least, _, most = value.partition("..")
        return Range(_size(least), _size(most))
    size = _size(value)
    return Range(size, size)


def _size(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str):
        return None
    text = value.replace(" ", "").lower()
    unit = {"tb": 1024.0, "gb": 1.0, "mb": 1 / 1024}.get(text[-2:])
    try:
        return float(text) if unit is None else float(text[:-2]) * unit
    except ValueError:
        return None


def _cpus(value: object) -> Range:
    if isinstance(value, dict) and "count" in value:
        value = value["count"]
    if isinstance(value, dict) and "arch" in value:
        return _LEAST["cpus"]
    if isinstance(value, str):
        counts = [part for part in value.split(":") if part[:1].isdigit() or part.startswith("..")]
        return read_range(counts[0]) if counts else _LEAST["cpus"]
    return read_range(value)
