"""`steno doctor`: could a task run now, and what to do where it could not; `--provision` rents a machine to see it."""

import sys
from contextlib import suppress

import click

from steno.cli.render.words import lasted, money, short
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.errors import NOT_SUCCEEDED, Detached, code_of
from steno.cli.wiring.options import project_option, provider_option
from steno.cli.wiring.output import emit, emit_json
from steno.engine.providers import registry
from steno.engine.providers.kind import Check, CheckState, Checkup, Trial
from steno.engine.wire import money as dollars
from steno.events.clock import SECOND, duration, parse_time
from steno.events.errors import RecordNotFound, StenoError

_REQUESTS = 1_000  # the newest, whose users are known
_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red"), "skipped": ("–", "bright_black")}


@steno_command("doctor")
@click.option("--provision", is_flag=True, help="Rent a machine and run the shipped MI300X example on it.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before money is spent.")
@provider_option
@project_option
def doctor_command(app: App, provision: bool, yes: bool) -> None:
    """It checks record, task file, server, token, project, backend, fleet, idle timeout and offers. Fleet, idle timeout
    and offers are those of ./.dstack.yml; without one, of the shipped example.

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
    from steno.engine.submit.kernel_orders import checkup

    record, decisions, wanted = _record(app), _decisions(app), registry.kind(app.settings.provider)
    if provision and not wanted.has_trial:
        wanted = next(kind for kind in registry.built_in() if kind.has_trial)
    checkups = {
        kind.name: kind.checkup(app.settings, clock=app.clock, ids=app.ids, wanted=kind is wanted, trial=provision)
        for kind in dict.fromkeys((*registry.built_in(), wanted))
    }
    mine = checkups[wanted.name]
    app.exit_code = (
        _code(record)
        or (0 if mine.problem is None else code_of(mine.problem))
        or next((code for each in checkups.values() if (code := _code(each.failed))), 0)
    )
    trial = mine.trial if provision and not app.exit_code else None
    if trial is None or not app.json:
        routes = _routes(app)
        app.exit_code = app.exit_code or next(map(_code, routes), 0)
        checks = [
            record,
            *decisions,
            *routes,
            *(check for each in checkups.values() for check in each.checks),
            checkup(app.settings),
        ]
        _report(app, checks, checkups, wanted.name)
    if trial is not None:
        _rent(app, trial, wanted.name, yes=yes)


def _record(app: App) -> Check:
    where = app.settings.record
    try:
        with app.reading() as record:
            message = f"{where}, {record.head().position:,} events"
    except RecordNotFound:
        return Check(name="record", message=f"{where} is not there yet; the first submit makes it")
    except StenoError as error:
        return Check(name="record", state=CheckState.FAILED, message=str(error), error=error)
    return Check(name="record", message=message)


def _decisions(app: App) -> list[Check]:
    """The result of the background audit of `steno up`; nothing before its first look."""
    from steno.projections.answers.decision_audit import last_audit

    audit = None
    with suppress(StenoError), app.reading() as record:
        audit = last_audit(record)
    if audit is None:
        return []
    made = f"{audit.exact + audit.older:,} follow from the record, up to event {audit.position:,}"
    if not audit.differing:
        return [Check(name="decisions", message=made)]
    message = f"{made}; {audit.differing:,} do not: see `steno audit`"
    return [Check(name="decisions", state=CheckState.WARNING, message=message)]


def _routes(app: App) -> list[Check]:
    """The check of the routes of notices, and of their owners; nothing without routes."""
    from steno.engine.runtime.controllers import routes_of

    try:
        routes = routes_of(app.settings)
    except StenoError as error:
        return [Check(name="notices", state=CheckState.FAILED, message=str(error), error=error)]
    state, message = CheckState.OK, "they go to " + ", ".join(route.name or "the webhook" for route in routes)
    with suppress(StenoError), app.reading() as record:
        newest = record.read(types={"RunRequested"}, backwards=True, limit=_REQUESTS)
        users = {getattr(stored.data, "submitter", "") for stored in newest}
        for owner in sorted({route.owner for route in routes if users and route.owner is not None} - users):
            state, message = CheckState.WARNING, f"{message}; no user {owner} requested any of the newest runs"
    return [Check(name="notices", state=state, message=message)] if routes else []


def _code(check: Check | None) -> int:
    """The exit code of a failed check; 0 if it did not fail."""
    if check is None or check.state != "failed":
        return 0
    return NOT_SUCCEEDED if check.error is None else code_of(check.error)


def _report(app: App, checks: list[Check], checkups: dict[str, Checkup], wanted: str) -> None:
    if app.json:
        rows = [{"name": check.name, "state": check.state, "said": check.message} for check in checks]
        ok = app.exit_code == 0 and all(check.state != "failed" for check in checks)
        details = {key: value for each in checkups.values() for key, value in each.details.items()}
        emit_json({"ok": ok, "checks": rows} | details)
        return
    width = max(len(check.name) for check in checks)

    def line(state: str, name: str, message: str) -> None:
        mark, colour = _MARKS[state]
        emit(f"{click.style(mark, fg=colour)} {name.replace('_', ' ').ljust(width)}  {message}")

    for check in checks:
        line(check.state, check.name, check.message)
    for name, checkup in checkups.items():
        if checkup.problem is not None:
            line("failed" if name == wanted else "skipped", name, str(checkup.problem))
        elif checkup.absent:
            line("skipped", name, "not configured, and not needed to run here")
    for checkup in checkups.values():
        if checkup.note is not None:
            emit(f"\n{checkup.note}")


def _rent(app: App, trial: Trial, provider_name: str, *, yes: bool) -> None:
    """Show the worst case, ask, run the provider's example, and report start-up time, exit status and cost."""
    from steno.cli.render.runs import ended
    from steno.cli.wiring.session import session
    from steno.cli.wiring.task import described

    run_id, most = app.ids.new(), dollars(trial.worst_case)
    task = described(
        file=trial.file, command=(), flags={}, settings=app.settings, provider=provider_name, run_id=run_id
    )
    terms = (
        f"{money(dollars(trial.hourly))}/h for start, {duration(trial.run)} of running, "
        f"{duration(trial.idle)} of idling and the end"
    )
    question = f"Running {task.name} can cost {money(most)} at most ({terms}). Rent it?"
    if not yes and not click.confirm(question, err=True):
        raise Detached("nothing was rented")
    with app.writing() as record, session(app, record, provider_name) as here:
        run = here.to_the_end(here.submit(task, run_id))
    if run.state != "succeeded":
        app.exit_code = NOT_SUCCEEDED
    began = None
    if run.submitted_at is not None and run.started_at is not None:
        began = (parse_time(run.started_at) - parse_time(run.submitted_at)) / SECOND
    if app.json:
        emit_json({"run": run, "startup_seconds": began, "worst_case_usd": most})
        return
    emit(f"\n{ended(run)}")
    emit(f"start-up  {lasted(began) if began is not None else 'never started'}")
    emit(f"exit      {run.exit_status if run.exit_status is not None else '–'}")
    emit(f"cost      {short(run.cost_usd or run.provider_cost_usd)} so far, {money(most)} at most")
