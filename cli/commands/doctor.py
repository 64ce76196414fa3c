"""`steno doctor`: could a task run now, and what to do where it could not."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import click

from cli.wiring.app import App
from cli.wiring.errors import NOT_FOUND, NOT_SUCCEEDED, UNREACHABLE, code_of
from cli.wiring.options import common, pass_app, project_option, provider_option
from cli.wiring.output import emit, emit_json

if TYPE_CHECKING:
    from engine.providers.dstack.doctor import Check, Diagnosis

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red"), "skipped": ("–", "bright_black")}
_CODES = {"server": UNREACHABLE, "token": UNREACHABLE, "project": NOT_FOUND}


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
    here, code = _this_machine(app)
    app.exit_code = code
    there: Diagnosis | None = None
    why: str | None = None
    wanted = provision or app.settings.provider == "dstack"
    if wanted or app.settings.value("dstack.url") is not None:
        here.append(_task(app))
        there, why, code = _dstack(app)
        if wanted:
            app.exit_code = app.exit_code or code
    if there is not None:
        failed = next((check.name for check in there.checks if check.state == "failed"), None)
        if failed is not None:
            app.exit_code = app.exit_code or _CODES.get(failed, NOT_SUCCEEDED)
    rents = provision and there is not None and not app.exit_code
    if not (rents and app.json):
        _report(app, here, there, why, wanted=wanted)
    if rents and there is not None:
        from cli.provision import provision as rent

        rent(app, there, yes=yes)


def _this_machine(app: App) -> tuple[list[Check], int]:
    """What is checked without a network, and the exit code it stands for."""
    from engine.providers.dstack.doctor import Check, State

    checks = []
    record, code = _record(app)
    checks.append(record)
    shell = shutil.which("bash") or shutil.which("sh")
    said = f"commands run here with {shell}" if shell else "there is neither bash nor sh; install one"
    checks.append(Check(name="local", state=State.OK if shell else State.FAILED, said=said))
    code = code or (0 if shell else NOT_SUCCEEDED)
    machines, refused = _machines(app)
    return [*checks, machines], code or refused


def _task(app: App) -> Check:
    """Whether dstack would take the task file of this folder; without one, whether a plain command names an image."""
    from pathlib import Path

    from engine.errors import TaskInvalid
    from engine.providers.dstack.doctor import Check, State
    from engine.providers.dstack.settings import default_gpu
    from engine.providers.dstack.task import EXAMPLE_IMAGE, complete_task, needs_image
    from engine.providers.dstack.task_file import default_task_file, read_task_file
    from events.errors import UnreadableInput

    file, gpu = default_task_file(Path.cwd()), default_gpu(app.settings)
    if file is not None:
        try:
            complete_task(read_task_file(file), os.environ, file.name)
        except (TaskInvalid, UnreadableInput) as error:
            return Check(name="task", state=State.WARNING, said=str(error))
        return Check(name="task", state=State.OK, said=f"{file.name} is a valid task")
    if gpu is not None and needs_image({"resources": {"gpu": gpu}}):
        said = (
            f"a command without a task file asks for {gpu} (setting dstack.gpu) and needs --image, for example "
            f"--image {EXAMPLE_IMAGE}: dstack's default image supports only NVIDIA GPUs"
        )
        return Check(name="task", state=State.WARNING, said=said)
    return Check(name="task", state=State.OK, said="no .dstack.yml here; `steno submit -- COMMAND` needs none")


def _machines(app: App) -> tuple[Check, int]:
    """What machines of this host cost and how long they idle; or why the settings make no policy at all."""
    from engine.errors import NotConfigured
    from engine.money.words import rate, span
    from engine.providers.dstack.doctor import Check, State
    from engine.settings.policy import policy_from
    from engine.settings.values import price

    settings = app.settings
    try:
        policy = policy_from(settings, "local")
    except NotConfigured as error:
        return Check(name="machines", state=State.FAILED, said=str(error)), code_of(error)
    if policy.free:
        said = "machines here are free: each goes with its run, unless the task says idle_duration"
    else:
        ends = "idle for ever" if policy.idle_timeout is None else f"end after {span(policy.idle_timeout)} idle"
        cost = rate(price(settings.value("local.price") or "0"))
        said = f"machines here cost {cost} and {ends} ({settings.find('vms.idle_timeout').source})"
    return Check(name="machines", state=State.OK, said=said), 0


def _record(app: App) -> tuple[Check, int]:
    from cli.stores import reading
    from engine.providers.dstack.doctor import Check, State
    from events.errors import RecordNotFound, StenoError

    where = app.settings.record
    try:
        with reading(app) as record:
            said = f"{where}, {record.head().position:,} events"
    except RecordNotFound:
        return Check(name="record", state=State.OK, said=f"{where} is not there yet; the first submit makes it"), 0
    except StenoError as error:
        return Check(name="record", state=State.FAILED, said=str(error)), code_of(error)
    return Check(name="record", state=State.OK, said=said), 0


def _dstack(app: App) -> tuple[Diagnosis | None, str | None, int]:
    """What dstack says, or why it cannot be asked and the exit code that stands for."""
    from cli.example import example_task
    from engine.errors import NotConfigured, ProjectNotFound
    from engine.providers.dstack.doctor import diagnose
    from engine.providers.dstack.idle import Timeout
    from engine.providers.dstack.kind import DstackKind
    from engine.providers.dstack.settings import fleet_nodes
    from engine.settings.values import timeout as parse_timeout

    try:
        provider = DstackKind().open(app.settings, clock=app.clock, ids=app.ids, record=None)
    except (NotConfigured, ProjectNotFound) as error:
        return None, str(error), code_of(error)
    settings = app.settings
    key = settings.value("dstack.amddevcloud_api_key") is not None
    idle = settings.find("vms.idle_timeout")
    timeout = Timeout(limit=parse_timeout(idle.value or "off"), origin=idle.source)
    nodes = fleet_nodes(settings)
    try:
        found = diagnose(provider.client, example_task(), cloud_key_set=key, nodes=nodes, timeout=timeout)
        return found, None, 0
    finally:
        provider.close()


def _report(app: App, here: list[Check], there: Diagnosis | None, why: str | None, *, wanted: bool) -> None:
    checks = [*here, *(there.checks if there is not None else [_cloud_key(app)])]
    block = _block(app, there)
    if app.json:
        emit_json(
            {
                "ok": app.exit_code == 0 and all(check.state != "failed" for check in checks),
                "checks": [{"name": check.name, "state": check.state, "said": check.said} for check in checks],
                "dstack": None if there is None else {"version": there.server_version, "user": there.user},
                "dstack_problem": why,
                "offers": [] if there is None else there.offers,
                "server_configuration": block,
            }
        )
        return
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark, colour = _MARKS[check.state]
        emit(f"{click.style(mark, fg=colour)} {check.name.replace('_', ' ').ljust(width)}  {check.said}")
    if why is not None:
        mark, colour = _MARKS["failed" if wanted else "skipped"]
        emit(f"{click.style(mark, fg=colour)} {'dstack'.ljust(width)}  {why}")
    elif there is None:
        emit(
            f"{click.style('–', fg='bright_black')} {'dstack'.ljust(width)}  not configured, and not needed to run here"
        )
    if block is not None:
        emit(f"\nFor ~/.dstack/server/config.yml on the machine of dstack's server:\n\n{block}")


def _cloud_key(app: App) -> Check:
    """Whether the backend's key is set, said also where no dstack is asked."""
    from engine.providers.dstack.doctor import Check, State

    is_set = app.settings.value("dstack.amddevcloud_api_key") is not None
    said = (
        f"DSTACK_AMDDEVCLOUD_API_KEY is {'set' if is_set else 'not set'} here; dstack's server needs it, Steno does not"
    )
    return Check(name="cloud_key", state=State.OK, said=said)


def _block(app: App, there: Diagnosis | None) -> str | None:
    """The block the backend's cloud key belongs in, where there is a key here or the server lacks the backend."""
    from engine.providers.dstack.server_config import backend_block

    key = app.settings.value("dstack.amddevcloud_api_key") is not None
    project = app.settings.value("project") or "main"
    missing = there is not None and any(check.name == "backend" and check.state == "failed" for check in there.checks)
    return backend_block(project) if missing or key else None
