"""The listener as a process: from its options to its end. `steno listener` and the tasks of a pool both start it."""

from __future__ import annotations

import logging
import signal
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from steno.events.errors import StenoError

from .daemon import SandboxUnavailable
from .gpu_log import GpuLog
from .sandbox import ContainerLimits, Containers
from .server import ListenerServer
from .tasks import Tasks

DEVICES = ("/dev/kfd", "/dev/dri")  # of AMD's GPUs
_LOOK = 1.0  # seconds between looks at an engine that does not answer yet
_log = logging.getLogger("steno.listener")


class CannotListen(StenoError):
    """The listener cannot start as asked; the message says what to change."""


def listen(
    *,
    name: str,
    folder: Path,
    token: str,
    image: str,
    memory: int,
    cpus: float,
    devices: tuple[str, ...] | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    certificate: Path | None = None,
    forgotten_after: float = 900.0,
    waits: float = 0.0,
) -> bool:
    """Answer until SIGTERM, SIGINT or `POST /shutdown`; True: the engine was silent for too long.

    Args:
        name: of this listener, the same after a restart, and of no other on this engine.
        folder: where results wait until the engine has them.
        memory: bytes of a container.
        devices: None: those of `DEVICES` that are there.
        waits: seconds to wait for a container engine before giving up; above 0 its image is fetched.

    Raises:
        CannotListen: the folder or the address cannot be used, or `waits` is over and no kernel could run here.
    """
    there = devices or tuple(path for path in DEVICES if Path(path).exists())
    with ExitStack() as stack:
        limits = ContainerLimits(image=image, memory=memory, cpus=cpus, devices=there)
        containers = stack.enter_context(closing(Containers(limits, name=name)))
        problems = _prepared(containers, waits)
        if waits and problems:
            raise CannotListen(" ".join(problems))
        try:
            tasks = stack.enter_context(closing(Tasks(containers, folder)))
        except OSError as error:
            raise CannotListen(f"{folder} cannot be used ({error.strerror}): give another --folder") from None
        try:
            gpus = stack.enter_context(closing(GpuLog(folder)))
            server = ListenerServer((host, port), token, tasks, containers, forgotten_after, certificate, gpus.text)
        except OSError as error:
            why = error.strerror or error
            raise CannotListen(f"cannot listen at {host}:{port} ({why}): give another") from None
        if not problems:
            containers.remove_leftovers()
            containers.warm()
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.signal(number, server.stop))
        scheme = "https" if certificate else "http"
        _log.info("listening at %s://%s:%s", scheme, *server.server_address[:2])
        return server.serve()


def _prepared(containers: Containers, waits: float) -> tuple[str, ...]:
    """Why kernels cannot run here, after waiting for the engine and fetching a missing image."""
    until = time.monotonic() + waits
    while (health := containers.health()).starting and time.monotonic() < until:
        time.sleep(_LOOK)
    if waits and health.engine is not None and health.problems:
        with suppress(SandboxUnavailable):  # the next look at its health says why
            containers.daemon.pull(containers.limits.image)
        health = containers.health()
    for sentence in (*health.problems, *health.warnings):
        _log.warning("%s", sentence)
    return health.problems
