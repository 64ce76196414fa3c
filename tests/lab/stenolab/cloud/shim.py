"""dstack-shim's HTTP API and what it does with containers, on one machine."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

from stenolab.cloud.behaviour import Manners
from stenolab.cloud.journal import journal
from stenolab.cloud.runner import Runner
from stenolab.cloud.wire import Reply, Request

STEP_S = 0.05  # the containers' small steps: preparing, creating


class Shim:
    """The agent of one machine: at most one container at a time runs a runner."""

    def __init__(self, *, version: str, manners: Manners, state_folder: Path, origins: dict[str, str]) -> None:
        self._version = version
        self._manners = manners
        self._state_folder = state_folder
        self._origins = origins
        self._lock = threading.RLock()
        self._tasks: dict[str, dict[str, Any]] = {}
        self.runner: Runner | None = None
        self._running: str | None = None

    def __call__(self, request: Request) -> Reply:
        match request.path:
            case "/api/healthcheck":
                return Reply(json={"service": "dstack-shim", "version": self._version})
            case "/api/instance/health":
                return Reply(json={"dcgm": None})
            case "/api/instance/info":
                return Reply(json={"gpu_vendor": "amd", "gpu_driver_version": "6.19.14"})
            case "/api/components":
                return Reply(json={"components": [self._component("dstack-runner"), self._component("dstack-shim")]})
            case "/api/components/install" | "/api/shutdown":
                return Reply()
            case "/api/tasks" if request.method == "GET":
                return Reply(json=self._list())
            case "/api/tasks":
                return self._submit(request.json)
        match = re.fullmatch(r"/api/tasks/([^/]+)(?:/(terminate|remove))?", request.path)
        if match is None or match.group(1) not in self._tasks:
            return Reply(status=404, json={"error": "not found"})
        match match.groups():
            case task_id, "terminate":
                return self._terminate(task_id, request.json)
            case task_id, "remove":
                return self._remove(task_id)
            case task_id, _:
                return Reply(json=self._info(task_id))
        return Reply(status=404, json={"error": "not found"})

    def crash(self) -> None:
        """The running container dies, as by the out-of-memory killer."""
        with self._lock:
            if self._running is not None:
                task_id = self._running
                self._end(task_id, "container_exited_with_error", "container exited with exit code 137")

    def power_off(self) -> None:
        """Everything on the machine ends at once."""
        with self._lock:
            for task in self._tasks.values():
                task["status"] = "terminated"
            self._drop_runner()

    def statuses(self) -> dict[str, str]:
        """Status by task id."""
        with self._lock:
            return {task_id: task["status"] for task_id, task in self._tasks.items()}

    def _component(self, name: str) -> dict[str, str]:
        return {"name": name, "version": self._version, "status": "installed"}

    def _list(self) -> dict[str, Any]:
        statuses = self.statuses()
        return {"tasks": [{"id": key, "status": status} for key, status in statuses.items()], "ids": list(statuses)}

    def _submit(self, body: dict[str, Any]) -> Reply:
        with self._lock:
            if body["id"] in self._tasks:
                return Reply(status=409, json={"error": "exists"})
            self._tasks[body["id"]] = {"name": body["name"], "status": "pending", "reason": "", "message": ""}
        journal("shim", task=body["id"], name=body["name"], image=body["image_name"])
        threading.Thread(target=self._bring_up, args=(body["id"], body["name"]), daemon=True).start()
        return Reply(json=self._info(body["id"]))

    def _bring_up(self, task_id: str, name: str) -> None:
        conduct = self._manners.towards(name)
        for status, seconds in (("preparing", STEP_S), ("pulling", conduct.pull_s), ("creating", STEP_S)):
            with self._lock:
                if self._tasks.get(task_id, {}).get("status") in (None, "terminated"):
                    return
                self._tasks[task_id]["status"] = status
            time.sleep(seconds)
            if status == "pulling" and conduct.pull_error:
                self._end(task_id, "creating_container_error", "Error pulling image (lab)")
                return
        with self._lock:
            if self._tasks.get(task_id, {}).get("status") != "creating":
                return
            if self._running is not None:  # a busy 0.19.37 can place two jobs on one idle machine
                self._end(task_id, "executor_error", "failed to acquire GPUs: none is free")
                return
            self._tasks[task_id]["status"] = "running"
            self._running = task_id
            self.runner = Runner(
                version=self._version,
                manners=self._manners,
                state_folder=self._state_folder,
                origins=self._origins,
                on_exit=lambda: self._end(task_id, "done_by_runner", ""),
            )

    def _terminate(self, task_id: str, body: dict[str, Any]) -> Reply:
        self._end(task_id, body.get("termination_reason", ""), body.get("termination_message", ""))
        return Reply(json=self._info(task_id))

    def _remove(self, task_id: str) -> Reply:
        with self._lock:
            if self._tasks[task_id]["status"] != "terminated":
                return Reply(status=409, json={"error": "not terminated"})
            del self._tasks[task_id]
        return Reply()

    def _end(self, task_id: str, reason: str, message: str) -> None:
        with self._lock:
            task = self._tasks.get(task_id)
            if task is not None and task["status"] != "terminated":
                task.update(status="terminated", reason=reason, message=message)
            if self._running == task_id:
                self._drop_runner()

    def _drop_runner(self) -> None:
        if self.runner is not None:
            self.runner.kill()
        self.runner = None
        self._running = None

    def _info(self, task_id: str) -> dict[str, Any]:
        with self._lock:
            task = self._tasks[task_id]
            return {
                "id": task_id,
                "status": task["status"],
                "termination_reason": task["reason"],
                "termination_message": task["message"],
                "ports": [],
                "image_pull_progress": None,
                "container_name": task["name"],
                "container_id": "lab",
                "gpus_ids": [],
            }
