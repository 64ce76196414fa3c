"""The cloud's one port: HTTP for its API, and CONNECT for a way into a machine.

A peer that wants a machine's port says `CONNECT <ip>:<port>`, as to a proxy; from then on the connection speaks HTTP
with what listens there. So no machine needs an address or a port of its own, nothing needs root, and labs never
collide.
"""

from __future__ import annotations

import json
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request. `json` is the decoded body, or {} if the body is not JSON."""

    method: str
    path: str  # without the query
    query: str
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer; `json` None is an empty body."""

    status: int = 200
    json: Any = None


Service = Callable[[Request], Reply]


class Machines(Protocol):
    """The agents of the cloud by their ports."""

    def enter(self, ip: str, port: int, connection: socket.socket) -> Service | None:
        """The service at that address, or None if the connection is refused."""


class Wire(ThreadingHTTPServer):
    """The listener. `api` answers plain requests, `machines` those that came in by CONNECT."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, api: Service, machines: Machines) -> None:
        self.api = api
        self.machines = machines
        super().__init__(("127.0.0.1", port), _Connection)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Wire
    service: Service | None = None

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (OSError, ValueError):  # the peer, or the machine, went away in mid-request
            self.close_connection = True

    def do_CONNECT(self) -> None:
        ip, _, port = self.path.rpartition(":")
        self.service = self.server.machines.enter(ip, int(port), self.connection)
        if self.service is None:
            self._send(Reply(status=502))
            self.close_connection = True
        else:
            self.send_response(200)
            self.end_headers()

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(method=self.command, path=path, query=query, headers=headers, body=self._read_body())
        try:
            reply = (self.service or self.server.api)(request)
        except OSError:
            raise
        except Exception:  # noqa: BLE001 - a fault of the lab itself must be seen as one, not as a network that broke
            traceback.print_exc()
            reply = Reply(status=500, json={"error": "the lab's own fault, see its log"})
        self._send(reply)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - http.server finds them by these names

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().strip() or b"0", 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _send(self, reply: Reply) -> None:
        data = b"" if reply.json is None else json.dumps(reply.json).encode()
        self.send_response(reply.status)
        if data:
            self.send_header("Content-Type", "application/json")
        if reply.status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Silence: `Journal` writes what matters."""
