"""The machine that a job has while it runs: nodes, GPUs and price; and what the job reports of it. Pure.

The price comes from the site's table of service units, which is in the question (`STENO_RATES=…`), so that a record
replays without settings: `{"a6000": 100, "cpu": 1, "usd": 1.0}`, service units an hour of each, and dollars of a unit.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from steno.engine.providers.slurm.cluster import slice_of
from steno.engine.providers.slurm.query import Question
from steno.engine.providers.slurm.rows import Row
from steno.engine.providers.slurm.words import REQUEUED, cause
from steno.engine.state.facts import VmFacts
from steno.engine.state.policy import UNNAMED_GPU, list_price, unrated
from steno.engine.state.reading import Scope
from steno.engine.state.states import VmReason, VmState
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND

_GPUS: Final = "gres/gpu"
_NUMBERED: Final = re.compile(r"[a-z]+\d+")
"""A GPU type that is a model: `a6000`, `v100`; another may be any name of the site."""
_CLOSE: Final = 0.2  # nvidia-smi shows 81,559 MiB for a GPU of 80 GB


def hostname(row: Row) -> str | None:
    """Nodes are shared, so the link of an attempt to its machine is node and job."""
    return None if row.nodes is None else f"{row.nodes}#{row.job}"


def _resources(row: Row) -> dict[str, str]:
    return dict(part.split("=", 1) for part in (row.tres or "").split(",") if "=" in part)


def price_in(row: Row, question: Question) -> tuple[int | None, str | None]:
    """As `price_of`; (None, None) before it has anything."""
    return price_of(_resources(row), question.environment.get("STENO_RATES")) if row.tres else (None, None)


def allocation(row: Row, question: Question, scope: Scope) -> VmFacts | None:
    if row.started is None or row.nodes is None or row.tres is None or row.state == "PENDING":
        return None
    over = cause(row.state, row.derived) is not None
    tres = _resources(row)
    models = [name.rpartition(":")[2] for name in tres if name.startswith(f"{_GPUS}:")]
    count = tres.get(f"{_GPUS}:{models[0]}" if models else _GPUS, "0")
    price, unpriced = price_in(row, question)
    return VmFacts(
        provider_id=f"{row.job}@{(row.submitted or 0) // SECOND}",
        name=row.nodes,
        project=scope.project,
        hostname=hostname(row),
        backend="slurm",
        region=row.partition,
        status=row.state,
        reason=row.reason,
        state=VmState.TERMINATED if over else VmState.BUSY,
        cause=VmReason.INTERRUPTED if row.state in REQUEUED else VmReason.RUN_ENDED,
        created=row.started,
        finished_at=row.ended if over else None,
        charged=question.tool == "sacct",
        suspended=row.suspended or 0,
        limit=row.limit,
        price=price,
        instance_type=row.partition,
        gpu=models[0] if models else None,
        gpu_count=int(count) if count.isdecimal() else 0,
        cpus=int(tres["cpu"]) if tres.get("cpu", "").isdecimal() else None,
        drift=() if unpriced is None else (f"price: {unpriced}",),
    )


@lru_cache(maxsize=64)
def _table(text: str) -> Mapping[str, float] | None:
    try:
        return msgspec.json.decode(text.encode(), type=dict[str, float])
    except msgspec.MsgspecError:
        return None


def _gpus_in(tres: Mapping[str, str]) -> dict[str, float]:
    """The GPUs of an allocation by type. Accounting counts all of them, and those of a type only where the site tracks
    that type: the others are of the type `gpu`.
    """
    typed = {
        name.removeprefix(f"{_GPUS}:"): _number(count) for name, count in tres.items() if name.startswith(f"{_GPUS}:")
    }
    others = _number(tres.get(_GPUS, "")) - sum(typed.values())
    return {**typed, UNNAMED_GPU: others} if others > 0 else typed


def units_of(tres: Mapping[str, str], rates: Mapping[str, float]) -> float | None:
    """Service units an hour: by the site's table if it has all the GPUs, else Slurm's own `billing`; None: neither."""
    others = {name: _number(count) for name, count in tres.items() if not name.startswith(_GPUS) and _is_number(count)}
    units, billing = list_price(_gpus_in(tres), others, rates), tres.get("billing", "")
    return _number(billing) if units is None and _is_number(billing) else units


def price_of(tres: Mapping[str, str], table: str | None) -> tuple[int | None, str | None]:
    """Micro-dollars an hour, or why there is no price: (None, None) if the question had no table, so that nothing is
    billed.
    """
    rates = None if table is None else _table(table)
    if rates is None:
        return None, None
    units = units_of(tres, rates)
    if units is None:
        return None, f"no rate for {', '.join(unrated(_gpus_in(tres), rates)) or 'cpu'}"
    return round(units * rates.get("usd", 1.0) * DOLLAR), None


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def _number(text: str) -> float:
    return float(text) if _is_number(text) else 0.0


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `reports/<job>`: the machine, or (`phase`) the start of a step of the script."""

    at: int = 0  # seconds since the epoch
    phase: str | None = None
    node: str = ""
    request: str = msgspec.field(default="", name="asked")  # `a6000:4`, `:2` of any type, `:0` none
    slices: str = ""  # `MIG 1g.10gb MIG 1g.10gb`
    gpus: str = ""  # `NVIDIA RTX A6000, 49140;NVIDIA RTX A6000, 49140` in MiB; empty: unknown


_line = msgspec.json.Decoder(NodeReport)


def report_in(text: str) -> tuple[str, NodeReport] | None:
    """(job, report) of `<folder>/reports/<job>:<JSON>`; None for another line."""
    path, _, line = text.partition(":{")
    try:
        return path.rpartition("/")[2], _line.decode("{" + line)
    except (msgspec.DecodeError, RecursionError):
        return None


def mismatch(report: NodeReport) -> str | None:
    """How the GPUs of the machine differ from the request (V100 asked, A6000 got)."""
    kind, _, count = report.request.rpartition(":")
    gpus = [gpu.strip() for gpu in report.gpus.split(";") if gpu.strip()]
    slices = re.findall(r"MIG \S+", report.slices)
    if not gpus or not count.isdecimal() or count == "0":
        return None
    part = slice_of(kind)
    if part is not None and slices:
        names = slices
        same = all(slice_of(name.removeprefix("MIG ")) == ("", part[1]) for name in names)
    else:
        names = [gpu.rpartition(",")[0] for gpu in gpus]
        same = part is not None or all(_is(kind, *gpu.rpartition(",")[::2]) for gpu in gpus)
    if same and len(names) >= int(count):
        return None
    return f"asked for {kind or 'GPU'} × {count}, got {', '.join(dict.fromkeys(names))} × {len(names)} on {report.node}"


def _is(kind: str, model: str, memory: str) -> bool:
    """True if a GPU is of a type: `a100_80` is an A100 with about 80 GB."""
    name, _, size = kind.lower().replace("-", "_").partition("_")
    if not _NUMBERED.fullmatch(name):
        return True
    if not re.search(f"{'[^a-z0-9]*'.join(name)}(?![0-9])", model.lower()):  # an A100 is not an `a10`
        return False
    number, mebibytes = size.removesuffix("gb"), memory.strip()
    if not number.isdecimal() or not mebibytes.isdecimal():
        return True
    return abs(int(mebibytes) / 1024 / int(number) - 1) <= _CLOSE
