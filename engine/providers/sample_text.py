"""Samples from the lines that `sampler` writes: CSV of a GPU vendor's tool behind its header, and of the processes.

An unknown column, a value such as `[N/A]` and an unreadable line give nothing; no text is an error. The forms are those
of `nvidia-smi --help-query-gpu`, of `monitor` in amdsmi_commands.py (ROCm/amdsmi) and of rocm_smi.py
(ROCm/rocm_smi_lib).
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from steno.engine.state.samples import TASK, Sample, whole
from steno.events.clock import SECOND

_TOOLS: Final = {"index": "nvidia-smi", "gpu": "amd-smi", "device": "rocm-smi"}
"""The tools, by the column that numbers the devices."""
_COLUMNS: Final = {
    "timestamp": "at", **dict.fromkeys(_TOOLS, "device"),
    "utilization.gpu": "use", "gfx": "use", "gfx_util": "use", "gfx%": "use", "gpu use (%)": "use",
    "memory.used": "memory", "vram_used": "memory", "vram total used memory (b)": "memory",
    "memory.total": "memory_total", "vram_total": "memory_total", "vram total memory (b)": "memory_total",
    "power.draw": "power", "power_usage": "power", "average graphics package power (w)": "power",
    "current socket graphics package power (w)": "power",
    "temperature.gpu": "temperature", "hotspot_temperature": "temperature",
    "temperature (sensor edge) (c)": "temperature", "temperature (sensor junction) (c)": "temperature",
    "clocks_throttle_reasons.active": "throttled", "clocks_event_reasons.active": "throttled",
    "ecc.errors.uncorrected.volatile.total": "errors", "double_bit_ecc": "errors",
}  # fmt: skip
_VALUES: Final = frozenset(_COLUMNS.values()) - {"at", "device"}
_MOST: Final = {"use": 100, "power": 10_000, "temperature": 500}  # 65535 is a missing value of some drivers
_SLOWDOWNS: Final = 0x8 | 0x20 | 0x40 | 0x80
"""Reasons of NVML that slow a GPU down: of hardware, heat, power brake; not: idle, or at its power limit."""
_DATE: Final = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)
_EPOCH: Final = re.compile(r"\d{10}(\.\d{1,9})?", re.ASCII)
_MASK: Final = re.compile(r"0x[0-9A-Fa-f]{1,16}")
BEFORE: Final = 120 * SECOND  # earlier lines are read for this time: the use of a CPU is a difference


def samples_of(parts: Iterable[bytes], since: int) -> tuple[str, list[Sample]] | None:
    """The tool and its samples after `since`, by time and device, each once; None: nobody measured. Lines may repeat.

    `parts`: files or pieces of them, the older first; the last line of each may be cut.
    """
    reader = _Reader(since)
    for part in parts:
        for line in part.decode(errors="replace").split("\n")[:-1]:
            reader.read(line)
    samples = reader.samples.values()
    return (reader.tool, sorted(samples, key=lambda sample: (sample.at, sample.device))) if reader.tool else None


class _Reader:
    def __init__(self, since: int) -> None:
        self.tool = ""
        self.samples: dict[tuple[int, str], Sample] = {}
        self._since = since
        self._columns: list[str] = []  # of the last header
        self._at: int | None = None  # of rows without a time of their own
        self._last: tuple[int, int] | None = None  # time, and milliseconds of CPU, of the processes

    def read(self, line: str) -> None:
        first, more, rest = line.strip().partition(",")
        at = _time(first)
        if at is not None and at <= self._since - BEFORE:
            self._at = at
        elif at is not None and rest.startswith("processes,"):
            self._processes(at, rest.split(","))
        elif at is not None and not more:
            self._at = at
        else:
            self._row([cell.strip() for cell in line.split(",")])

    def _processes(self, at: int, cells: list[str]) -> None:
        cpu, memory = (whole(cell) for cell in (*cells[1:3], "", "")[:2])
        use, last = None, self._last
        if cpu is not None:
            if last is not None and at > last[0] and cpu >= last[1]:
                use = round((cpu - last[1]) * SECOND / 10 / (at - last[0]))
            self._last = at, cpu
        self.tool = self.tool or "processes"
        self._keep(at, TASK, {"use": use, "memory": None if memory is None else memory >> 10})

    def _row(self, cells: list[str]) -> None:
        columns = [cell.lower().partition(" [")[0] for cell in cells]
        tool = next((_TOOLS[column] for column in columns if column in _TOOLS), None)
        if tool is not None and any(_COLUMNS.get(column) in _VALUES for column in columns):
            self._columns, self.tool = columns, tool
        elif len(cells) == len(self._columns):
            row = zip(self._columns, cells, strict=True)
            values = {_COLUMNS[column]: _value(column, cell) for column, cell in row if column in _COLUMNS}
            at, device = values.pop("at", self._at), values.pop("device")
            if at is not None and device is not None:
                self._keep(at, str(device), values)

    def _keep(self, at: int, device: str, values: dict[str, int | None]) -> None:
        if at > self._since and any(value is not None for value in values.values()):
            self.samples.setdefault((at // SECOND, device), Sample(at=at, device=device, **values))


def _value(column: str, cell: str) -> int | None:
    field = _COLUMNS[column]
    if field == "at":
        return _time(cell)
    if field == "throttled":
        return int(int(cell, 16) & _SLOWDOWNS != 0) if _MASK.fullmatch(cell) else None
    value = whole(cell.removeprefix("card"))
    if value is None or value > _MOST.get(field, value):
        return None
    return value >> 20 if column.endswith("(b)") else value


def _time(cell: str) -> int | None:
    """Microseconds, UTC, of a date of nvidia-smi (`TZ` is UTC), or of seconds since the epoch."""
    if _EPOCH.fullmatch(cell):
        return round(float(cell) * SECOND)
    if not _DATE.fullmatch(cell):
        return None
    try:
        return round(datetime.fromisoformat(cell[:19].replace("/", "-")).replace(tzinfo=UTC).timestamp()) * SECOND
    except ValueError:
        return None
