"""What a task's `resources` ask of a machine, as dstack writes them; anything unreadable asks for nothing.

Sizes are dstack's GB: 1024 MiB. The defaults are dstack's own (`core/models/resources.py`, 0.19.37 and 0.22.5).
"""

from typing import Final

import msgspec

VENDORS: Final = {"nvidia": "nvidia", "amd": "amd", "google": "google", "tpu": "google", "intel": "intel"}


class Range(msgspec.Struct, frozen=True):
    """Both ends belong to it; None: no limit on that side."""

    least: float | None = None
    most: float | None = None

    def holds(self, value: float) -> bool:
        """Whether the value lies in it."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def contains(self, other: "Range") -> bool:
        """Whether every value of the other range lies in it."""
        least = self.least is None or (other.least is not None and other.least >= self.least)
        return least and (self.most is None or (other.most is not None and other.most <= self.most))

    def __str__(self) -> str:
        if self.least == self.most and self.least is not None:
            return f"{self.least:g}"
        least = "" if self.least is None else f"{self.least:g}"
        return f"{least}.." if self.most is None else f"{least}..{self.most:g}"


ANY: Final = Range()


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The ranges a machine must lie in."""

    cpus: Range = Range(2)
    memory: Range = Range(8)
    """GB."""
    disk: Range = Range(100)
    """GB."""
    vendor: str | None = None
    gpus: tuple[str, ...] = ()
    """Models; empty: any."""
    gpu_count: Range = Range(0)
    gpu_memory: Range = ANY
    """GB of one GPU."""
    total_gpu_memory: Range = ANY
    """GB of all of them."""


def read_asked(resources: bytes) -> Asked:
    """What the JSON text of a task's `resources` asks for. Never raises."""
    try:
        given = msgspec.json.decode(resources)
    except msgspec.DecodeError:
        given = None
    if not isinstance(given, dict):
        return Asked()
    fields: dict[str, object] = {}
    if given.get("cpu") is not None:
        fields["cpus"] = _cpus(given["cpu"])
    if given.get("memory") is not None:
        fields["memory"] = read_range(given["memory"])
    if given.get("disk") is not None:
        disk = given["disk"]
        fields["disk"] = read_range(disk.get("size") if isinstance(disk, dict) and "size" in disk else disk)
    if given.get("gpu") is not None:
        fields |= _gpu(given["gpu"])
    return msgspec.structs.replace(Asked(), **fields)


def read_range(value: object) -> Range:
    """`2`, `"2.."`, `"8GB..16GB"`, `{"min": 8.0, "max": null}`; without limits where it cannot be read."""
    if isinstance(value, dict):
        return Range(_size(value.get("min")), _size(value.get("max")))
    if isinstance(value, str) and ".." in value:
        least, _, most = value.partition("..")
        return Range(_size(least), _size(most))
    size = _size(value)
    return Range(size, size)


def vendor_of(model: str) -> str:
    """Who makes GPUs of that model, as far as its name tells."""
    name = model.lower()
    if name.startswith(("mi", "rx", "radeon")):
        return "amd"
    if name.startswith("gaudi"):
        return "intel"
    if name[:1] == "v" and name[1:2].isdigit() and name != "v100":
        return "google"
    return "nvidia"


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
        return Asked().cpus
    if isinstance(value, str):
        counts = [part for part in value.split(":") if part[:1].isdigit() or part.startswith("..")]
        return read_range(counts[0]) if counts else Asked().cpus
    return read_range(value)


def _gpu(value: object) -> dict[str, object]:
    if isinstance(value, dict):
        fields: dict[str, object] = {"gpu_count": Range(1)}
        names = value.get("name")
        if names is not None:
            listed = names if isinstance(names, list) else [names]
            fields["gpus"] = tuple(name.removeprefix("tpu-") for name in listed if isinstance(name, str))
        for key, field in (("count", "gpu_count"), ("memory", "gpu_memory"), ("total_memory", "total_gpu_memory")):
            if value.get(key) is not None:
                fields[field] = read_range(value[key])
        fields["vendor"] = VENDORS.get(str(value.get("vendor")).lower())
        return fields
    if isinstance(value, str):
        return _gpu_words(value)
    return {"gpu_count": read_range(value)}


def _gpu_words(text: str) -> dict[str, object]:
    """dstack's short form: `amd:MI300X,MI210:80GB:2`, its parts in any order."""
    fields: dict[str, object] = {"gpu_count": Range(1)}
    for word in text.replace(" ", "").split(":"):
        if word.lower() in VENDORS:
            fields["vendor"] = VENDORS[word.lower()]
        elif word[:1].isalpha():
            fields["gpus"] = tuple(name for name in word.split(",") if name)
        elif any(letter.isalpha() for letter in word):
            fields["gpu_memory"] = read_range(word)
        elif word:
            fields["gpu_count"] = read_range(word)
    return fields
