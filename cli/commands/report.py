"""The command `steno report`."""

import csv
from pathlib import Path
from typing import IO

import click
import msgspec

from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.options import both_times_option
from steno.cli.wiring.view import every_cost, policy_for, viewing
from steno.engine.errors import NothingRecorded
from steno.engine.money.daily import day_text, month_days
from steno.engine.state.policy import DAY
from steno.engine.wire import csv_of, wire


def _a_file(_context: click.Context, _option: click.Parameter, output: IO[str]) -> IO[str]:
    name: object = output.name  # of a pipe a number
    if isinstance(name, str) and Path(name).is_dir():  # the file would only be found out when it is complete
        raise click.BadParameter(f"{name} is a folder; name a file")
    return output


@steno_command("report")
@click.option("--month", metavar="YYYY-MM", help="The month (UTC); default: the present one.")
@click.option("--format", "form", type=click.Choice(["md", "html", "csv", "focus"]), help="Default: md.")
@click.option(
    "--output",
    "-o",
    type=click.File("w", "utf-8", atomic=True),
    default="-",
    callback=_a_file,
    help="Write it to this file.",
)
@both_times_option
def report_command(app: App, month: str | None, form: str | None, output: IO[str], at: str | None) -> None:
    """It has the spend by purpose, user, GPU, day and machine, waste, waits, failures by cause, and the provider's own
    figures. The sums are those of `steno costs` of these days. Of the present month it has the forecast, as `steno
    budget`. html is one file without scripts; focus is every charge in the columns of FOCUS 1.4.

    With --json: {"month", "known_to", "unknown", "total_usd", "low_usd", "high_usd", "archived_usd",
    "rows": [{"section", "name", "detail", "runs", "seconds", "usd"}], "forecast", "position"}.

    \b
    Examples:
      steno report --month 2026-11 --format html -o november.html
      steno report --month 2026-11 --format focus > focus.csv
    """
    from steno.cli.render import report as draw
    from steno.engine.money.focus import month_rows
    from steno.projections.answers.output_cause import OutputCauses
    from steno.projections.answers.report import month_report

    if app.json and form is not None:
        raise click.UsageError("--json is a form of its own: leave --format out")
    with viewing(app, at) as (record, view, now):
        causes = OutputCauses(app.settings.value("causes.rules"))
        month = day_text(now // DAY)[:7] if month is None else month
        try:
            month_days(month)
        except ValueError:
            raise click.BadParameter(f"{month!r} is not a month; write 2026-11", param_hint="--month") from None
        report = month_report(record, view, month, policy_for(app, view, at), now, causes)
        if report.unknown is not None:
            raise NothingRecorded(f"nothing to report: {report.unknown}")
        if form == "focus":
            with every_cost(app, at) as (ledger, _):
                csv.writer(output, lineterminator="\n").writerows(month_rows(ledger, month_days(month)))
        elif app.json:
            output.write(msgspec.json.encode(wire(report) | {"position": view.position}).decode() + "\n")
        else:
            output.write({"csv": csv_of, "html": draw.html}.get(form or "md", draw.markdown)(report))
