"""A dstack server in this process that answers, hangs or fails as a test says."""

import json
import threading
from typing import Any

from steno.events.clock import SystemClock
from stenotest.dstack_history import run_item
from stenotest.http_server import Handler, LocalServer

NOT_THERE = {"detail": [{"msg": "Run not found", "code": "resource_not_exists"}]}


class DstackApi:
    """As much of dstack's API as a submission needs. Where `gate` is not set, what `hangs` waits for it."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.offers: int | None = None  # of every plan; None: it has no such endpoint
        self.hangs: tuple[str, ...] = ()
        self.gate = threading.Event()
        outer = self

        class Answer(Handler):
            def answer(self, body: bytes) -> None:
                outer.asked.append(self.path)
                if self.path.endswith(outer.hangs or ("nothing hangs",)):
                    outer.gate.wait()
                content = outer.answer(self.path, json.loads(body or b"{}"))
                answer = json.dumps(NOT_THERE if content is None else content).encode()
                self.reply(400 if content is None else 200, answer)

        self._server = LocalServer(Answer)
        self.url = self._server.url

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        """None: dstack does not have it."""
        match path.rpartition("/api/")[2].split("/"):
            case ["server", "get_info"]:
                return {"server_version": "0.22.5"}
            case ["projects", "main", "get"]:
                return {"project_id": "p"}
            case ["project", "main", "runs", "apply"]:
                specification = body["plan"]["run_spec"]
                run = run_item(specification["run_name"], start=SystemClock().now())
                self.runs.insert(0, {**run, "run_spec": specification})
                return self.runs[0]
            case ["project", "main", "runs", "get"]:
                wanted = (body.get("id"), body.get("run_name"))
                return next(
                    (run for run in self.runs if run["id"] in wanted or run["run_spec"]["run_name"] in wanted), None
                )
            case ["project", "main", "runs", "get_plan"] if self.offers is not None:
                return {"job_plans": [{"total_offers": self.offers, "offers": []}]}
            case ["runs", "list"]:
                return self.runs
            case _:
                return []

    def count(self, end: str) -> int:
        return sum(path.endswith(end) for path in self.asked)

    def close(self) -> None:
        self.gate.set()
        self._server.close()
