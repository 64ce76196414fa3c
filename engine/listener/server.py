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
from urllib.parse import parse_qs, urlsplit

from engine.errors import Conflict

from .sandbox import Containers
from .tasks import QueueFull, TaskNotFound, Tasks

LARGEST = 16 << 20  # bytes of a request
WAIT = 30.0  # seconds that a question for news waits at most
_SOCKET = 60.0  # seconds of silence after which a connection is closed
_LOOK = 0.1  # seconds
_FRESH = 5.0  # seconds for which the engine is believed to be well


class DeadMan:
    """Ends a machine that its engine has forgotten: after `limit` seconds without a word from it, once no task runs."""

    def __init__(self, limit: float, idle: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._idle = idle
        self._clock = clock
        self._heard = clock()

    def hear(self) -> None:
        """The engine said something."""
        self._heard = self._clock()

    @property
    def left(self) -> float:
        """Seconds until the machine is to end; a task that runs may end first."""
        return self._heard + self._limit - self._clock()

    @property
    def due(self) -> bool:
        return self.left <= 0 and self._idle()


class ListenerServer(ThreadingHTTPServer):
    """Answers at (host, port). `certificate`: a PEM file with its key; None: plain HTTP, for a tunnel."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        token: str,
        tasks: Tasks,
        containers: Containers,
        dead_man: DeadMan,
        certificate: Path | None = None,
    ) -> None:
        super().__init__(address, _Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.token, self.tasks, self.containers, self.dead_man = token, tasks, containers, dead_man
        self._examined: tuple[float, tuple[str, ...]] = (-_FRESH, ())
        self.stopped = False  # set from other threads and from signal handlers, so it is no lock

    def serve(self) -> bool:
        """Answer until `stopped`, or until the engine was silent for too long: True then."""
        thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="steno-listener", daemon=True)
        thread.start()
        try:
            while not self.stopped:
                time.sleep(_LOOK)
                if self.dead_man.due:
                    return True
            return False
        finally:
            self.shutdown()
            thread.join()
            self.server_close()

    def problems(self) -> tuple[str, ...]:
        """Why no program can run, by what was seen a few seconds ago at most."""
        if self.stopped:
            return ("This machine is stopping.",)
        at, found = self._examined
        if time.monotonic() - at > _FRESH or found:
            found = self.containers.health().problems
            self._examined = time.monotonic(), found
        return found

    def health(self) -> tuple[int, dict[str, Any]]:
        """Status and object of `GET /health`."""
        found = self.containers.health()
        self._examined = time.monotonic(), found.problems
        said = {
            "ok": not found.problems,
            "engine": found.engine,
            "runc": found.runc,
            "image": self.containers.limits.image,
            "devices": list(self.containers.limits.devices),
            "free_bytes": found.free_bytes,
            "problems": list(found.problems),
            "warnings": list(found.warnings),
            "idle": self.tasks.idle,
            "ends_in_seconds": round(max(0.0, self.dead_man.left)),
        }
        return (200 if said["ok"] else 503), said


class _Handler(BaseHTTPRequestHandler):
    server: ListenerServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "steno", ""
    timeout = _SOCKET
    wbufsize = -1  # an answer in one piece: else its body waits 40 ms for the client's word on its head

    def do_GET(self) -> None:
        self._answered("GET")

    def do_POST(self) -> None:
        self._answered("POST")

    def do_DELETE(self) -> None:
        self._answered("DELETE")

    def log_message(self, *_: object) -> None:
        """Nothing: the engine's record says what was asked."""

    def _answered(self, method: str) -> None:
        given = self.headers.get("Authorization", "")
        if not secrets.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            self.close_connection = True  # its body was not read
            self._say(401, {"detail": "the machine's token is needed: Authorization: Bearer …"})
            return
        self.server.dead_man.hear()
        try:
            status, said = self._asked(method)
        except TaskNotFound as error:
            status, said = 404, {"detail": str(error)}
        except Conflict as error:
            status, said = 409, {"detail": str(error)}
        except QueueFull as error:
            status, said = 429, {"detail": str(error)}
        except (ValueError, RecursionError) as error:  # JSON that is nested too deep is the latter
            self.close_connection = True
            status, said = 400, {"detail": str(error)}
        self._say(status, said)

    def _asked(self, method: str) -> tuple[int, dict[str, Any]]:
        asked = urlsplit(self.path)
        tasks = self.server.tasks
        match (method, *asked.path.strip("/").split("/")):
            case ("GET", "health"):
                return self.server.health()
            case ("POST", "execute"):
                body = self._body()
                if problems := self.server.problems():
                    return 503, {"detail": " ".join(problems)}
                job, name = _object(body.get("job")), str(body.get("name", ""))
                task = tasks.execute(str(body.get("task_id", "")), job, name)
                return 202, {"task_id": task.task_id, "state": task.state}
            case ("GET", "tasks"):
                version, found = tasks.listing(*_waits(asked.query, "known"))
                return 200, {"version": version, "tasks": found}
            case ("GET", "tasks", task_id):
                task, lines = tasks.news(task_id, *_waits(asked.query, "after"))
                return 200, {"task_id": task_id, "state": task.state, "code": task.code, "lines": lines}
            case ("POST", "cancel", task_id):
                return 200, {"task_id": task_id, "state": tasks.cancel(task_id).state}
            case ("DELETE", "tasks", task_id):
                tasks.acknowledge(task_id)
                return 200, {"task_id": task_id}
            case ("POST", "shutdown"):
                if not tasks.idle:
                    raise Conflict("a task runs here")
                self.close_connection = True
                self.server.stopped = True
                return 200, {"detail": "this machine is stopping"}
            case _:
                self.close_connection = True
                return 404, {"detail": "there is /health, /execute, /tasks, /tasks/{id}, /cancel/{id} and /shutdown"}

    def _body(self) -> dict[str, Any]:
        size = int(self.headers.get("Content-Length", "-1"))
        if not 0 <= size <= LARGEST:
            raise ValueError(f"a request has a Content-Length of at most {LARGEST} bytes")
        return _object(json.loads(self.rfile.read(size)))

    def _say(self, status: int, said: dict[str, Any]) -> None:
        data = json.dumps(said).encode()
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


def _waits(query: str, since: str) -> tuple[int, float]:
    """What the asker has already, and how many seconds it waits for more."""
    words = {name: values[-1] for name, values in parse_qs(query).items()}
    return max(0, int(words.get(since, "0"))), max(0.0, min(WAIT, float(words.get("wait", "0"))))


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("a JSON object is expected: {task_id, job}")  # noqa: TRY004 - it is the sender's mistake
    return value
