"""A loopback server that answers however a test says, and a provider connected to it."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Callable

from steno.engine.providers.dstack.provider import DstackProvider
from steno.engine.providers.dstack.settings import address
from steno.events.clock import RandomIds, SystemClock

TOKEN = "a-token-that-must-not-leak"
LOADED_S = 60.0
"""Long for an answer, also on a machine that is busy with other tests."""
Answers = Callable[[socket.socket, bytes, int], bool]
"""(connection, request, how many requests came before) → keep the connection."""


class FaultyServer:
    """A loopback server that does with each request what `answers` says."""

    def __init__(self, answers: Answers) -> None:
        self.requests: list[bytes] = []
        self.over = threading.Event()
        """The client has gone."""
        self._providers: list[DstackProvider] = []
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                while request := _read(self.request):
                    outer.requests.append(request)
                    if not answers(self.request, request, len(outer.requests) - 1):
                        return

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def provider(self, read_timeout: float = LOADED_S, url: str | None = None) -> DstackProvider:
        where = address(url or self.url, TOKEN, "main")
        self._providers.append(DstackProvider(where, clock=SystemClock(), ids=RandomIds(), read_timeout=read_timeout))
        return self._providers[-1]

    def close(self) -> None:
        self.over.set()
        for provider in self._providers:
            provider.close()
        self.server.shutdown()
        self.server.server_close()


def _read(connection: socket.socket) -> bytes:
    whole = b""
    while b"\r\n\r\n" not in whole:
        piece = connection.recv(65536)
        if not piece:
            return b""
        whole += piece
    head, _, body = whole.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def respond(status: int, body: bytes, kind: str = "application/json", extra: str = "") -> Answers:
    def answer(connection: socket.socket, request: bytes, before: int) -> bool:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
        connection.sendall(head.encode() + body)
        return True

    return answer


def reset(connection: socket.socket) -> bool:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    return False
