"""What `steno doctor` says of dstack, and the example that it can rent a machine for."""

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from engine.errors import NotConfigured, ProjectNotFound, TaskInvalid
from engine.providers.dstack.doctor import Diagnosis, backend_block, cloud_key, diagnose
from engine.providers.dstack.idle import IdleSetting
from engine.providers.dstack.provider import DstackProvider
from engine.providers.dstack.settings import TASK_FILES, default_gpu, fleet_nodes
from engine.providers.dstack.task import EXAMPLE_IMAGE, complete_task, needs_image, normal_task
from engine.providers.kind import Check, CheckState, Checkup, Trial
from engine.providers.task import read_task_file
from engine.settings.settings import Settings
from engine.settings.values import timeout
from events.clock import SECOND
from events.errors import StenoError, UnreadableInput

BOOT = 15 * 60 * SECOND
"""Longest life of a machine before its task starts that a worst case counts; dstack gives up earlier."""
END = 15 * 60 * SECOND
"""How long dstack goes on trying to end a machine."""
_EXAMPLE = "rocm-dstack-hotaisle"


def checkup(settings: Settings, open_: Callable[[], DstackProvider], *, wanted: bool) -> Checkup:
    """Server, token, project, backend, fleet, idle timeout and offers, for the shipped example.

    Args:
        wanted: the settings name dstack; otherwise a server is asked only if its address is set.
    """
    key = settings.value("dstack.amddevcloud_api_key") is not None
    found: Diagnosis | None = None
    problem: StenoError | None = None
    checks: tuple[Check, ...] = ()
    if wanted or settings.value("dstack.url") is not None:
        checks = (_task(settings),)
        idle = settings.find("vms.idle_timeout")
        limit = IdleSetting(limit=timeout(idle.value or "off"), origin=idle.source)
        try:
            with closing(open_()) as provider:
                found = diagnose(
                    provider.client, example(), cloud_key_set=key, nodes=fleet_nodes(settings), timeout=limit
                )
        except (NotConfigured, ProjectNotFound) as error:
            problem = error
    checks += found.checks if found is not None else (cloud_key(is_set=key),)
    without = found is not None and any(
        one.name == "backend" and one.state is CheckState.FAILED for one in found.checks
    )
    block = backend_block(settings.value("project") or "main") if without or key else None
    return Checkup(
        checks=checks,
        problem=problem,
        absent=found is None and problem is None,
        details={
            "dstack": None if found is None else {"version": found.server_version, "user": found.user},
            "dstack_problem": None if problem is None else str(problem),
            "offers": [] if found is None else found.offers,
            "server_configuration": block,
        },
        note=None
        if block is None
        else f"For ~/.dstack/server/config.yml on the machine of dstack's server:\n\n{block}",
        trial=None if found is None else _trial(found),
    )


def example_file() -> Path:
    """The task file of the shipped MI300X example: inside the installed package, or in the source tree beside it.

    Raises:
        StenoError: this installation has no examples.
    """
    root = Path(__file__).parents[3]
    for folder in (root / "cli" / "_examples", root / "examples"):
        file = folder / _EXAMPLE / TASK_FILES[0]
        if file.is_file():
            return file
    raise StenoError(f"this installation has no examples/{_EXAMPLE}; take it from Steno's source")


def example() -> dict[str, object]:
    """The example as a complete task."""
    file = example_file()
    return complete_task(read_task_file(file), os.environ, str(file))


def worst_case(price: int, *, run: int, idle: int) -> int:
    """What one machine can cost at most, micro-dollars: boot, run, idle and the longest end.

    Args:
        price: micro-dollars an hour.
        run: longest time of the task itself, microseconds (`max_duration`).
        idle: how long the machine may idle after it, microseconds (`idle_duration`).
    """
    hour = 3600 * SECOND
    return -(-price * (BOOT + run + idle + END) // hour)


def _trial(found: Diagnosis) -> Trial:
    """At the price of the dearest machine that could be taken: dstack takes the next where the first has none."""
    price = max((offer.price for offer in found.offers if offer.usable), default=0)
    task = normal_task(example())
    run, idle = _microseconds(task, "max_duration"), _microseconds(task, "idle_duration")
    return Trial(
        file=example_file(), hourly=price, run=run, idle=idle, worst_case=worst_case(price, run=run, idle=idle)
    )


def _microseconds(task: Mapping[str, object], field: str) -> int:
    value = task.get(field)
    return value * SECOND if isinstance(value, int) and value > 0 else 0


def _task(settings: Settings) -> Check:
    """Whether dstack would take the task file of this folder; without one, whether a plain command names an image."""
    file = next((file for file in map(Path, TASK_FILES) if file.is_file()), None)
    gpu = default_gpu(settings)
    if file is not None:
        try:
            complete_task(read_task_file(file), os.environ, file.name)
        except (TaskInvalid, UnreadableInput) as error:
            return Check(name="task", state=CheckState.WARNING, message=str(error))
        return Check(name="task", message=f"{file.name} is a valid task")
    if gpu is not None and needs_image({"resources": {"gpu": gpu}}):
        message = (
            f"a command without a task file asks for {gpu} (setting dstack.gpu) and needs --image, for example "
            f"--image {EXAMPLE_IMAGE}: dstack's default image supports only NVIDIA GPUs"
        )
        return Check(name="task", state=CheckState.WARNING, message=message)
    return Check(name="task", message=f"no {TASK_FILES[0]} here; `steno submit -- COMMAND` needs none")
