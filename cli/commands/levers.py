"""`steno pause`, `drain`, `resume`, and stops of many runs: levers, each one event with who and why."""

from __future__ import annotations

import getpass
import sys
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from steno.cli.render.words import count, money, short
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.errors import Detached, code_of
from steno.cli.wiring.options import why_option
from steno.cli.wiring.output import hint, show
from steno.cli.wiring.time_arguments import length as length_of
from steno.cli.wiring.view import caught_up_view, newest
from steno.engine.errors import LeverNotFound
from steno.engine.state.gpu_name import model_of
from steno.engine.state.levers import SHORT, Lever, lasts, nothing_to_stop, sentence, stopped_by
from steno.engine.state.levers import scope as scope_of
from steno.engine.wire import money as dollars
from steno.engine.wire import wire
from steno.events.errors import StenoError
from steno.events.levers import LeverAction, LeverPulled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steno.engine.state.run import Run
    from steno.events.store.record import Record


_user = click.option("--user", metavar="NAME", help="Runs that this user submitted.")
_gpu = click.option("--gpu", metavar="MODEL", help="Runs that may ask for this GPU.")
_source = click.option("--source", metavar="PROVIDER[/PROJECT]", help="Of this source.")
_for = click.option(
    "--for", "length", metavar="DURATION", help="So long (30m, 2h; 31d at most); else until `steno resume`."
)


@steno_command("pause")
@_user
@_gpu
@_source
@_for
@why_option()
def pause_command(app: App, length: str | None, why: str, **scope: str | None) -> None:
    """No run that it is about gets a place from now on, until `steno resume` or for a time. Runs are still accepted,
    wait in Steno's queue, and say why. What was placed or handed over to its provider runs on. Without an option it is
    about every run.

    With --json the lever: {"lever_id", "action", "user", "gpu", "source", "state", "vm_id", "until", "why", "by", "at",
    "runs", "machines", "spent_usd", "cost_usd_per_hour"}; "runs" are the names of those that wait.

    \b
    Examples:
      steno pause --why "maintenance until six"
      steno pause --user bob --gpu MI300X --why "the benchmark needs them"
    """
    until = None if length is None else app.clock.now() + length_of(length)
    with app.writing() as record:
        pulled(app, record, "pause", why, until=until, **scope)


@steno_command("drain")
@_source
@_for
@why_option(default="not said")
def drain_command(app: App, length: str | None, source: str | None, why: str) -> None:
    """Nothing new starts, runs that wait rent no machine, and each machine that Steno made ends as soon as a poll shows
    it idle, not after its timeout. A machine that somebody keeps (`steno vms keep`) stays. `vms.max = 0` in the
    settings does the same without end. With --json as `steno pause`.

    \b
    Examples:
      steno drain --for 2h --why "the cluster moves"
    """
    until = None if length is None else app.clock.now() + length_of(length)
    with app.writing() as record:
        pulled(app, record, "drain", why, source=source, until=until)


@steno_command("resume")
@click.argument("levers", metavar="[LEVER...]", nargs=-1)
@_user
@_gpu
@_source
@why_option(default="")
def resume_command(app: App, levers: tuple[str, ...], why: str, **scope: str | None) -> None:
    """Release levers: those named, by id or its beginning; those with exactly these options; else all of your own that
    hold runs back. A machine that is kept is released by name only. Runs get their places as if they had never waited;
    what was stopped stays stopped. With --json: {"released": [ids], "position"}.

    \b
    Examples:
      steno resume
      steno resume --user bob
      steno resume 5f0c2a91
    """
    from steno.engine.live.journal import Journal
    from steno.engine.submit.levers import in_force, lever_named, release
    from steno.projections.read_models.view import waits

    me, position, released = getpass.getuser(), 0, []
    given = {name: value for name, value in scope.items() if value is not None}
    if "gpu" in given:
        scope["gpu"] = model_of(given["gpu"])
    with app.writing(create=False) as record:
        with caught_up_view(record) as view:
            chosen = [lever_named(view.state, word, app.clock.now()) for word in dict.fromkeys(levers)]
            there = [lever for lever in in_force(view.state, app.clock.now()) if lever.pulled.action != "keep"]
        for lever in there if not levers else ():
            mine = all(getattr(lever.pulled, name) == scope[name] for name in given)
            if mine and (given or lever.pulled.by == me):
                chosen.append(lever)
        for lever in chosen or there:
            hint(sentence(lever))
        look = newest(record, lambda _: app.clock.now())
        for name in [lever.pulled.lever_id for lever in chosen]:
            with suppress(LeverNotFound):  # it ended meanwhile, by itself or by somebody else
                lever_id, position = release(Journal(record), name, why=why, by=me, look=look)
                released.append(lever_id)
        if not released:
            raise LeverNotFound("there is no such lever in force, so nothing was released")
        with caught_up_view(record) as view:
            waiting = sum(map(waits, view.state.runs.open()))
    if waiting:
        hint(f"runs that wait: {waiting}; `steno up` or `steno record` gives them their places")
    text = f"released {', '.join(lever_id[:SHORT] for lever_id in released)}"
    show(app, {"released": released, "position": position}, text)


def refuse_any(app: App, record: Record, action: LeverAction, why: str, each: Iterable[dict[str, Any]]) -> None:
    """Raise as `refuse_form` and `refuse_pull` if any of the levers cannot be pulled, before the first is."""
    from steno.engine.submit.levers import refuse_form, refuse_pull

    with caught_up_view(record) as view:
        for fields in each:
            wanted = LeverPulled(lever_id="", action=action, why=why, by=getpass.getuser(), **fields)
            refuse_form(wanted)
            refuse_pull(view.state, wanted, app.clock.now())


def pulled(app: App, record: Record, action: LeverAction, why: str, **fields: Any) -> None:
    """Pull a lever, and show it. Raises as `refuse_form` and `refuse_pull`."""
    from steno.engine.decide.limits import unknown_owner
    from steno.engine.live.journal import Journal
    from steno.engine.submit.levers import pull, refuse_form
    from steno.projections.answers.levers import lever_object

    wanted = LeverPulled(lever_id=app.ids.new(), action=action, why=why, by=getpass.getuser(), **fields)
    refuse_form(wanted)
    made, position = pull(Journal(record), wanted, newest(record, lambda _: app.clock.now()))
    if position is None:
        hint("the same was in force already")
    with caught_up_view(record) as view:
        about = lever_object(view, made, app.clock.now())
        owner = f"user/{made.user}" if made.user is not None else f"gpu/{model_of(made.gpu or '')}"
        nobody = None if owner == "gpu/" else unknown_owner(owner, view.state)
    waiting = f"; it is about {count(len(about.runs), 'run')} now: {', '.join(about.runs)}" if about.runs else ""
    show(app, wire(about), f"{sentence(Lever(position=0, at=about.at, pulled=made))}{waiting}")
    if nobody is not None:
        hint(f"{owner}: {nobody}")


def stop_many(app: App, why: str, *, yes: bool, user: str | None, state: str | None, vm: str | None) -> None:
    """Show what the lever would stop, ask, pull it, and wait for the ends. Raises `Detached` if the answer is no."""
    from steno.engine.submit.levers import refuse_form
    from steno.projections.answers.levers import reach

    with app.writing(create=False) as record:
        with caught_up_view(record) as view:
            vm_id = None if vm is None else view.vm_row(vm).vm_id
            planned = LeverPulled(lever_id="", action="stop", why=why, by="", user=user, state=state, vm_id=vm_id)
            refuse_form(planned)
            runs = stopped_by(planned, view.state.runs.open())
            about = reach(view, planned, app.clock.now())
        if not runs and not lasts(planned):
            show(app, {"lever_id": None, "runs": []}, nothing_to_stop(planned))
            return
        for run in runs:
            hint(f"{run.name or run.run_id[:8]}  {run.state}  {'' if run.terms is None else run.terms.submitter}")
        rate = f"{money(dollars(about.cost_hourly))}/h for {count(len(about.machines), 'machine')}"
        hint(f"{short(dollars(about.spent))} so far, {rate}")
        later = "; nothing of it starts until `steno resume`" if lasts(planned) else ""
        question = f"Stop {scope_of(planned)}: {count(len(runs), 'run')}{later}?"
        if not yes and not sys.stdin.isatty():
            raise click.UsageError(f"there is nobody to ask: add --yes to stop {count(len(runs), 'run')}")
        if not yes and not click.confirm(question, err=True):
            raise Detached("nothing was stopped")
        pulled(app, record, "stop", why, user=user, state=state, vm_id=vm_id)
        _follow(app, record, runs)


def _follow(app: App, record: Record, runs: Iterable[Run]) -> None:
    """Carry the stops out where no other process does, and say how each run ended."""
    from steno.cli.render.runs import ended
    from steno.cli.wiring.session import END_TIMEOUT, session

    def place(run: Run) -> tuple[str, str]:
        return run.provider, run.project or ""

    end = app.clock.now() + END_TIMEOUT
    for (provider, project), there in groupby(sorted(runs, key=place), place):
        try:
            with session(app, record, provider, project=project or None, adopt=False) as here:
                for run in there:
                    name = run.name or run.run_id
                    after = here.follow(run.run_id, name, timeout=max(0, end - app.clock.now()))
                    hint(f"{name} has not ended yet: `steno show {name}`" if after is None else ended(after))
        except StenoError as error:
            app.exit_code = code_of(error)
            hint(f"{provider}/{project}: {error}; the stops stay recorded, and `steno up` carries them out")
