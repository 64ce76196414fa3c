"""What a job found on its machine, against what its strategy asked for. Pure."""

import re
from typing import Final

import msgspec

from engine.providers.slurm.cluster import slice_of
from events.clock import SECOND

_NUMBERED: Final = re.compile(r"[a-z]+\d+")
"""A GPU type that is a model: `a6000`, `v100`; another may be any name of the site."""
_CLOSE: Final = 0.2  # a card of 80 GB says 81,559 MiB


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `reports/<job>`: the machine, or (`phase`) the start of a step of the script."""

    at: int = 0  # seconds since the epoch
    phase: str | None = None
    node: str = ""
    asked: str = ""  # `a6000:4`, `:2` of any type, `:0` none
    slices: str = ""  # `MIG 1g.10gb MIG 1g.10gb`
    gpus: str = ""  # `NVIDIA RTX A6000, 49140;NVIDIA RTX A6000, 49140` in MiB; empty: unknown


_line = msgspec.json.Decoder(NodeReport)


def read(text: str) -> tuple[str, NodeReport] | None:
    """(job, report) of `<folder>/reports/<job>:<JSON>`; None for another line."""
    path, _, line = text.partition(":{")
    try:
        return path.rpartition("/")[2], _line.decode("{" + line)
    except (msgspec.DecodeError, RecursionError):
        return None


def mismatch(report: NodeReport) -> str | None:
    """How the GPUs found differ from those asked for (as in: V100 asked, A6000 got)."""
    kind, _, count = report.asked.rpartition(":")
    found = [one.strip() for one in report.gpus.split(";") if one.strip()]
    slices = re.findall(r"MIG \S+", report.slices)
    if not found or not count.isdecimal() or count == "0":
        return None
    part = slice_of(kind)
    if part is not None and slices:
        names = slices
        same = all(slice_of(name.removeprefix("MIG ")) == ("", part[1]) for name in names)
    else:
        names = [one.rpartition(",")[0] for one in found]
        same = part is not None or all(
            _is(kind, name, one.rpartition(",")[2]) for name, one in zip(names, found, strict=True)
        )
    if same and len(names) >= int(count):
        return None
    return f"asked for {kind or 'GPU'} × {count}, got {', '.join(dict.fromkeys(names))} × {len(names)} on {report.node}"


def _is(kind: str, model: str, memory: str) -> bool:
    """Whether a GPU is of a type: `a100_80` is an A100 with about 80 GB."""
    name, _, size = kind.lower().replace("-", "_").partition("_")
    if not _NUMBERED.fullmatch(name):
        return True
    if re.sub("[^a-z0-9.]", "", name) not in re.sub("[^a-z0-9.]", "", model.lower()):
        return False
    number, given = size.removesuffix("gb"), memory.strip()
    if not number.isdecimal() or not given.isdecimal():
        return True
    return abs(int(given) / 1024 / int(number) - 1) <= _CLOSE


def moment(report: NodeReport) -> int:
    """Microseconds, UTC."""
    return report.at * SECOND
