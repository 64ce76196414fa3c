"""`steno submit` and `steno rerun`: submit a task to a provider, or a run once more."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from steno.cli.wiring.app import App, StenoCommand
from steno.cli.wiring.options import project_option, provider_option, runs_argument
from steno.cli.wiring.output import emit, emit_json, hint
from steno.cli.wiring.time_arguments import length
from steno.cli.wiring.view import caught_up_view
from steno.engine.providers import registry
from steno.engine.providers.kind import ProviderKind
from steno.engine.settings.table import PROFILES
from steno.engine.wire import wire

if TYPE_CHECKING:
    from steno.cli.wiring.session import RunSession
    from steno.engine.providers.task import Completed


class TaskCommand(StenoCommand):
    """A command that also takes the options of providers; installed packages are searched only for an unknown option or
    help.
    """

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> click.Context:
        """Parse; retry with the options of other packages if an option is unknown or help is wanted."""
        self._extend(registry.built_in())
        if "--help" in args:
            self._extend_all()
        try:
            return super().make_context(info_name, list(args), *more, **extra)
        except click.NoSuchOption:
            if not self._extend_all():
                raise
            return super().make_context(info_name, args, *more, **extra)

    def _extend_all(self) -> bool:
        return self._extend(map(registry.kind, registry.names()))

    def _extend(self, kinds: Iterable[ProviderKind]) -> bool:
        """Add the missing options; returns whether there were any."""
        there = {name for param in self.params for name in param.opts}
        missing = [option for kind in kinds for option in kind.options if option.flag not in there]
        self.params += [
            click.Option(
                [option.flag, option.field],
                metavar=option.metavar,
                multiple=option.multiple,
                type=click.Choice(option.choices) if option.choices else str,
                help=option.help,
            )
            for option in missing
        ]
        return bool(missing)


@click.command("submit", cls=TaskCommand)
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1)
@click.option(
    "-f", "--file", "file", metavar="FILE", type=click.Path(path_type=Path), help="Task file; else ./.dstack.yml."
)
@click.option("--wait", is_flag=True, help="Follow the run to its end; exit 1 if it does not succeed.")
@click.option("-q", "--quiet", is_flag=True, help="With --wait: print states only, not the run's output.")
@click.option("--timeout", metavar="DURATION", help="With --wait: stop waiting after this long (90s, 15m, 2h).")
@provider_option
@project_option
@click.option("--name", metavar="NAME", help="The run's name; else the file's, else a generated one.")
@click.option("--image", metavar="IMAGE", help="Container image; AMD GPUs need one.")
@click.option(
    "--env",
    "-e",
    metavar="NAME[=VALUE]",
    multiple=True,
    help="Environment variable; without =VALUE the value comes from your shell.",
)
@click.option("--gpu", metavar="NAME:COUNT", help="GPU: MI300X:1, H100:80GB:2, 24GB..")
@click.option("--cpu", metavar="RANGE", help="Processors: 8, 4..16.")
@click.option("--memory", metavar="RANGE", help="Memory: 32GB, 16GB...")
@click.option("--disk", metavar="RANGE", help="Disk: 100GB, 100GB..500GB.")
@click.option(
    "--creation-policy",
    type=click.Choice(["reuse", "reuse-or-create", "create"]),
    help="Only warm machines, also new machines, or only a new machine of its own.",
)
@click.option(
    "--idle-duration",
    metavar="DURATION",
    help="Keep the machine this long after the run: 5m, 0m, off; a shorter `vms.idle_timeout` wins.",
)
@click.option(
    "--profile",
    metavar="NAME",
    shell_complete=lambda _context, _param, begun: [name for name in PROFILES if name.startswith(begun)],
    help=f"A profile of dstack's profiles.yml, or how long to keep the machine: {', '.join(PROFILES)}.",
)
@click.option(
    "--fallback",
    metavar="GPU,GPU",
    help="GPU models to ask for, one after the other, where there is no capacity for the task's own.",
)
@click.option("--max-duration", metavar="DURATION", help="End the run after this long: 30m, 2h, off.")
def submit_command(
    app: App,
    /,
    words: tuple[str, ...],
    file: Path | None,
    wait: bool,
    quiet: bool,
    timeout: str | None,
    **flags: object,
) -> None:
    """The task is ./.dstack.yml, the file of -f, or the command after --. It runs on this machine, or on dstack with
    --provider dstack (or STENO_PROVIDER, or steno.toml). Steno records the request before it calls the provider, so a
    crash never starts a task twice. Flags override the file.

    With --wait, the run's output is printed on stdout while it runs, its states on stderr; of a failure also the line
    of the output that explains it. The exit code is 0 if the run succeeded, 3 if the provider failed to take it, and
    otherwise 1. There is no time limit without --timeout. After the timeout, or on Ctrl-C (exit 130), the run goes on.
    Of a task with a schedule, --wait ends with exit code 0 once the provider says when it is due.

    If the provider does not answer, the command says so after a few seconds and exits 3. The message says whether the
    request stays or ended.

    A run is refused (exit 6) if its worst-case cost exceeds the remaining budget, also of an owner (`steno budget`).
    If the machine limit (`vms.max`), or a limit of runs, machines or dollars a day of an owner is reached, the run
    waits in Steno's queue; without --wait the command says so and exits 0.

    While `steno up` or `steno record` runs, Steno ends idle machines and watches the budget. Otherwise nobody does: the
    budget is checked now, and dstack itself ends a machine that idled for vms.idle_timeout, or for the task's
    idle_duration if that is shorter.

    If enough runs of its kind started before, it also prints when it may start.

    With --json: {"run_id", "provider_id", "name", "provider", "project", "position", "state", "start"} with start as in
    `steno explain --json`, with --wait the run object and no output; provider_id is null while it waits.

    \b
    Examples:
      steno submit --wait -- make test
      steno submit --provider dstack --wait
      steno submit --provider dstack -f train.dstack.yml --max-duration 2h
      steno submit --gpu MI300X:1 --image rocm/rocm-terminal -- rocm-smi
    """
    from steno.cli.wiring.session import session
    from steno.cli.wiring.task import described

    limit, run_id, settings = _limit(timeout, wait=wait, quiet=quiet), app.ids.new(), app.settings
    task = described(file=file, command=words, flags=flags, settings=settings, run_id=run_id)
    with app.writing() as record, session(app, record, settings.provider) as here:
        _submit(app, here, task, run_id, wait=wait, quiet=quiet, limit=limit)


@click.command("rerun", cls=TaskCommand)
@runs_argument
def rerun_command(
    app: App, /, runs: tuple[str, ...], wait: bool, quiet: bool, timeout: str | None, **flags: object
) -> None:
    """It has its recorded configuration, with the flags over it, and the same provider and project. It keeps the run's
    name, unless Steno generated it. Secret values are not recorded: a variable that held one is taken from your shell.
    Several runs are submitted in turn; with --wait each after the end of the one before. With --json as `steno submit`.

    \b
    Examples:
      steno rerun matmul --wait
      steno rerun matmul --memory 64GB --wait
      steno rerun -l
    """
    from steno.cli.wiring.session import session
    from steno.cli.wiring.task import repeated
    from steno.engine.submit.completion import repeatable
    from steno.projections.answers.record_pages import request_of

    limit, tasks = _limit(timeout, wait=wait, quiet=quiet), []
    app.several = len(runs) > 1
    with app.writing(create=False) as record:
        with caught_up_view(record) as view:
            rows = [view.row(run) for run in runs]
        for row in rows:  # each can be submitted before the first is
            run_id, before = app.ids.new(), repeatable(request_of(record, row.run_id), row.name or row.run_id)
            tasks.append((run_id, before, repeated(before, flags=flags, settings=app.settings, run_id=run_id)))
        for run_id, before, task in tasks:
            with session(app, record, before.provider, project=before.project) as here:
                _submit(app, here, task, run_id, wait=wait, quiet=quiet, limit=limit)


_OWN = {param.name for param in rerun_command.params} | {"words", "file", "project", "provider"}
rerun_command.params[2:2] = [param for param in submit_command.params if param.name not in _OWN]


def _limit(timeout: str | None, *, wait: bool, quiet: bool) -> int | None:
    limit = None if timeout is None else length(timeout)
    if limit is not None and not wait:
        raise click.UsageError("--timeout is how long to wait: add --wait")
    if quiet and not wait:
        raise click.UsageError("--quiet leaves out the output that --wait prints: add --wait")
    return limit


def _submit(
    app: App, here: RunSession, task: Completed, run_id: str, *, wait: bool, quiet: bool, limit: int | None
) -> None:

    from steno.cli.render.explain import quoted
    from steno.cli.render.runs import ended
    from steno.cli.wiring.session import code_of_failure

    submitted = here.submit(task, run_id)
    run = here.to_the_end(submitted, timeout=limit, output=not quiet and not app.json) if wait else None
    if run is None:
        submitted = here.look(submitted)
    name = submitted.name
    done = run is not None and (run.state == "succeeded" or run.next_at is not None)
    cause = None if run is None or run.state == "succeeded" else here.cause(run_id)
    if cause is not None and not done:
        app.exit_code = code_of_failure(here.run(run_id), cause)
    start = here.start(run_id) if run is None else None
    value = msgspec.structs.asdict(submitted) | {"start": None if start is None else wire(start)}
    queued = value.pop("queued")
    if app.json:
        emit_json(value if run is None else run, lines=app.several)
    elif run is not None:
        emit(ended(run))
        if cause is not None:
            emit(cause.why)
        if not done and (printed := here.output_cause(run)) is not None and printed.line is not None:
            emit(f"{printed.cause}: {quoted(printed.line)}")
        hint(f"`steno timeline {name}`, `steno explain {name}`, `steno logs {name}`")
    else:
        emit(name)
        if queued is not None:
            hint(f"queued: {queued}; `steno up` submits it, `steno stop {name}` cancels it")
        else:
            hint(f"submitted to {submitted.provider}; `steno up` follows it, `steno logs {name} -f` shows its output")
        if start is not None and start.unknown is None:
            hint(str(start))
