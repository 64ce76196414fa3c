"""`steno demo`: what Steno is for, in a few seconds, with nothing but this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.tour import indented, title, typed
from cli.wiring.app import App
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit, emit_json
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from engine.objects import RunObject
    from engine.replay.result import Replay
    from projections.models.evidence import Quote

_OLD = "2025-12-sdk"


@click.command("demo")
@common
@pass_app
def command(app: App) -> None:
    """A real tour on this machine: two runs, their machine and its bill, then a replayed incident. No account, no
    network, no cost.

    Two commands are submitted, one that succeeds and one that fails, and followed live. They run on a machine that is
    a process of this host with a price: the first waits until it is up, the second finds it warm; then it idles for
    too long, and is ended. Then a recording of a genuine dstack server is replayed under the rules of the first poller,
    which called the run failed, and under ours, and the poll that settles it is quoted. The demo's record is kept and
    named at the end.

    With --json: {"record", "runs", "machines", "incident": {"trace", "diff", "settled_by"}}.

    \b
    Examples:
      steno demo
    """
    from cli import tour
    from cli.wiring.logging_setup import log_for_data

    log_for_data()
    where = app.flags.get("record") or _folder()
    inner = App()
    inner.set_flag("record", where)
    inner.json = app.json
    tour.prepare(inner)
    runs, machines = tour.machines(inner)
    _timelines(inner, runs)
    incident = _incident(inner)
    if app.json:
        emit_json({"record": where, "runs": runs, "machines": machines, "incident": incident})
        return
    title("What next", app)
    emit(
        f"  export STENO_RECORD={where}\n"
        f"  steno vms {machines[0].name}                the life of that machine, and what each part of it cost\n"
        f"  steno explain {runs[1].name}         why it failed, by which poll, what would flip it\n"
        f"  steno logs {runs[1].name}            what it printed\n"
        "  steno verify                     that nothing in the record was changed\n"
        "  steno submit --wait -- COMMAND   a command of yours\n"
        "  steno doctor --provider dstack   whether your dstack could run one"
    )


def _folder() -> str:
    import tempfile

    return str(Path(tempfile.mkdtemp(prefix="steno-demo-")) / "record.db")


def _timelines(app: App, runs: list[RunObject]) -> None:
    """Draw where the time of both went."""
    if app.json:
        return
    from cli.render.timeline import draw
    from projections.models.timeline import timeline

    title("Where their time went", app)
    for run in runs:
        typed(f"steno timeline {run.name}", app)
        emit(indented(draw(run, timeline(run, (), app.clock.now()), columns() - 2)))
        emit("")


def _incident(app: App) -> dict[str, object]:
    """Replay the shipped recording under both rule sets and quote the poll that settles it."""
    from engine.replay.diff import diff, diff_object
    from engine.replay.incident import incident_path
    from engine.replay.trace import open_trace, replay_trace
    from projections.models.evidence import quote

    path = incident_path()
    ours, theirs = replay_trace(path), replay_trace(path, _OLD)
    run = ours.runs[0]
    wanted = {replay.runs[0].evidence[-1] for replay in (ours, theirs)}
    quotes = {
        number: quote(poll, number, run.provider_id)
        for number, poll in open_trace(path)
        if poll is not None and number in wanted
    }
    settled = quotes[run.evidence[-1]]
    if not app.json:
        from cli.render.replay import comparison

        title("An incident, replayed: succeeded on the hardware, shown as failed", app)
        where = os.path.relpath(path)
        typed(f"steno replay {where if len(where) < len(str(path)) else path} --rules {_OLD} --diff current", app)
        emit(indented(comparison(theirs, ours, diff(theirs, ours))))
        _tell(theirs, settled, quotes[theirs.runs[0].evidence[-1]])
    fields = [{"path": field.path, "value": field.value} for field in settled.fields]
    return {
        "trace": str(path),
        "diff": diff_object(theirs, ours),
        "settled_by": {"position": settled.position, "fields": fields},
    }


def _tell(theirs: Replay, settled: Quote, misread: Quote) -> None:
    from cli.render.explain import fields
    from cli.render.words import count, moment

    later = count(misread.position - settled.position, "poll")
    emit(f"\n  Poll {settled.position} ({moment(settled.observed_at)}) settles it; the job had exited 0:\n")
    for line in fields(settled, columns()):
        emit(f"  {line}")
    emit(f"\n  {theirs.rules.name} waited for the run's own status, and read this as failure,\n  {later} later:\n")
    for line in fields(misread, columns())[:3]:
        emit(f"  {line}")
