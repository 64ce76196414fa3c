"""`steno bench`: the benchmarks of the repository beside their targets."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import msgspec

from steno.cli.render import paint
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.errors import NOT_SUCCEEDED
from steno.cli.wiring.output import hint, show
from steno.cli.wiring.terminal import columns
from steno.events.errors import StenoError

_ROOT = Path(__file__).resolve().parents[2]


class NoBenchmarks(StenoError):
    """The benchmarks are in Steno's repository, which is not here: clone it, then run `make bench` there."""


def _loaded(module: str) -> ModuleType:
    """A module of the benchmarks, which no wheel has. Raises `NoBenchmarks`."""
    if not (_ROOT / "benchmarks" / "targets.py").is_file():
        raise NoBenchmarks
    if (path := str(_ROOT / "src")) not in sys.path:
        sys.path.insert(0, path)
    try:
        return importlib.import_module(f"benchmarks.{module}")
    except ModuleNotFoundError as error:
        raise NoBenchmarks(f"the benchmarks need {error.name}: run `make .venv/.dev` in {_ROOT}") from None


def _scripts(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    try:
        targets = _loaded("targets").TARGETS
    except NoBenchmarks:
        return []
    return list(dict.fromkeys(target.script for target in targets if target.script.startswith(incomplete)))


@steno_command("bench")
@click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=_scripts)
@click.option(
    "--quick", "size", flag_value="quick", help="Smallest sizes: shows that all runs; do not compare figures."
)
@click.option("--full", "size", flag_value="full", help="Largest sizes: 10,000 runs, 10 million events; takes hours.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Also write the report as JSON; rows of FILE that were not measured now are kept.",
)
def bench_command(app: App, names: tuple[str, ...], size: str | None, output: Path | None) -> None:
    """It also measures what Steno is compared with, on the same machine. It needs Steno's repository with `make
    .venv/.dev`; a wheel has no benchmarks. NAME is a script of `benchmarks/`, without .py; without a name all of them
    run one after the other, 14 minutes of CPU. Trust ratios, not absolute figures, and only on a machine that does
    nothing else: the report has the load before and after.

    Each row is the median of its repetitions, or the percentile it names; the noise is half their spread. A row whose
    software is missing says what to install. Exit code 1: a script failed. A missed target is shown and changes no
    exit code.

    With --json: {"machine", "rows": [{"name", "what", "target", "measured", "low", "high", "share", "met", …}]}.

    \b
    Examples:
      steno bench
      steno bench replay record_append
      steno bench recorder --full --output report.json
    """
    suite, page = _loaded("suite"), _loaded("page")
    unknown = [name for name in names if name not in suite.SCRIPTS]
    if unknown:
        raise click.BadParameter(f"there is no benchmark {unknown[0]!r}; choose of {', '.join(suite.SCRIPTS)}")
    machine = suite.machine()
    old = _kept(suite, output, machine)
    rows: list[Any] = []
    scripts = dict.fromkeys(names or suite.SCRIPTS)
    for number, script in enumerate(scripts, 1):
        hint(f"{number}/{len(scripts)} {script}")
        rows += suite.run(script, size or "normal")
        report = suite.Report(machine=machine, rows=tuple(rows))
        if output is not None:  # an interruption loses one script, not hours
            suite.write(output, suite.joined(old, report))
    show(app, report, lambda: _text(report, page))
    if any(row.failed for row in rows):
        app.exit_code = NOT_SUCCEEDED


def _kept(suite: ModuleType, output: Path | None, machine: Any) -> Any:
    """The report that the file has. Raises `UsageError` if it is none or of another machine."""
    if output is None:
        return None
    try:
        old = suite.read(output)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{output} is not a report of steno bench: {error}; give another file") from None
    if old is not None and old.machine != machine:
        raise click.UsageError(f"{output} is of another machine or other versions: remove it, or give another file")
    return old


def _text(report: Any, page: ModuleType) -> str:
    """The table, and the machine."""
    colours = {"met": "green", "misses": "red"}
    table = [
        [click.style(cell, fg=colours[cell]) if cell in colours else cell for cell in page.cells(row)]
        for row in report.rows
    ]
    problems: dict[str, list[str]] = {}
    for row in report.rows:
        if row.problem is not None:
            problems.setdefault(row.problem, []).append(row.name)
    lines = [f"{', '.join(names)}: {problem}" for problem, names in problems.items()]
    drawn = paint.fitted(page.HEAD, table, columns(), spare=(6, 3, 5))
    return "\n".join([drawn, "", *lines, page.machine_line(report)])
