"""The listener as a process: from its options to its end. `steno listener` and the tasks of a pool both start it."""

from __future__ import annotations

import logging
import signal
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from events.errors import StenoError

from .sandbox import ContainerLimits, Containers
from .server import DeadMan, ListenerServer
from .tasks import Tasks

DEVICES = ("/dev/kfd", "/dev/dri")  # of AMD's GPUs
_LOOK = 1.0  # seconds between looks at an engine that does not answer yet
_log = logging.getLogger("steno.listener")


class CannotListen(StenoError):
    """The listener cannot start as asked; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerOptions:
    """Times are seconds. `name`: of this listener, the same after a restart, and of no other on this engine."""

    name: str
    folder: Path  # where results wait until the engine has them
    token: str
    image: str
    memory: int  # bytes of a container
    cpus: float
    devices: tuple[str, ...] | None = None  # None: those of `DEVICES` that are there
    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    forgotten_after: float = 900.0
    waits: float = 0.0  # how long to wait for a container engine, and for its image, before giving up


def listen(options: ListenerOptions) -> bool:
    """Answer until SIGTERM, SIGINT or `POST /shutdown`; True: the engine was silent for too long.

    Raises:
        CannotListen: the folder or the address cannot be used, or `waits` is over and no kernel could run here.
    """
    there = options.devices or tuple(one for one in DEVICES if Path(one).exists())
    limits = ContainerLimits(
        image=options.image,
        memory=options.memory,
        cpus=options.cpus,
        devices=there,
        groups=tuple(sorted({Path(one).stat().st_gid for one in there if Path(one).exists()})),
    )
    with ExitStack() as stack:
        containers = stack.enter_context(closing(Containers(limits, name=options.name)))
        problems = _prepared(containers, options.waits)
        if options.waits and problems:
            raise CannotListen(" ".join(problems))
        try:
            tasks = stack.enter_context(closing(Tasks(containers, options.folder)))
        except OSError as error:
            raise CannotListen(f"{options.folder} cannot be used ({error.strerror}): give another --folder") from None
        dead_man = DeadMan(options.forgotten_after, lambda: tasks.idle)
        address = (options.host, options.port)
        try:
            server = ListenerServer(address, options.token, tasks, containers, dead_man, options.certificate)
        except OSError as error:
            why = error.strerror or error
            raise CannotListen(f"cannot listen at {options.host}:{options.port} ({why}): give another") from None
        if not problems:
            containers.remove_leftovers()
            containers.warm()
        scheme = "https" if options.certificate else "http"
        _log.info("listening at %s://%s:%s", scheme, *server.server_address[:2])

        def stop(*_: object) -> None:
            server.stopped = True

        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.signal(number, stop))
        return server.serve()


def _prepared(containers: Containers, waits: float) -> tuple[str, ...]:
    """What keeps kernels from running here; waits for the engine, and fetches an image that is not there."""
    until, fetched = time.monotonic() + waits, False
    while True:
        found = containers.health()
        if not found.problems or time.monotonic() >= until:
            for said in (*found.problems, *found.warnings):
                _log.warning("%s", said)
            return found.problems
        if found.engine is not None and not fetched:
            fetched = True
            containers.fetch()
        else:
            time.sleep(_LOOK)
