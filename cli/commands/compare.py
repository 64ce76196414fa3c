"""`steno compare`: two runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cli.wiring.app import App, steno_command
from cli.wiring.options import at_option, completed_runs
from cli.wiring.output import show
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projections.models.compare import Comparison


@steno_command("compare")
@click.argument("runs", metavar="A B", nargs=2, shell_complete=completed_runs)
@at_option
def compare_command(app: App, runs: tuple[str, str], at: str | None) -> None:
    """Compare two runs: outcome, times, cost, and what differs in what was asked for.

    What was asked for is known of runs that Steno submitted. With --json: {"runs": [run objects], "outcome": [{"field",
    "values"}], "task": [{"field", "values"}], "task_known", "position"}; times are seconds.

    \b
    Examples:
      steno compare matmul-4f0c2a91b7de matmul-81aa
      steno compare 5f0c 81aa --json | jq .task
    """
    import msgspec

    from cli.wiring.view import viewing
    from projections.models.compare import compared
    from projections.models.record_pages import request_of

    with viewing(app, at) as (record, view, _):
        rows = [view.row(word) for word in runs]
        first, second = (view.run(row.run_id) for row in rows)
        found = compared(first, second, (request_of(record, first.run_id), request_of(record, second.run_id)))
        position = view.position
    names = [run.name or run.run_id for run in (first, second)]
    if names[0] == names[1]:
        names = [f"{run.name} ({run.run_id[:8]})" for run in (first, second)]
    value = {"runs": (first, second), **msgspec.to_builtins(found), "position": position}
    show(app, value, lambda: _page(found, names, columns()))


def _page(found: Comparison, names: Sequence[str], width: int) -> str:
    from cli.render import paint

    rows = [
        (paint.bold(name) if one.differs else name, *(_shown(one.field, value) for value in one.values))
        for one in found.outcome
        for name in (one.field.removesuffix("_seconds").removesuffix("_usd").replace("_", " "),)
    ]
    parts = [paint.fitted(("", *names), rows, width, spare=())]
    if found.task:
        told = [(one.field, *(_shown(one.field, value) for value in one.values)) for one in found.task]
        parts.append(paint.fitted(("ASKED FOR", *names), told, width, spare=()))
    elif found.task_known:
        parts.append("Both requests are equal.")
    else:
        parts.append("The requests are unknown: Steno did not submit both runs.")
    return "\n\n".join(parts)


def _shown(field: str, value: Any) -> str:
    from cli.render.words import duration, short
    from events.clock import SECOND
    from events.shape.secrets import PREFIX

    if value is None:
        return "–"
    if field.endswith("_seconds"):
        return duration(round(value * SECOND))
    if field.endswith("_usd"):
        return short(value)
    text = " && ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"secret {text.removeprefix(PREFIX)[:6]}…" if text.startswith(PREFIX) else text
