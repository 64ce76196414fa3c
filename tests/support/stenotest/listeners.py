"""A listener in this process, and the side of whoever sends it tasks."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from steno.engine.control.task_reports import frames_of
from steno.engine.kernel.executor import job_of
from steno.engine.kernel.machine.cells import Cells
from steno.engine.kernel.machine.framing import MARK, Teller
from steno.engine.kernel.machine.judge import Judge
from steno.engine.listener.sandbox import Containers
from steno.engine.listener.server import ListenerServer
from steno.engine.listener.tasks import Tasks
from stenotest.waiting import LIMIT_S

from .kernels import ADDITION, PATIENT, submission

TOKEN = "t" * 40


SLEEPING = "import time\ndef reference(inputs, sizes, parameters):\n    time.sleep(600)\n"
"""A reference that takes ten minutes."""


class Machine:
    """A listener, and its engine's side of the connection."""

    def __init__(self, server: ListenerServer) -> None:
        self.server = server
        headers = {"Authorization": f"Bearer {TOKEN}"}
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{server.server_address[1]}", headers=headers, timeout=LIMIT_S, trust_env=False
        )

    def execute(self, task_id: str, source: str = ADDITION, **changes: Any) -> httpx.Response:
        return self.client.post("/execute", json={"task_id": task_id, "job": job(source, **changes)})

    def read(self, task_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The task once it has ended, and its frames."""
        lines: list[str] = []
        while True:
            task = self.client.get(f"/tasks/{task_id}", params={"after": len(lines), "wait": 10}).json()
            lines += task["lines"]
            if task["state"] not in {"queued", "running"} and not task["lines"]:
                break
        frames = frames_of(["\n".join(lines).encode() + b"\n"])
        return task | {"lines": lines}, [json.loads(frame) for frame in frames]


def judged(cells: Cells, job: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """The exit status and the frames of a job."""
    lines: list[str] = []
    code = Judge(job, cells, Teller(lines.append)).run()
    return code, [json.loads(line.removeprefix(MARK)) for line in lines if line.startswith(MARK)]


def job(source: str, **changes: Any) -> dict[str, Any]:
    wanted = submission("vector-add", solution_code=source, language="cpp", gpu_type="CPU", endpoint="checker")
    return job_of(wanted, compiler="auto") | {"limits": PATIENT} | changes


@contextmanager
def listening(containers: Containers, folder: Path, *, room: int = 16, limit: float = 3600) -> Iterator[Machine]:
    tasks = Tasks(containers, folder, room=room)
    server = ListenerServer(("127.0.0.1", 0), TOKEN, tasks, containers, limit)
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
