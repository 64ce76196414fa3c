"""`steno doctor`: could a task run now, and what to do where it could not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from cli.wiring.app import App
from cli.wiring.errors import NOT_SUCCEEDED, code_of
from cli.wiring.options import common, pass_app, project_option, provider_option
from cli.wiring.output import emit, emit_json
from engine.providers import registry

if TYPE_CHECKING:
    from engine.providers.checks import Check, Checkup
    from engine.providers.kind import ProviderKind

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red"), "skipped": ("–", "bright_black")}


@click.command("doctor")
@click.option("--provision", is_flag=True, help="Rent a machine and run the shipped MI300X example on it.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before money is spent.")
@provider_option
@project_option
@common
@pass_app
def command(app: App, provision: bool, yes: bool) -> None:
    """Check record, task file, server, token, project, backend, fleet, idle timeout and offers; say what to do.

    Nothing is changed and nothing is rented, unless --provision is given: then the worst-case cost is shown, you are
    asked, the MI300X example is run, and start-up time, exit status and cost are reported.

    Exits 3 if the server or the token fails, 4 if the project is not there, 1 if something else fails.

    \b
    Examples:
      steno doctor
      steno doctor --provider dstack --project main
      steno doctor --provision
    """
    if provision and not yes and not sys.stdin.isatty():
        raise click.UsageError("--provision spends money and there is nobody to ask: add -y")
    record, wanted = _record(app), _wanted(app, provision=provision)
    found = {kind.name: _checkup(app, kind, wanted) for kind in (*registry.built_in(), wanted)}
    problem = found[wanted.name].problem
    app.exit_code = (
        _code(record)
        or (0 if problem is None else code_of(problem))
        or next((code for one in found.values() if (code := _code(one.failed))), 0)
    )
    trial = found[wanted.name].trial if provision and not app.exit_code else None
    if trial is None or not app.json:
        _report(app, [record, *(check for one in found.values() for check in one.checks)], found, wanted.name)
    if trial is not None:
        from cli.wiring.provision import provision as rent

        rent(app, trial, wanted.name, yes=yes)


def _wanted(app: App, *, provision: bool) -> ProviderKind:
    """The provider of the settings; to rent a machine, one that has an example for it."""
    chosen = registry.kind(app.settings.provider)
    if not provision or chosen.has_trial:
        return chosen
    return next(kind for kind in registry.built_in() if kind.has_trial)


def _checkup(app: App, kind: ProviderKind, wanted: ProviderKind) -> Checkup:
    return kind.checkup(app.settings, clock=app.clock, ids=app.ids, wanted=kind is wanted)


def _record(app: App) -> Check:
    from cli.wiring.stores import reading
    from engine.providers.checks import Check, CheckState
    from events.errors import RecordNotFound, StenoError

    where = app.settings.record
    try:
        with reading(app) as record:
            message = f"{where}, {record.head().position:,} events"
    except RecordNotFound:
        return Check(name="record", message=f"{where} is not there yet; the first submit makes it")
    except StenoError as error:
        return Check(name="record", state=CheckState.FAILED, message=str(error), error=error)
    return Check(name="record", message=message)


def _code(check: Check | None) -> int:
    """The exit code that a check stands for; 0 if it did not fail."""
    if check is None or check.state != "failed":
        return 0
    return NOT_SUCCEEDED if check.error is None else code_of(check.error)


def _report(app: App, checks: list[Check], found: dict[str, Checkup], wanted: str) -> None:
    if app.json:
        rows = [{"name": check.name, "state": check.state, "said": check.message} for check in checks]
        ok = app.exit_code == 0 and all(check.state != "failed" for check in checks)
        details = {key: value for one in found.values() for key, value in one.details.items()}
        emit_json({"ok": ok, "checks": rows} | details)
        return
    width = max(len(check.name) for check in checks)

    def line(state: str, name: str, message: str) -> None:
        mark, colour = _MARKS[state]
        emit(f"{click.style(mark, fg=colour)} {name.replace('_', ' ').ljust(width)}  {message}")

    for check in checks:
        line(check.state, check.name, check.message)
    for name, one in found.items():
        if one.problem is not None:
            line("failed" if name == wanted else "skipped", name, str(one.problem))
        elif one.absent:
            line("skipped", name, "not configured, and not needed to run here")
    for one in found.values():
        if one.note is not None:
            emit(f"\n{one.note}")
