"""The listener's HTTP service: a few requests of one engine, each with the machine's token."""

from __future__ import annotations

import json
import secrets
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from steno.engine.errors import Conflict

from .daemon import EngineHealth
from .sandbox import Containers
from .tasks import QueueFull, TaskNotFound, Tasks

LARGEST = 16 << 20  # bytes of a request
WAIT = 30.0  # seconds that a request for news waits at most
_LOOK = 0.1  # seconds
_FRESH = 5.0  # seconds for which the engine is assumed to be well
_STATUSES = {TaskNotFound: 404, Conflict: 409, QueueFull: 429}


class ListenerServer(ThreadingHTTPServer):
    """Answers at (host, port). `forgotten_after`: seconds without a request after which the machine ends, once no task
    runs. `certificate`: a PEM file with its key; None: plain HTTP, for a tunnel. `samples`: lines about the GPUs.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        token: str,
        tasks: Tasks,
        containers: Containers,
        forgotten_after: float,
        certificate: Path | None = None,
        samples: Callable[[], str] = str,
    ) -> None:
        super().__init__(address, _Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.token, self.tasks, self.containers = token, tasks, containers
        self.forgotten_after = forgotten_after
        self.samples = samples
        self.heard_at = time.monotonic()  # the engine's last request
        self._well = -_FRESH  # when the engine was
        self.stopped = False  # set from other threads and from signal handlers, so it is not a lock

    @property
    def left(self) -> float:
        """Seconds until the machine is to end; a task that runs may end first."""
        return self.heard_at + self.forgotten_after - time.monotonic()

    @property
    def forgotten(self) -> bool:
        return self.left <= 0 and self.tasks.idle

    def serve(self) -> bool:
        """Answer until `stopped`, or until the machine is forgotten: True then."""
        thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="steno-listener", daemon=True)
        thread.start()
        try:
            while not self.stopped and not self.forgotten:
                time.sleep(_LOOK)
            return not self.stopped
        finally:
            self.shutdown()
            thread.join()
            self.server_close()

    def stop(self, *_: object) -> None:
        self.stopped = True

    def problems(self) -> tuple[str, ...]:
        """Why programs cannot run, as of a few seconds ago at most."""
        if self.stopped:
            return ("This machine is stopping.",)
        return () if time.monotonic() - self._well < _FRESH else self.examine().problems

    def examine(self) -> EngineHealth:
        health = self.containers.health()
        self._well = -_FRESH if health.problems else time.monotonic()
        return health


class _Handler(BaseHTTPRequestHandler):
    server: ListenerServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "steno", ""
    timeout = 60.0  # seconds of silence after which a connection is closed
    wbufsize = -1  # an answer in one piece: else its body waits 40 ms for the acknowledgement of its head

    def log_message(self, *_: object) -> None:
        """Log nothing: the engine's record has every request."""

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        if secrets.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            self.server.heard_at = time.monotonic()
            try:
                status, answer = self._answer()
            except (TaskNotFound, Conflict, QueueFull) as error:
                status, answer = _STATUSES[type(error)], {"detail": str(error)}
            except (ValueError, RecursionError) as error:  # JSON that is nested too deep is the latter
                self.close_connection = True
                status, answer = 400, {"detail": str(error)}
        else:
            self.close_connection = True  # its body was not read
            status, answer = 401, {"detail": "the machine's token is needed: Authorization: Bearer …"}
        data = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True  # the engine asks again

    do_POST = do_DELETE = do_GET  # noqa: N815 - as http.server has it

    def _answer(self) -> tuple[int, dict[str, Any]]:
        """Status and object. Raises the errors of `_STATUSES`, and ValueError."""
        server, tasks, address = self.server, self.server.tasks, urlsplit(self.path)
        words = dict(parse_qsl(address.query))
        wait = max(0.0, min(WAIT, float(words.get("wait", "0"))))
        match (self.command, *address.path.strip("/").split("/")):
            case ("GET", "health"):
                health = server.examine()
                facts = {
                    "ok": not health.problems,
                    **health._asdict(),
                    "image": server.containers.limits.image,
                    "devices": server.containers.limits.devices,
                    "idle": tasks.idle,
                    "ends_in_seconds": round(max(0.0, server.left)),
                }
                return (503 if health.problems else 200), facts
            case ("GET", "samples"):
                return 200, {"text": server.samples()}
            case ("POST", "execute"):
                body = self._body()
                if problems := server.problems():
                    return 503, {"detail": " ".join(problems)}
                task = tasks.execute(str(body.get("task_id", "")), body.get("job"), str(body.get("name", "")))
                return 202, {"task_id": task.task_id, "state": task.state}
            case ("GET", "tasks"):
                version, listed = tasks.listing(int(words.get("known", "0")), wait)
                return 200, {"version": version, "tasks": listed}
            case ("GET", "tasks", task_id):
                task, lines = tasks.news(task_id, max(0, int(words.get("after", "0"))), wait)
                return 200, {"task_id": task_id, "state": task.state, "code": task.code, "lines": lines}
            case ("POST", "cancel", task_id):
                return 200, {"task_id": task_id, "state": tasks.cancel(task_id).state}
            case ("DELETE", "tasks", task_id):
                tasks.acknowledge(task_id)
                return 200, {"task_id": task_id}
            case ("POST", "shutdown"):
                if not tasks.idle:
                    raise Conflict("a task runs here")
                self.close_connection = server.stopped = True
                return 200, {"detail": "this machine is stopping"}
        self.close_connection = True
        return 404, {"detail": "there is /health, /samples, /execute, /tasks, /tasks/{id}, /cancel/{id} and /shutdown"}

    def _body(self) -> dict[str, Any]:
        size = int(self.headers.get("Content-Length", "-1"))
        if not 0 <= size <= LARGEST:
            raise ValueError(f"a request has a Content-Length of at most {LARGEST} bytes")
        body = json.loads(self.rfile.read(size))
        if not isinstance(body, dict):
            raise ValueError("a JSON object is expected: {task_id, job}")  # noqa: TRY004 - it is the sender's mistake
        return body
