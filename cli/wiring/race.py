"""Several runs of which one is needed: submitted together; the first that runs is followed to its end."""

import signal
from collections.abc import Sequence

from cli.render.runs import ended
from cli.wiring.app import App
from cli.wiring.errors import Detached, WaitEnded
from cli.wiring.output import emit, emit_json, hint, show
from cli.wiring.session import RunSession, code_of_failure, session
from cli.wiring.signals import stoppable
from engine.decide.race import race_of, winner
from engine.errors import Conflict, TaskInvalid
from engine.fold.run import Run
from engine.providers.task import Completed
from events.errors import StenoError


def run_race(app: App, tasks: Sequence[Completed], *, wait: bool, give_up_after: int | None) -> None:
    """Submit the runs, wait until one runs and, with `wait`, follow it and its output to its end; refused runs drop out
    with a line. Raises `TaskInvalid` if all are refused, `WaitEnded` after `give_up_after`, `Detached` on Ctrl-C; while
    none runs, the last two stop all.
    """
    with app.writing() as record, session(app, record, app.settings.provider) as here:
        asked: list[str] = []
        refusals: list[str] = []
        for task in tasks:
            run_id = app.ids.new()
            try:
                here.submit(task, run_id)
            except Conflict:  # another one runs already, so this one was stopped before it was handed over
                break
            except TaskInvalid as error:
                refusals.append(f"{task.name}: {error}")
                hint(refusals[-1])
            else:
                asked.append(run_id)
        if not asked:
            raise TaskInvalid(refusals[0] if refusals else "there is nothing to run")
        if not wait:
            names = [here.run(one).name for one in asked]
            show(app, {"runs": asked}, "\n".join(map(str, names)))
            return
        won = _first(app, here, asked, give_up_after)
        name = won.name or won.run_id
        hint(f"{name} runs")
        run = here.to_the_end(won, output=not app.json)
        if run.state != "succeeded":
            app.exit_code = code_of_failure(here.run(won.run_id), here.cause(won.run_id))
    if app.json:
        emit_json(run)
    else:
        emit(ended(run))


def _first(app: App, here: RunSession, asked: Sequence[str], give_up_after: int | None) -> Run:
    """The first run that runs; until then, print each one's reason to wait when it changes."""
    began, said = app.clock.now(), dict[str, str]()
    try:
        with stoppable(signal.SIGINT, KeyboardInterrupt) as interrupted:
            while True:
                interrupted()
                pause = here.watch()
                runs = [here.run(one) for one in asked]
                won = winner(run for run in runs if race_of(run) is not None)
                if won is not None:
                    return won
                if all(run.terminal for run in runs):
                    return runs[0]
                for run in runs:
                    waits = None if run.facts is None else run.facts.waits
                    why = run.state.value if waits is None else str(waits)
                    if said.get(run.run_id) != why:
                        said[run.run_id] = why
                        hint(f"{run.name}: {why}")
                left = None if give_up_after is None else began + give_up_after - app.clock.now()
                if left is not None and left <= 0:
                    raise WaitEnded("none of them ran in time; all were stopped: `steno ps` lists them")
                here.pause(pause if left is None else min(pause, left))
    except (KeyboardInterrupt, WaitEnded) as error:
        for one in asked:
            run = here.run(one)
            if not run.terminal:
                try:
                    here.stop(run, abort=False)
                except StenoError as problem:
                    hint(f"{run.name}: {problem}")
        if isinstance(error, KeyboardInterrupt):
            raise Detached("all of them were stopped: `steno ps` lists them") from None
        raise
