"""A listener in this process, and the side of whoever sends it tasks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from engine.kernel.executor import job_of
from engine.kernel.reports import frames_of
from engine.kernel_mark import hashed
from engine.listener.server import DeadMan, ListenerServer
from engine.listener.tasks import Tasks

from .kernels import ADDITION, KEY, PATIENT, submission

if TYPE_CHECKING:
    from engine.listener.sandbox import Containers

TOKEN = "t" * 40


class Machine:
    """A listener, and its engine's side of the connection."""

    def __init__(self, server: ListenerServer) -> None:
        self.server = server
        headers = {"Authorization": f"Bearer {TOKEN}"}
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{server.server_address[1]}", headers=headers, timeout=120, trust_env=False
        )

    def execute(self, task_id: str, source: str = ADDITION, **changes: Any) -> httpx.Response:
        return self.client.post("/execute", json={"task_id": task_id, "job": job(source, **changes)})

    def read(self, task_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The task once it has ended, and its frames."""
        lines: list[str] = []
        while True:
            said = self.client.get(f"/tasks/{task_id}", params={"after": len(lines), "wait": 10}).json()
            lines += said["lines"]
            if said["state"] not in {"queued", "running"} and not said["lines"]:
                break
        found = frames_of(["\n".join(lines).encode() + b"\n"], hashed(KEY))
        return said | {"lines": lines}, [json.loads(one) for one in found]


def job(source: str, **changes: Any) -> dict[str, Any]:
    wanted = submission("vector-add", solution_code=source, language="cpp", gpu_type="CPU", endpoint="checker")
    return job_of(wanted, KEY, compiler="auto") | {"limits": PATIENT} | changes


@contextmanager
def listening(containers: Containers, folder: Path, *, room: int = 16, limit: float = 3600) -> Iterator[Machine]:
    tasks = Tasks(containers, folder, room=room)
    server = ListenerServer(("127.0.0.1", 0), TOKEN, tasks, containers, DeadMan(limit, lambda: tasks.idle))
    thread = threading.Thread(target=server.serve)
    thread.start()
    machine = Machine(server)
    try:
        yield machine
    finally:
        machine.client.close()
        server.stopped = True
        thread.join()
        tasks.close()
