"""The part of the tour that is about machines: a cold start, a warm one, an idle shutdown, and the bill."""

from __future__ import annotations

import logging
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import click

from cli.wiring.output import emit
from cli.wiring.terminal import columns
from events.clock import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.wiring.app import App
    from engine.objects import RunObject, VmObject
    from engine.providers.base import Provider
    from events.store.record import Record

_RUNS = {
    "demo-works": "for n in 1 2 3; do echo step $n; sleep 0.5; done",
    "demo-fails": "echo loading; sleep 0.8; echo no weights.bin >&2; exit 3",
}
SETTINGS = {
    "local.price": ("STENO_LOCAL_PRICE", "1.99"),
    "local.boot": ("STENO_LOCAL_BOOT", "2s"),
    "local.gpu": ("STENO_LOCAL_GPU", "MI300X"),
    "vms.idle_timeout": ("STENO_IDLE_TIMEOUT", "3s"),
}
"""Setting → its variable and its value in the tour."""
_PATIENCE = 60 * SECOND
"""Microseconds after which a machine that does not go is left to its own backstop."""


def prepare(app: App) -> None:
    """Let this call run on a machine of the tour's, whatever the user's own settings are."""
    own = {"provider": "local", "vms.mode": "provider", "vms.max": "3", "vms.share": "any", "budget.total": "1400"}
    for name, value in (own | {name: value for name, (_, value) in SETTINGS.items()}).items():
        app.set_flag(name, value)


def machines(app: App) -> tuple[list[RunObject], tuple[VmObject, ...]]:
    """Two runs on one machine, each followed to its end, then the machine to its own."""
    from cli.providers import named
    from cli.stores import viewing, writing

    title("Two commands on a machine of this host that costs $1.99 an hour and boots in 2 s", app)
    typed("export " + " ".join(f"{variable}={value}" for variable, value in SETTINGS.values()), app)
    with writing(app) as record, closing(named(app, "local", record.store)) as provider:
        runs = [_run(app, record, provider, name, line) for name, line in _RUNS.items()]
        title("It idles for 3 s, and goes", app)
        typed("steno up", app)
        _until_gone(app, record, provider)
    if not app.json:
        _bill(app)
    with viewing(app) as (_, view):
        return runs, view.vms()


def _run(app: App, record: Record, provider: Provider, name: str, line: str) -> RunObject:
    from cli.render.runs import ended
    from cli.submitting import follow, submit
    from cli.task import described

    typed(f"steno submit --wait --name {name} -- {line!r}", app)
    run_id = app.ids.new()
    task = described(
        file=None, command=[line], flags={"name": name}, settings=app.settings, provider="local", run_id=run_id
    )
    submitted = submit(app, record, provider, task, run_id, stays=True)
    run = follow(app, record, provider, submitted, timeout=None, stays=True)
    if not app.json:
        emit(f"  {ended(run)}")
    return run


def _until_gone(app: App, record: Record, provider: Provider) -> None:
    """Record and control, saying what `steno up` says, until no machine is left that may be billed."""
    from cli.said import Said
    from cli.watching import watching

    said, deadline = Said(provider.source), app.clock.now() + _PATIENCE
    with watching(app, record, provider) as (watch, recorder), _lines(quiet=app.json):
        while any(vm.billed for vm in watch.world.state.vms.values()) and app.clock.now() < deadline:
            found = watch.round()
            said.round(found, watch, recorder, app.clock.now())
            recorder.effects.wait(min(found.pause, SECOND // 5))


class _Lines(logging.Handler):
    """Prints what a daemon would log, without its times."""

    def emit(self, record: logging.LogRecord) -> None:
        emit(f"  {record.getMessage()}")


@contextmanager
def _lines(*, quiet: bool) -> Iterator[None]:
    log, handler = logging.getLogger("steno.record"), _Lines(logging.CRITICAL + 1 if quiet else logging.INFO)
    level, propagate = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate


def _bill(app: App) -> None:
    from cli.money import books
    from cli.render.costs import table
    from cli.render.vms import listing
    from cli.stores import viewing
    from engine.money.report import cost_report

    title("What that cost", app)
    typed("steno vms", app)
    with viewing(app) as (_, view):
        emit(indented(listing(view.vms(), view.machine, lambda _: app.clock.now(), columns() - 2)))
    typed("steno costs --by run", app)
    with books(app, None) as found:
        emit(indented(table(cost_report(found.costs, "run"), columns() - 2)))


def title(text: str, app: App) -> None:
    """What comes next, where a person reads it."""
    if not app.json:
        emit("\n" + click.style(text, bold=True) + "\n")


def typed(line: str, app: App) -> None:
    """A command as the reader would type it."""
    if not app.json:
        from cli.render import paint

        emit(paint.dim(f"  $ {line}"))


def indented(text: str) -> str:
    """The text two columns further to the right."""
    return "\n".join(f"  {line}" if line else line for line in text.splitlines())
