"""`steno listener`: the service inside a GPU machine that runs strangers' kernels in containers."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import click

from cli.wiring.app import App, steno_command
from cli.wiring.logging_setup import log_for_daemon
from cli.wiring.options import setting_option

_SHORTEST = 32


@steno_command("listener")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), metavar="N", help="0: any.")
@setting_option("--image", "kernel.image", metavar="IMAGE", help="Container image with compiler and Python.")
@setting_option("--memory", "container.memory_limit", metavar="SIZE", help="Memory of a container: 16GB.")
@setting_option("--cpus", "container.cpu_limit", metavar="N", help="Processors of a container: 4.")
@click.option("--device", "devices", multiple=True, metavar="PATH", help="GPU device; default: /dev/kfd, /dev/dri.")
@click.option("--tls", type=click.Path(path_type=Path), metavar="FILE", help="PEM file with certificate and key.")
@click.option(
    "--forgotten-after", default="15m", show_default=True, metavar="DURATION", help="Silence after which to end."
)
@click.option("--at-end", metavar="COMMAND", help="Command that then stops this machine: poweroff.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/var/lib/steno-listener"),
    show_default=True,
    metavar="FOLDER",
    help="Where results wait until the engine has them.",
)
def listener_command(
    app: App,
    *,
    host: str,
    port: int,
    devices: tuple[str, ...],
    tls: Path | None,
    forgotten_after: str,
    at_end: str | None,
    folder: Path,
) -> None:
    """Judge strangers' kernels on this machine, each program in a container of its own, until told to stop.

    POST /execute takes a task. GET /tasks/ID returns its output and its result, DELETE /tasks/ID confirms that the
    result was read, POST /cancel/ID stops the task. GET /health reports what is missing (503). Every request needs the
    token in STENO_LISTENER_TOKEN. One task runs at a time.

    If its engine is silent for --forgotten-after and no task runs, the listener runs --at-end and exits 0: so the
    machine stops even if no recorder runs. It refuses to start without a token (exit 2). Without a container engine it
    refuses tasks: strangers' code never runs outside a container.

    \b
    Examples:
      STENO_LISTENER_TOKEN=$(openssl rand -hex 32) steno listener
      steno listener --image my/rocm:6.4 --memory 32GB
      steno listener --forgotten-after 10m30s --at-end poweroff
    """
    import logging

    from engine.errors import NotConfigured
    from engine.listener.service import CannotListen, ListenerOptions, listen
    from engine.settings.values import positive_duration
    from events.clock import SECOND

    log_for_daemon(json=app.json)
    log = logging.getLogger("steno.listener")
    token = app.settings.value("listener.token") or ""
    if len(token) < _SHORTEST:
        raise NotConfigured(f"set a token of {_SHORTEST} characters: STENO_LISTENER_TOKEN=$(openssl rand -hex 32)")
    try:
        limit = positive_duration(forgotten_after) / SECOND
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--forgotten-after") from None
    options = ListenerOptions(
        name=folder.name,
        folder=folder,
        token=token,
        image=app.settings.parsed("kernel.image"),
        memory=app.settings.parsed("container.memory_limit"),
        cpus=app.settings.parsed("container.cpu_limit"),
        devices=devices or None,
        host=host,
        port=port,
        certificate=tls,
        forgotten_after=limit,
    )
    try:
        forgotten = listen(options)
    except CannotListen as error:
        raise NotConfigured(str(error)) from None
    if forgotten:
        log.warning("the engine has been silent for %s: stopping this machine", forgotten_after)
        if at_end is not None:
            subprocess.run(shlex.split(at_end), check=False)
