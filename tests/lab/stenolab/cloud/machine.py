"""A machine of the cloud (a droplet), from the order to its end."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any

from stenolab.cloud.behaviour import Behaviour
from stenolab.cloud.journal import journal
from stenolab.cloud.shim import Shim
from stenolab.cloud.wire import Reply, Request, Service

SSH_PORT = 22
SHIM_PORT = 10998
RUNNER_PORT = 10999
FIRST_ID = 400_000_001


class Machine:
    """A droplet with an sshd, a shim and, while a container runs, a runner; each may be refused or cut off."""

    def __init__(self, *, number: int, name: str, size: str, price: float, conduct: Behaviour, shim: Shim) -> None:
        self.number = FIRST_ID + number
        self.name = name
        self.size = size
        self.price = price  # dollars an hour
        self.ip = conduct.ip or f"10.0.{number // 250}.{number % 250 + 1}"
        self.created = time.time()
        self.deleted: float | None = None
        self.shim = shim
        self._reachable = True
        self._address_at = self.created + conduct.boot_s
        self._shim_at = self._address_at + conduct.shim_s
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()

    @property
    def has_address(self) -> bool:
        """True if it has booted and still exists."""
        return self.deleted is None and time.time() >= self._address_at

    def enter(self, port: int, connection: socket.socket) -> Service | None:
        """The service behind `port`, or None where nothing answers."""
        if not self._listens(port):
            return None
        with self._lock:
            self._connections = {known for known in self._connections if known.fileno() >= 0} | {connection}
        return lambda request: self._serve(port, request)

    def cut_off(self) -> None:
        """The network to it is gone; what runs on it goes on."""
        self._reachable = False
        self._hang_up()
        journal("cloud", machine=self.number, ip=self.ip, event="unreachable")

    def revive(self) -> None:
        """The network is back."""
        self._reachable = True
        journal("cloud", machine=self.number, ip=self.ip, event="reachable")

    def destroy(self) -> None:
        """It is gone, with everything on it, and no longer charged."""
        if self.deleted is not None:
            return
        self.deleted = time.time()
        self.shim.power_off()
        self._hang_up()
        journal("cloud", machine=self.number, event="destroyed", **self.bill())

    def bill(self) -> dict[str, Any]:
        """The cloud's charge for it, up to now if it still lives: micro-dollars, by the second of its life."""
        seconds = (self.deleted or time.time()) - self.created
        return {
            "ip": self.ip,
            "name": self.name,
            "size": self.size,
            "created": self.created,
            "deleted": self.deleted,
            "seconds": seconds,
            "micro_dollars": round(seconds / 3600 * self.price * 1e6),
        }

    def describe(self) -> dict[str, Any]:
        """As DigitalOcean's API describes it."""
        addresses = [{"type": "public", "ip_address": self.ip}] if self.has_address else []
        status = "archive" if self.deleted else "active" if self.has_address else "new"
        return {"id": self.number, "name": self.name, "status": status, "networks": {"v4": addresses}}

    def _listens(self, port: int) -> bool:
        if not (self._reachable and self.has_address):
            return False
        if port == RUNNER_PORT:
            return self.shim.runner is not None
        return port == SSH_PORT or (port == SHIM_PORT and time.time() >= self._shim_at)

    def _serve(self, port: int, request: Request) -> Reply:
        if port == SHIM_PORT:
            return self.shim(request)
        runner = self.shim.runner
        if port == SSH_PORT or runner is None:
            raise ConnectionResetError  # nobody there (any more): the connection breaks
        return runner(request)

    def _hang_up(self) -> None:
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
