"""`steno submit`: submit a task to a provider."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.wiring.app import App
from cli.wiring.errors import NOT_SUCCEEDED
from cli.wiring.options import common, pass_app, project_option, provider_option
from cli.wiring.output import emit, emit_json, hint
from cli.wiring.task_options import TaskCommand, task_options

if TYPE_CHECKING:
    from cli.wiring.session import SubmittedRun
    from engine.objects import RunObject


@click.command("submit", cls=TaskCommand, context_settings={"ignore_unknown_options": False})
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1)
@click.option(
    "-f", "--file", "file", metavar="FILE", type=click.Path(path_type=Path), help="Task file; else ./.dstack.yml."
)
@click.option("--wait", is_flag=True, help="Follow the run to its end; exit 1 if it does not succeed.")
@click.option("--timeout", metavar="DURATION", help="With --wait: stop looking after this long (90s, 15m, 2h).")
@provider_option
@project_option
@task_options
@common
@pass_app
def command(
    app: App, /, words: tuple[str, ...], file: Path | None, wait: bool, timeout: str | None, **flags: object
) -> None:
    """Submit a task: ./.dstack.yml, the file of -f, or the command after --.

    It runs on this machine, or on dstack with --provider dstack (or STENO_PROVIDER, or steno.toml). Steno records the
    request before it calls the provider, so a crash never starts a task twice. Flags override the file.

    With --wait the exit code is 0 if the run succeeded and 1 if not. There is no time limit without --timeout. After
    the timeout, or on Ctrl-C (exit 130), the run goes on.

    If the provider does not answer, the command says so after a few seconds and exits 3. The message says whether the
    request stays or ended.

    A run is refused (exit 6) if its worst-case cost exceeds the remaining budget. If the machine limit (`vms.max`) is
    reached, the run waits in Steno's queue; without --wait the command says so and exits 0.

    While `steno up` or `steno record` runs, Steno ends idle machines and watches the budget. Otherwise nobody does: the
    budget is checked now, and dstack itself ends a machine that idled for vms.idle_timeout, or for the task's
    idle_duration if that is shorter.

    With --json: {"run_id", "provider_id", "name", "provider", "project", "position", "state"}, with --wait the run
    object; provider_id is null while it waits.

    \b
    Examples:
      steno submit --wait -- make test
      steno submit --provider dstack --wait
      steno submit --provider dstack -f train.dstack.yml --max-duration 2h
      steno submit --gpu MI300X:1 --image rocm/rocm-terminal -- rocm-smi
    """
    from cli.wiring.logging_setup import log_for_data
    from cli.wiring.providers import named
    from cli.wiring.session import session, to_the_end
    from cli.wiring.stores import writing
    from cli.wiring.task import described
    from cli.wiring.time_arguments import length

    log_for_data()
    limit = None if timeout is None else length(timeout)
    if limit is not None and not wait:
        raise click.UsageError("--timeout is how long to wait: add --wait")
    run_id = app.ids.new()
    settings = app.settings
    task = described(file=file, command=words, flags=flags, settings=settings, run_id=run_id)
    with writing(app) as record:
        provider = named(app, settings.provider, record.store)
        try:
            with session(app, record, provider) as here:
                submitted = here.submit(task, run_id)
                if not wait:
                    _say(app, here.look(submitted), provider.name, provider.project)
                    return
                run = to_the_end(here, submitted, timeout=limit)
        finally:
            provider.close()
    if run.state != "succeeded":
        app.exit_code = NOT_SUCCEEDED
    _print(app, run)


def _say(app: App, submitted: SubmittedRun, provider: str, project: str) -> None:
    if app.json:
        emit_json(
            {
                "run_id": submitted.run_id,
                "provider_id": submitted.provider_id,
                "name": submitted.name,
                "provider": provider,
                "project": project,
                "position": submitted.position,
                "state": submitted.state,
            }
        )
        return
    emit(submitted.name)
    if submitted.queued is not None:
        hint(f"queued: {submitted.queued}; `steno record` submits it, `steno stop {submitted.name}` cancels it")
        return
    hint(f"submitted to {provider}; `steno record` follows it, `steno logs {submitted.name} -f` shows its output")


def _print(app: App, run: RunObject) -> None:
    if app.json:
        emit_json(run)
        return
    from cli.render.runs import ended

    emit(ended(run))
    hint(f"`steno timeline {run.name}`, `steno explain {run.name}`, `steno logs {run.name}`")
