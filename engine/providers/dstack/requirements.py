"""What a task asks of its machine: the parts of a dstack task configuration that decide where it may run, and for how
long.

Words and short forms as `dstack._internal.core.models.{profiles,resources,duration}` of 0.22.5 read them, and
`creation_policy: create`, which is ours. A value that cannot be read counts as not said.
"""

import re
from typing import Any, Final, Literal, cast, get_args

import msgspec

from engine.requirements import Range, Requirements
from events.clock import SECOND, UNITS

OFF: Final = -1
"""`idle_duration: off`."""

_DURATION: Final = re.compile(r"^(\d{1,12}) *([smhdw])$")
_SECONDS: Final = re.compile(r"^-?\d{1,12}$")
_LONGEST: Final = 100 * 365 * 86_400
"""Seconds; a longer time is as good as none."""
VENDORS: Final = {"nvidia": "nvidia", "amd": "amd", "google": "google", "tpu": "google", "intel": "intel"}
_OTHER_VENDORS: Final = ("tenstorrent", "tt")
_Spot = Literal["spot", "on-demand", "auto"]
_Creation = Literal["create", "reuse", "reuse-or-create"]
_MICRO: Final = 1_000_000
_MOST: Final = 1_000_000_000


def read_terms(configuration: bytes, submitter: str, fallback: tuple[str, ...] = ()) -> Requirements:
    """The terms of a task; never raises.

    `configuration` is its JSON text, `fallback` the GPU models to ask for after the task's own.
    """
    task = _object(configuration)
    resources = task.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    spot, creation = task.get("spot_policy"), task.get("creation_policy")
    nodes = _count(task.get("nodes"))
    fields = _ranges(resources) | _gpu(resources.get("gpu"))
    count, counts = fields["gpu_count"], fields["gpu_counts"]
    if count and not (counts.least or 0) >= count:
        fields["gpu_counts"] = Range(count, counts.most)
    return Requirements(
        submitter=submitter,
        nodes=1 if nodes is None else max(1, nodes),
        backends=_texts(task.get("backends")),
        regions=_texts(task.get("regions")),
        instance_types=_texts(task.get("instance_types")),
        fleets=tuple(name for name in map(_fleet, _list(task.get("fleets"))) if name),
        spot=cast(_Spot, spot) if spot in get_args(_Spot) else None,
        creation=cast(_Creation, creation) if creation in get_args(_Creation) else "reuse-or-create",
        idle=idle_of(task.get("idle_duration")),
        max_duration=_limit(task.get("max_duration")),
        max_price=_price(task.get("max_price")),
        fallback=fallback,
        **fields,
    )


def idle_of(value: object) -> int | None:
    """An `idle_duration` in microseconds: "5m", 300, "0s" → 0; "off", false and below zero → `OFF`; None: not said."""
    if value is False or value == "off":
        return OFF
    seconds = _seconds(value)
    if seconds is None:
        return None
    return OFF if seconds < 0 else seconds * SECOND


def _gpu(value: object) -> dict[str, Any]:
    """What a `resources.gpu` asks for, as fields: `MI300X:2`, `A100,H100:80GB:1..4`, `2`, `{"name": ["MI300X"]}`."""
    if isinstance(value, dict):
        names = value.get("name")
        vendor = VENDORS.get(str(value.get("vendor")).lower())
        found: dict[str, Any] = {"gpu_count": _least(value.get("count"), 1), "gpu_counts": Range(1)}
        found |= {"gpu": _names(names) if isinstance(names, str) else _texts(names), "gpu_vendor": vendor}
        for key, field in (("count", "gpu_counts"), ("memory", "gpu_memory"), ("total_memory", "total_gpu_memory")):
            if value.get(key) is not None:
                found[field] = read_range(value[key])
        return found
    if not isinstance(value, str):
        count = _least(value, 0) if isinstance(value, int) else 0
        return {"gpu_count": count, "gpu_counts": Range(0) if value is None else read_range(value)}
    found = {"gpu_count": int(bool(value.strip())), "gpu_counts": Range(1)}
    # dstack's short form: `amd:MI300X,MI210:80GB:2`, its parts in any order
    for word in value.replace(" ", "").split(":"):
        if word.lower() in VENDORS:
            found["gpu_vendor"] = VENDORS[word.lower()]
        elif not word or word.lower() in _OTHER_VENDORS:
            continue
        elif word[0].isalpha():
            found["gpu"] = _names(word)
        elif any(letter.isalpha() for letter in word):
            found["gpu_memory"] = read_range(word)
        else:
            found |= {"gpu_count": _least(word, 1), "gpu_counts": read_range(word)}
    return found


def _names(names: str) -> tuple[str, ...]:
    return tuple(name.strip().removeprefix("tpu-") for name in names.split(",") if name.strip())


def _least(count: object, default: int) -> int:
    """The least a count allows: `2`, `"1..4"`, `"..2"`, `{"min": 1}`."""
    if isinstance(count, dict):
        count = count.get("min")
        return 0 if count is None else _least(count, default)
    if isinstance(count, str):
        low, dots, _ = count.partition("..")
        return 0 if dots and not low else _least(_count(low), default)
    return min(count, _MOST) if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else default


def _count(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return min(value, _MOST)
    return int(value) if isinstance(value, str) and _SECONDS.match(value) else None


def _seconds(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return None if value != value else int(max(-1, min(value, _LONGEST)))  # noqa: PLR0124 - no number equals itself not
    if not isinstance(value, str):
        return None
    if _SECONDS.match(value):
        return max(-1, min(int(value), _LONGEST))
    found = _DURATION.match(value)
    return None if found is None else min(int(found[1]) * UNITS[found[2]], _LONGEST)


def _limit(value: object) -> int | None:
    seconds = _seconds(value)
    return None if seconds is None or seconds < 0 else seconds * SECOND


def _price(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MICRO:
        return None
    return round(value * _MICRO)


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
    return tuple(one for one in _list(value) if isinstance(one, str) and one)


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


# -- ranges ----------------------------------------------------------------------------------------------------------

_DEFAULTS: Final = {"cpus": Range(2), "memory": Range(8), "disk": Range(100)}


def _ranges(given: dict[str, Any]) -> dict[str, Any]:
    """The ranges that `resources` asks for, with dstack's defaults (`core/models/resources.py`)."""
    fields: dict[str, Any] = dict(_DEFAULTS)
    if given.get("cpu") is not None:
        fields["cpus"] = _cpus(given["cpu"])
    if given.get("memory") is not None:
        fields["memory"] = read_range(given["memory"])
    if given.get("disk") is not None:
        disk = given["disk"]
        fields["disk"] = read_range(disk.get("size") if isinstance(disk, dict) and "size" in disk else disk)
    return fields


def read_range(value: object) -> Range:
    """`2`, `"2.."`, `"8GB..16GB"`, `{"min": 8.0, "max": null}`; without limits where it cannot be read."""
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
        return _DEFAULTS["cpus"]
    if isinstance(value, str):
        counts = [part for part in value.split(":") if part[:1].isdigit() or part.startswith("..")]
        return read_range(counts[0]) if counts else _DEFAULTS["cpus"]
    return read_range(value)
