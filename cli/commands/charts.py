"""The charts of `steno costs --chart`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cli.wiring.output import emit_csv, hint, show
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from cli.wiring.app import App
    from engine.money.daily import Stack, Strip


def draw_charts(
    app: App, chart: str, by: str | None, between: tuple[str | None, str | None], at: str | None, *, as_csv: bool
) -> None:
    """Draw charts, or give them as JSON or CSV (of `days`: the spend). `by`: gpu, user or vm; `between`: its range."""
    from cli.render import charts as draw
    from cli.wiring.time_arguments import moment
    from cli.wiring.view import viewing
    from engine.wire import wire
    from projections.models import charts

    stack: Stack = "gpu" if by == "gpu" else "user" if by == "user" else "line"
    strip: Strip = "vm" if by == "vm" else "gpu"
    drawn: dict[str, tuple[Any, Any]] = {}
    with viewing(app, at) as (_, view, now):
        since, until = (None if text is None else moment(text, app.clock.now()) for text in between)
        if since is not None and since > min(now, now if until is None else until):
            raise click.BadParameter("--since is later than the end of the range")
        shown = charts.ChartRange(since=since, until=until, now=now)
        if chart in ("days", "spend"):
            drawn["spend"] = charts.spend(view.store, stack, shown), draw.spend_chart
        if chart in ("days", "utilisation"):
            drawn["utilisation"] = charts.utilisation(view.store, strip, shown), draw.utilisation_chart
        if chart == "starts":
            drawn["starts"] = charts.starts(view.store, shown), draw.starts_chart
        position = view.position
    if as_csv:
        emit_csv(next(iter(drawn.values()))[0])
        return
    value = {name: wire(report) for name, (report, _) in drawn.items()} | {"position": position}
    texts = [text for report, made in drawn.values() if (text := made(report, columns()))]
    if texts or app.json:
        show(app, value, "\n\n".join(texts))
    else:
        hint("nothing to draw in this range; --since 2026-01-01 shows more days")
