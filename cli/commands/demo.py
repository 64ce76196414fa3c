"""`steno demo`: two runs on this machine, their bill, and a replayed incident, in a few seconds."""

from __future__ import annotations

import logging
import os
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steno.cli.render.words import count, moment
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.output import emit, emit_json
from steno.cli.wiring.terminal import columns
from steno.cli.wiring.view import viewing
from steno.events.clock import SECOND

if TYPE_CHECKING:
    from steno.engine.objects import RunObject, VmObject
    from steno.events.store.record import Record

_OLD = "2025-12-sdk"
_RUNS = {
    "demo-works": "for n in 1 2 3; do echo step $n; sleep 0.5; done",
    "demo-fails": "echo loading; sleep 0.8; echo no weights.bin >&2; exit 3",
}
_SHOWN = {  # setting → (its variable, its value in the tour)
    "local.price": ("STENO_LOCAL_PRICE", "1.99"),
    "local.boot": ("STENO_LOCAL_BOOT", "2s"),
    "local.gpu": ("STENO_LOCAL_GPU", "MI300X"),
    "vms.idle_timeout": ("STENO_IDLE_TIMEOUT", "3s"),
}
_SETTINGS = {name: value for name, (_, value) in _SHOWN.items()} | {  # override the user's own settings
    "provider": "local",
    "vms.mode": "provider",
    "vms.max": "3",
    "vms.share": "any",
    "budget.total": "1400",
}
_TIMEOUT = 60 * SECOND  # microseconds to wait for the machine to stop


@steno_command("demo")
def demo_command(app: App) -> None:
    """It needs no account and no network, and costs nothing. The tour submits two commands and follows them: one
    succeeds, one fails. Their machine is a process of this host with a price. The first run waits for it to boot, the
    second finds it warm. It is stopped when it is idle. Then the recording of a real dstack server is replayed under
    the rules of the first poller, which called the run failed, and under Steno's rules. The tour shows the poll that
    decides. Its record is kept; its path is printed.

    With --json: {"record", "runs", "machines", "incident": {"trace", "diff", "settled_by"}}.

    \b
    Examples:
      steno demo
    """

    from steno.cli.render.pictures import draw
    from steno.projections.answers.timeline import timeline

    where = app.flags.get("record") or str(Path(tempfile.mkdtemp(prefix="steno-demo-")) / "record.db")
    inner = App()
    for name, value in (_SETTINGS | {"record": where}).items():
        inner.set_flag(name, value)
    inner.json = app.json
    runs, machines = _machines(inner)
    _title("Where the time went", inner)
    for run in runs:
        picture = draw(run, timeline(run, (), inner.clock.now()), columns() - 2)
        _printed(f"steno timeline {run.name}", inner, f"{picture}\n")
    incident = _incident(inner)
    if app.json:
        emit_json({"record": where, "runs": runs, "machines": machines, "incident": incident})
        return
    _title("What next", app)
    emit(
        f"  export STENO_RECORD={where}\n"
        f"  steno vms {machines[0].name}                the machine's history and bill\n"
        f"  steno explain {runs[1].name}         why it failed, and which poll shows it\n"
        f"  steno logs {runs[1].name}            what it printed\n"
        "  steno verify                     check that nothing in the record was changed\n"
        "  steno submit --wait -- COMMAND   run your own command\n"
        "  steno doctor --provider dstack   check whether your dstack can run one"
    )


def _machines(app: App) -> tuple[list[RunObject], tuple[VmObject, ...]]:
    """Follow two runs on one machine to their ends, then the machine to its end; returns them with the costs."""
    from steno.cli.render.money import costs_table
    from steno.cli.render.vms import listing
    from steno.projections.answers.costs import costs

    _title("Two commands on a machine of this host that costs $1.99 an hour and boots in 2 s", app)
    _typed("export " + " ".join(f"{variable}={value}" for variable, value in _SHOWN.values()), app)
    with app.writing() as record:
        runs = [_run(app, record, name, line) for name, line in _RUNS.items()]
        _title("It is idle for 3 s and is stopped", app)
        _typed("steno up --no-api", app)
        _until_gone(app, record)
    with viewing(app) as (_, view, _):
        _title("What that cost", app)
        _printed("steno vms", app, listing(view.vms(), view.machine, lambda _: app.clock.now(), columns() - 2))
        machines = view.vms()
        _printed("steno costs --by run", app, costs_table(costs(view.store, "run").report, columns() - 2))
    return runs, machines


def _run(app: App, record: Record, name: str, line: str) -> RunObject:
    from steno.cli.render.runs import ended
    from steno.cli.wiring.session import session
    from steno.cli.wiring.task import described

    _typed(f"steno submit --wait --name {name} -- {line!r}", app)
    run_id = app.ids.new()
    task = described(
        file=None, command=[line], flags={"name": name}, settings=app.settings, provider="local", run_id=run_id
    )
    with session(app, record, "local", stays=True) as here:
        run = here.to_the_end(here.submit(task, run_id))
    if not app.json:
        emit(f"  {ended(run)}")
    return run


class _Lines(logging.Handler):
    """Prints a daemon's log lines, without times."""

    def emit(self, record: logging.LogRecord) -> None:
        emit(f"  {record.getMessage()}")


def _until_gone(app: App, record: Record) -> None:
    """Record and control, with the log lines of `steno up`, until no machine is billed."""
    from steno.engine.runtime.controllers import watching
    from steno.engine.runtime.record_loop import DaemonLog

    log, root = logging.getLogger("steno.record"), logging.getLogger()
    before = root.handlers[:]
    deadline = app.clock.now() + _TIMEOUT
    with closing(app.provider("local", record.store)) as provider, watching(app, record, provider) as controller:
        log_lines = DaemonLog(controller)
        if not app.json:
            root.handlers[:] = [_Lines()]
            log.setLevel(logging.INFO)
        while any(vm.billed for vm in controller.world.state.vms.all()) and app.clock.now() < deadline:
            done = controller.watch()
            log_lines.round(done)
            controller.effects.wait(min(done.pause, SECOND // 5))
        root.handlers[:] = before


def _incident(app: App) -> dict[str, object]:
    """Replay the shipped recording under both rule sets and quote the poll that settles it."""
    from steno.cli.render.explain import fields
    from steno.cli.render.replay import comparison
    from steno.engine.replay.replay import incident_path, open_trace, replay_trace
    from steno.engine.replay.result import diff, diff_object
    from steno.projections.answers.evidence import quote

    path = incident_path()
    ours, theirs = replay_trace(path), replay_trace(path, _OLD)
    run = ours.runs[0]
    wanted = [replay.runs[0].evidence[-1] for replay in (ours, theirs)]
    quotes = {
        number: quote(poll, number, run.provider_id)
        for number, poll in open_trace(path)
        if poll is not None and number in wanted
    }
    settled, misread = (quotes[number] for number in wanted)
    if not app.json:
        _title("An incident, replayed: succeeded on the hardware, shown as failed", app)
        where = os.path.relpath(path)
        typed = f"steno replay {where if len(where) < len(str(path)) else path} --rules {_OLD} --diff current"
        _printed(typed, app, comparison(theirs, ours, diff(theirs, ours)))
        emit(f"\n  Poll {settled.position} ({moment(settled.observed_at)}) decides it: the job exited 0:\n")
        for line in fields(settled, columns()):
            emit(f"  {line}")
        later = count(misread.position - settled.position, "poll")
        emit(f"\n  {_OLD} waited for the run's own status and took this for a failure,\n  {later} later:\n")
        for line in fields(misread, columns())[:3]:
            emit(f"  {line}")
    return {
        "trace": str(path),
        "diff": diff_object(theirs, ours),
        "settled_by": {
            "position": settled.position,
            "fields": [{"path": field.path, "value": field.value} for field in settled.fields],
        },
    }


def _title(text: str, app: App) -> None:
    if not app.json:
        emit("\n" + click.style(text, bold=True) + "\n")


def _typed(line: str, app: App) -> None:
    if not app.json:
        emit(click.style(f"  $ {line}", dim=True))


def _printed(line: str, app: App, text: str) -> None:
    """Print a command and its output, indented by two columns; nothing with --json."""
    _typed(line, app)
    if not app.json:
        emit("\n".join(f"  {row}" if row else row for row in text.split("\n")))
