"""`steno stop`: ask that a run end."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

import click

from cli.wiring.app import App
from cli.wiring.options import common, pass_app, run_argument
from cli.wiring.output import emit, emit_json

if TYPE_CHECKING:
    from cli.submitting import Counter
    from engine.fold.run import Run
    from engine.providers.base import Provider
    from events.store.record import Record

_PATIENCE = 60_000_000
_LOOK = 30_000_000
"""How long to look for the end, microseconds: dstack takes 2 s to stop a run and up to 30 to abort one."""


@click.command("stop")
@run_argument
@click.option("--abort", is_flag=True, help="Stop at once; the task cannot clean up.")
@common
@pass_app
def command(app: App, run: str, abort: bool) -> None:
    """Stop a run; stopping a run that has ended does nothing.

    Steno records the request first. The process that holds the provider's lease carries it out, and this command waits
    up to 30 seconds for the end. With --json: {"run_id", "name", "state", "asked"}.

    \b
    Examples:
      steno stop matmul
      steno stop 5f0c --abort
    """
    from cli.providers import of_run
    from cli.render.runs import ended
    from cli.stores import writing
    from cli.submitting import counter
    from cli.wiring.logging_setup import log_for_data
    from engine.act.next_step import may_be_made_again
    from engine.fold.archives import refuse_archive
    from engine.settings.policy import policy_from
    from projections.models.projector import caught_up
    from projections.models.view import View
    from projections.store.world_table import decode_run

    log_for_data()
    with writing(app, create=False) as record:
        with caught_up(record) as store:
            row = View(store).row(run)
        found = decode_run(row.folded)
        name, state = found.name or found.run_id, str(found.state)
        if not found.terminal:
            refuse_archive(found, name)
        # A run that found no capacity has ended, and would be asked for again.
        asked = not found.terminal or may_be_made_again(
            found, policy_from(app.settings, found.provider).queue_patience, app.clock.now()
        )
        if asked:
            provider = of_run(app, found, record.path)
            try:
                with counter(app, record, provider, adopt=False) as here:
                    _stop(record, provider, found, here, abort=abort)
                    after = here.follow(found.run_id, name, timeout=_LOOK)
                state = state if after is None else after.state
            finally:
                provider.close()
    if app.json:
        emit_json({"run_id": found.run_id, "name": found.name, "state": state, "asked": asked})
    elif not asked:
        emit(f"{name} had already ended: {state}")
    elif after is None:
        emit(f"the {'abort' if abort else 'stop'} of {name} is requested; it has not ended yet: `steno show {name}`")
    else:
        emit(ended(after))


def _stop(record: Record, provider: Provider, run: Run, here: Counter, *, abort: bool) -> None:
    """Request the stop, then see it to the provider."""
    from engine.act.journal import Journal
    from engine.commands.desk import refuse
    from engine.commands.request import request_stop
    from events import types

    request_stop(
        Journal(record),
        run_id=run.run_id,
        provider=run.provider,
        project=run.project or provider.project,
        provider_id=run.provider_id,
        name=run.name or "",
        abort=abort,
        submitter=getpass.getuser(),
    )
    outcome = here.desk.stopped(run.run_id, _PATIENCE)
    # A run that waited, or had no machine, was never at the provider: that is an end, and `follow` shows which.
    if not isinstance(outcome, types.IntentAbandoned):
        refuse(outcome)
