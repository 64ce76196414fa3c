"""Plain tunnels through the cloud's single port in place of the server's SSH tunnels."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
import threading
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from dstack._internal.core.errors import SSHError

T = TypeVar("T")
TIMEOUT_S = 60.0
"""An absent agent is refused at once: this is only for a machine that is busy with other tests."""
SSH_PORT = 22

_loop = asyncio.new_event_loop()
_cloud: tuple[str, int] = ("127.0.0.1", 0)


def install(cloud_port: int) -> None:
    """From now on the server reaches machines through the cloud at that port."""
    global _cloud  # noqa: PLW0603 - one server, one cloud, one process
    _cloud = ("127.0.0.1", cloud_port)
    threading.Thread(target=_loop.run_forever, name="tunnels", daemon=True).start()
    try:
        module = importlib.import_module("dstack._internal.server.services.runner.pool")
    except ImportError:  # before 0.20
        module = importlib.import_module("dstack._internal.server.services.runner.ssh")
    module.SSHTunnel = Tunnel  # type: ignore[attr-defined]


class Tunnel:
    """As much of dstack's SSHTunnel as the server uses: local sockets (Unix or TCP) that lead to ports of a machine."""

    def __init__(
        self,
        destination: str,
        identity: object = None,
        forwarded_sockets: Iterable[Any] = (),
        control_sock_path: Path | None = None,
        **_: object,
    ) -> None:
        self._ip = destination.rpartition("@")[2]
        self._pairs = tuple(forwarded_sockets)
        self._control = control_sock_path
        self._servers: list[asyncio.Server] = []

    def open(self) -> None:
        if not self.check():
            raise SSHError(f"ssh: connect to host {self._ip} port {SSH_PORT}: Connection refused")
        self._servers = [_wait(self._listen(pair)) for pair in self._pairs]
        if self._control is not None:
            self._control.touch()

    def check(self) -> bool:
        try:
            _, writer = _wait(_enter(self._ip, SSH_PORT))
        except OSError:
            return False
        _loop.call_soon_threadsafe(writer.close)
        return True

    def close(self) -> None:
        for server in self._servers:
            _loop.call_soon_threadsafe(server.close)
        self._servers = []
        if self._control is not None:
            self._control.unlink(missing_ok=True)

    def __enter__(self) -> Tunnel:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _listen(self, pair: Any) -> asyncio.Server:
        async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                far_reader, far_writer = await _enter(self._ip, pair.remote.port)
            except OSError:
                writer.close()
                return
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

        path = getattr(pair.local, "path", None)
        if path is None:
            return await asyncio.start_server(join, "127.0.0.1", pair.local.port)
        Path(path).unlink(missing_ok=True)
        return await asyncio.start_unix_server(join, path=str(path))


async def _enter(ip: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to a port of a machine.

    Raises:
        OSError: nothing answers there.
    """
    reader, writer = await asyncio.open_connection(*_cloud)
    writer.write(f"CONNECT {ip}:{port} HTTP/1.1\r\n\r\n".encode())
    try:
        answer = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        answer = b""
    if b" 200 " not in answer.partition(b"\r\n")[0]:
        writer.close()
        raise ConnectionRefusedError(f"{ip}:{port}")
    return reader, writer


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def _wait(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _loop).result(TIMEOUT_S)


def bind(port: int) -> socket.socket:
    """A bound socket for the server's own port, which the lab keeps reserved by one of its own (SO_REUSEPORT)."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", port))
    return listener
