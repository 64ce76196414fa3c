"""Runs benchmarks, each in a process of its own, and joins what they report with the table of targets.

`steno bench` is its command; a report is what `docs/performance.json` has.
"""

import os
import platform
import signal
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from benchmarks.support import ROOT, Measured, NotHere
from benchmarks.targets import TARGETS, Target
from stenotest.postgres import binaries

SCRIPTS = tuple(dict.fromkeys(target.script for target in TARGETS))
PATIENCE = 20.0  # seconds in which a script that is interrupted ends what it has started


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A target and what was measured; without `measured`, `problem` says why and what to do."""

    name: str
    script: str
    what: str
    target: str  # with its unit, such as "≥ 80 % of raw sqlite3"; "–": measured for comparison
    unit: str
    size: str  # quick, normal or full
    at: str  # UTC
    load: tuple[float, float]  # of one minute, before and after its script
    of: str | None = None
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int | None = None
    ours: float | None = None
    theirs: float | None = None
    sides: str | None = None
    share: float | None = None  # of the target: up to 1 meets it
    share_low: float | None = None
    share_high: float | None = None
    met: bool | None = None
    problem: str | None = None
    failed: bool = False


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where it was measured."""

    cores: int
    model: str
    python: str
    sqlite: str
    postgresql: str | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Rows in the order of the table of targets."""

    machine: Machine
    rows: tuple[Row, ...]


def machine() -> Machine:
    """This machine."""
    info = Path("/proc/cpuinfo").read_text() if sys.platform == "linux" else ""
    models = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        model=models[0] if models else platform.processor() or platform.machine(),
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        postgresql=_postgresql(),
    )


def run(script: str, size: str) -> tuple[Row, ...]:
    """Run one script; a row for each of its targets."""
    targets = [target for target in TARGETS if target.script == script and (size == "full" or not target.full)]
    words = [sys.executable, "-m", f"benchmarks.{script}", "--json", *([] if size == "normal" else [f"--{size}"])]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("STENO_", "DSTACK_"))}
    environment["PYTHONDONTWRITEBYTECODE"] = ""  # or every start would compile what it imports
    at, before = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), os.getloadavg()[0]
    with subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            out, err = process.communicate()
        except BaseException:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    figures, problem = _decoded(out)
    if process.returncode:
        last = (err.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        problem = f"benchmarks/{script}.py failed: {last}"
    elif unknown := figures.keys() - {target.name for target in targets}:
        raise AssertionError(f"benchmarks/targets.py lacks {', '.join(sorted(unknown))} of {script}")
    load = (round(before, 1), round(os.getloadavg()[0], 1))
    return tuple(
        _row(target, figures.get(target.name), problem, size=size, at=at, load=load, failed=process.returncode != 0)
        for target in targets
    )


def joined(old: Report | None, new: Report) -> Report:
    """The rows of both, new rows in place of old rows of the same name; rows without a target are left out."""
    rows = {row.name: row for report in (old, new) if report is not None for row in report.rows}
    return Report(machine=new.machine, rows=tuple(rows[target.name] for target in TARGETS if target.name in rows))


def read(path: Path) -> Report | None:
    """The report of a file; None if there is none. Raises `msgspec.DecodeError` if the file is something else."""
    return msgspec.json.decode(path.read_bytes(), type=Report) if path.exists() else None


def write(path: Path, report: Report) -> None:
    """Write the report, a value a line, so that versions can be compared."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def _decoded(out: bytes) -> tuple[dict[str, Measured], str | None]:
    """The rows that a script reported by name, and why there are no more. Raises AssertionError if one came twice."""
    figures: dict[str, Measured] = {}
    for line in out.splitlines():
        if b'"not_here"' in line:
            return figures, msgspec.json.decode(line, type=NotHere).not_here
        row = msgspec.json.decode(line, type=Measured)
        assert row.name not in figures, f"{row.name} was measured twice"
        figures[row.name] = row
    return figures, None


def _row(
    target: Target,
    figure: Measured | None,
    problem: str | None,
    *,
    size: str,
    at: str,
    load: tuple[float, float],
    failed: bool,
) -> Row:
    row = Row(
        name=target.name, script=target.script, what=target.what, target=target.text, unit=target.unit,
        size=size, at=at, load=load,
    )  # fmt: skip
    if figure is None:
        why = problem or f"benchmarks/{target.script}.py did not report it"
        return msgspec.structs.replace(row, problem=why, failed=failed or problem is None)
    shares = [target.share(value) for value in (figure.measured, figure.low, figure.high)]
    ends = sorted(share for share in shares[1:] if share is not None)
    return msgspec.structs.replace(
        row,
        **{name: _short(value) for name, value in msgspec.structs.asdict(figure).items() if name != "name"},
        share=_short(shares[0]),
        share_low=_short(ends[0] if ends else None),
        share_high=_short(ends[-1] if ends else None),
        met=target.met(figure.measured),
    )


def _short(value: object) -> object:
    """A figure to four digits: more would be noise."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _postgresql() -> str | None:
    """The version of the server's programs here."""
    folder = binaries()
    if folder is None:
        return None
    printed = subprocess.run([folder / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
    return printed.split()[2]
