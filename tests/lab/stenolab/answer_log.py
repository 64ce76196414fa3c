"""A server's answers about a project while something happens there: every distinct answer, by endpoint."""

from __future__ import annotations

import json
import threading
from typing import Any

from stenolab.lab import Lab

PAUSE_S = 0.05


class AnswerLog:
    """Polls the endpoints Steno polls, in a thread, until it is told to stop. Answers by endpoint, oldest first."""

    def __init__(self, lab: Lab, project: str) -> None:
        self._lab = lab
        self._questions: dict[str, tuple[str, dict[str, Any]]] = {
            "runs_list": ("/api/runs/list", {"project_name": project, "limit": 100}),
            "instances_list": ("/api/instances/list", {"project_names": [project], "limit": 100}),
            "fleets_list": (f"/api/project/{project}/fleets/list", {}),
        }
        if lab.ask("/api/events/list", {}).status != 405:
            project_id = lab.api(f"/api/projects/{project}/get")["project_id"]
            self._questions["events_list"] = ("/api/events/list", {"within_projects": [project_id], "limit": 100})
        self.answers: dict[str, list[Any]] = {endpoint: [] for endpoint in self._questions}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"witness-{project}", daemon=True)

    def __enter__(self) -> AnswerLog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()  # the end, whoever saw it first

    def saw(self, endpoint: str, word: str) -> bool:
        """True if an answer of this endpoint so far contains that string."""
        return any(f'"{word}"' in json.dumps(answer) for answer in self.answers[endpoint])

    def _watch(self) -> None:
        while not self._over.wait(PAUSE_S):
            self._look()

    def _look(self) -> None:
        for endpoint, (path, body) in self._questions.items():
            answer = self._lab.api(path, body)
            if not self.answers[endpoint] or self.answers[endpoint][-1] != answer:
                self.answers[endpoint].append(answer)
