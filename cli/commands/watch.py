"""`steno watch`: changes of runs as they happen."""

import time

import click

from cli.wiring.app import App, steno_command
from cli.wiring.errors import NOT_SUCCEEDED
from cli.wiring.options import completed_runs
from cli.wiring.output import emit, emit_json

_PAUSE = 0.5  # seconds between looks at the read models


@steno_command("watch")
@click.argument("runs", metavar="[RUN...]", nargs=-1, shell_complete=completed_runs)
def watch_command(app: App, runs: tuple[str, ...]) -> None:
    """Print changes of runs as they happen: of the runs named, until all have ended; else of every run, until Ctrl-C.

    The open runs come first. It polls nothing itself: `steno up` or `steno record` does, and `steno submit --wait`
    follows a run with its output. The exit code is 0 if all named runs succeeded, else 1.

    With --json, JSON Lines: the run object, as in `steno show`.

    \b
    Examples:
      steno watch
      steno watch train eval && steno compare train eval
    """
    from cli.render.runs import ended
    from cli.render.words import moment
    from cli.wiring.view import viewing

    shown: dict[str, tuple[object, ...]] = {}
    named: dict[str, str] = {}
    while True:
        with viewing(app) as (_, view, now):
            if runs and not named:
                named = {view.row(word).run_id: word for word in runs}
            found = [view.run(run_id) for run_id in named] if named else view.runs(open_or_since=now)
            for run in (*found, *(view.run(run_id) for run_id in shown if run_id not in {one.run_id for one in found})):
                state = (run.state, run.reason, run.attempts)
                if shown.get(run.run_id) != state:
                    shown[run.run_id] = state
                    if app.json:
                        emit_json(run, lines=True)
                    else:
                        emit(f"{moment(now)}  {ended(run)}")
                if run.ended and not named:
                    del shown[run.run_id]
        if named and all(run.ended for run in found):
            if any(run.state != "succeeded" for run in found):
                app.exit_code = NOT_SUCCEEDED
            return
        time.sleep(_PAUSE)
