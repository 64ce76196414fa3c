"""The command `whatif`: what another policy would have cost."""

from collections.abc import Callable
from typing import Any

import click

from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.output import progress, show
from steno.cli.wiring.terminal import columns
from steno.cli.wiring.time_arguments import moment
from steno.cli.wiring.view import viewing
from steno.engine.wire import wire


def _parsed(parse: str) -> Callable[..., Any]:
    """A callback that reads an option's value as a setting, or `--sweep`, is read: a tuple, as `off` is None."""

    def read(ctx: click.Context, _: click.Parameter, value: str | None) -> Any:
        from steno.engine.settings import values
        from steno.projections.answers.whatif import sweep_of

        if value is None or ctx.resilient_parsing:
            return None
        try:
            return ((sweep_of if parse == "sweep" else getattr(values, parse))(value),)
        except ValueError as error:
            raise click.BadParameter(f"{value!r} is not {error}") from None

    return read


@steno_command("whatif")
@click.option("--idle-timeout", metavar="TIME", callback=_parsed("timeout"), help="As 5m, or off: never.")
@click.option("--max-vms", metavar="N", callback=_parsed("machines"), help="Most machines at once, or off.")
@click.option("--policy", type=click.Choice(["provider", "pool"]), help="Who chooses the machine: `vms.mode`.")
@click.option("--price", metavar="USD", callback=_parsed("rate"), help="Dollars an hour of every machine.")
@click.option("--sweep", metavar="RANGE", callback=_parsed("sweep"), help="idle-timeout=1m..30m, or max-vms=1..6.")
@click.option("--keep-p95", metavar="TIME", callback=_parsed("positive_duration"), help="Mark the cheapest within it.")
@click.option("--validate", is_flag=True, help="Predict the recorded policy itself.")
@click.option("--source", metavar="NAME", help="A source of `steno sources`; default: the one with most runs.")
@click.option("--since", metavar="TIME", help="Runs requested from then on; default: 30 days before the end.")
@click.option("--until", metavar="TIME", help="The end of the window; default: the newest poll.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Another seed, other draws.")
def whatif_command(app: App, **given: Any) -> None:
    """It takes the recorded runs, with their requirements and how long each ran, and decides again by the engine's own
    rules under the policy you name; what you do not name stays as recorded. Starts, idle machines and their ends take
    as long as they took in the record. The bounds come from several draws of these times; those of the bill are wider
    by the largest error of equal draws of the recorded policy. Every answer shows the error of the best estimate of the
    recorded policy. The cloud always has a machine, and the budget refuses nothing. With --keep-p95 the cheapest policy
    of a sweep is marked that keeps 95 % of the waits, from request to running, within that time.

    With --json: {"source", "since", "until", "runs", "left_out", "recorded": {"bill_usd", "cold_starts",
    "wait_p50_seconds", "wait_p95_seconds", "idle_share"}, "validation", "error", "predictions": [{"policy", "best",
    "low", "high", "refused"}], "keep_p95_seconds", "cheapest", "assumed", "seed", "position"}.

    \b
    Examples:
      steno whatif --validate
      steno whatif --idle-timeout 5m --max-vms 2 --price 2.49 --policy pool
      steno whatif --sweep idle-timeout=1m..30m --keep-p95 2m --since 7d
    """
    from steno.cli.render.whatif import whatif_page
    from steno.projections.answers.whatif import FIELDS, WhatIfQuestion, what_if

    named = {"mode": given["policy"] and (given["policy"],), **given}
    changes = tuple((field, named[field][0]) for field in ("mode", "idle_timeout", "max_vms") if named[field])
    sweep, price, keep = ((given[name] or (None,))[0] for name in ("sweep", "price", "keep_p95"))
    if given["validate"] == bool(changes or sweep or price is not None):
        if given["validate"]:
            raise click.UsageError("--validate predicts the recorded policy: leave the other policies out")
        raise click.UsageError("name a policy (--idle-timeout, --max-vms, --policy, --price), --sweep or --validate")
    if sweep is not None and FIELDS[sweep[0]] in dict(changes):
        raise click.UsageError(f"--{sweep[0]} is swept: leave it out")
    if keep is not None and sweep is None:
        raise click.UsageError("--keep-p95 marks the cheapest policy of a --sweep")
    now = app.clock.now()
    since, until = (None if given[name] is None else moment(given[name], now) for name in ("since", "until"))
    if since is not None and since >= (now if until is None else until):
        raise click.BadParameter("--since is later than the end of the window")
    question = WhatIfQuestion(given["source"], since, until, changes, price, sweep, keep, given["seed"])
    with viewing(app) as (_, view, _):
        state, position = view.whole(), view.position
    with progress("simulating") as advance:
        answer = what_if(state, question, advance)
    show(app, lambda: wire(answer) | {"position": position}, lambda: whatif_page(answer, columns()))
