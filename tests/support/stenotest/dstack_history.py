"""Histories made by hand, in dstack's words: given these polls, what does a replay say?

For tests of Steno and of rules built on it. Items have the shape of dstack 0.22.5 with the fields Steno reads and
volatile fields.
"""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steno.engine.providers.dstack.run_reading import RUNS, facts_of
from steno.engine.providers.registry import READINGS
from steno.engine.state.facts import RunFacts
from steno.events.clock import SECOND, format_time, parse_time
from steno.events.poll import Poll

Item = dict[str, Any]

START = parse_time("2025-12-15T09:00:00Z")
"""Where a story begins unless told otherwise."""

_NAMES = uuid.UUID("5e3f0000-0000-4000-8000-000000000000")


def read_run(item: bytes) -> RunFacts:
    """The facts of one run. Raises ValueError for an item that is not a JSON object with an id."""
    return facts_of(*RUNS.decode(item))


def provider_id(label: str) -> str:
    """A stable UUID for a label, as dstack would give."""
    return str(uuid.uuid5(_NAMES, label))


def submission(
    status: str = "submitted",
    *,
    num: int = 0,
    exit_status: int | None = None,
    reason: str | None = None,
    submitted: float = 0,
    finished: float | None = None,
    hostname: str | None = None,
    price: float | None = None,
    processed: float = 0,
    start: int = START,
) -> Item:
    """A job submission; times are seconds after `start`."""
    machine = None if hostname is None and price is None else {"hostname": hostname, "price": price}
    return {
        "id": provider_id(f"submission {num} {submitted} {start}"),
        "submission_num": num,
        "submitted_at": moment(submitted, start),
        "last_processed_at": moment(processed, start),
        "finished_at": None if finished is None else moment(finished, start),
        "status": status,
        "status_message": status,
        "termination_reason": reason,
        "termination_reason_message": None,
        "exit_status": exit_status,
        "job_provisioning_data": machine,
    }


def job(*submissions: Item, replica: int = 0, number: int = 0, retry: list[str] | None = None) -> Item:
    """A job with its submissions; `retry` lists the events its policy covers."""
    return {
        "job_spec": {
            "replica_num": replica,
            "job_num": number,
            "env": {},
            "retry": None if retry is None else {"on_events": retry, "duration": 600},
        },
        "job_submissions": list(submissions),
    }


def run_item(
    name: str = "a-run",
    status: str = "submitted",
    *jobs: Item,
    label: str | None = None,
    project: str = "main",
    reason: str | None = None,
    submitted: float = 0,
    cost: float | None = 0.0,
    kind: str = "task",
    deleted: bool = False,
    start: int = START,
) -> Item:
    """A run as a list or get answer carries it. Without jobs it has a single submitted job."""
    given = list(jobs) if jobs else [job(submission(submitted=submitted, start=start))]
    submissions = given[0]["job_submissions"]
    return {
        "id": provider_id(label if label is not None else name),
        "project_name": project,
        "user": "admin",
        "submitted_at": moment(submitted, start),
        "last_processed_at": moment(submitted, start),
        "status": status,
        "status_message": status,
        "termination_reason": reason,
        "run_spec": {"run_name": name, "configuration": {"type": kind, "name": name, "env": {}}},
        "jobs": given,
        "latest_job_submission": submissions[-1] if submissions else None,
        "cost": cost,
        "deleted": deleted,
    }


def single(
    name: str = "a-run",
    run: str = "submitted",
    job_status: str = "submitted",
    *,
    reason: str | None = None,
    job_reason: str | None = None,
    exit_status: int | None = None,
    num: int = 0,
    finished: float | None = None,
    retry: list[str] | None = None,
    **more: Any,
) -> Item:
    """A run of one job with one submission shown, in one line."""
    newest = submission(job_status, num=num, exit_status=exit_status, reason=job_reason, finished=finished)
    return run_item(name, run, job(newest, retry=retry), reason=reason, **more)


def nodes(run: str, *ends: tuple[str, str | None, int | None], reason: str | None = None, **more: Any) -> Item:
    """A run of several jobs, each with its (status, reason, exit status)."""
    jobs = [
        job(submission(status, reason=why, exit_status=code), number=number, retry=more.get("retry"))
        for number, (status, why, code) in enumerate(ends)
    ]
    return run_item("many", run, *jobs, reason=reason)


def nightly(status: str, *jobs: Item, due: float | None = None, reason: str | None = None) -> Item:
    """The row of a task that is due every 15 minutes; the story begins at a full hour."""
    row = run_item("nightly", status, *(jobs or [job()]), reason=reason)
    row["run_spec"]["configuration"]["schedule"] = {"cron": ["*/15 * * * *"]}
    return row | {"next_triggered_at": None if due is None else moment(due)}


def moment(seconds: float, start: int = START) -> str:
    """A provider's time, `seconds` after `start`."""
    return format_time(start + round(seconds * SECOND))


@dataclass(slots=True)
class DstackHistory:
    """Polls of one project, one after another. `now` is seconds after `start`; each poll takes `ms` and moves
    nothing.
    """

    project: str = "main"
    start: int = START
    now: float = 0
    lines: list[Item] = field(default_factory=list)

    def wait(self, seconds: float) -> "DstackHistory":
        """Let time pass."""
        self.now += seconds
        return self

    def poll(
        self, path: str, req: Item, body: Any, *, status: int | None = 200, ms: float = 10, error: str | None = None
    ) -> "DstackHistory":
        """Any poll; with `status` None no answer came."""
        line: Item = {"t": moment(self.now, self.start), "ep": path.rsplit("/", 2)[-2], "path": path, "req": req}
        line |= {"status": status, "ms": ms}
        line |= {"error": error or "ConnectError"} if status is None else {"body": body}
        self.lines.append(line)
        return self

    def listed(self, *items: Item, **req: Any) -> "DstackHistory":
        """`runs/list` of the project shows these runs (newest first, as given)."""
        return self.poll("/api/runs/list", {"project_name": self.project, "limit": 100, **req}, list(items))

    def active(self, *items: Item) -> "DstackHistory":
        """`runs/list` with `only_active` shows these runs."""
        return self.listed(*items, only_active=True)

    def got(self, item: Item, **req: Any) -> "DstackHistory":
        """`runs/get` shows this run, asked by name unless told otherwise."""
        request = req or {"run_name": item["run_spec"]["run_name"]}
        return self.poll(f"/api/project/{self.project}/runs/get", request, item)

    def gone(self, **req: Any) -> "DstackHistory":
        """`runs/get` says `resource_not_exists`."""
        body = {"detail": [{"msg": "Run not found", "code": "resource_not_exists"}]}
        return self.poll(f"/api/project/{self.project}/runs/get", req, body, status=400)

    def machines(self, *items: Item) -> "DstackHistory":
        """`instances/list` shows these machines: an answered poll that says nothing of runs."""
        return self.poll("/api/instances/list", {"project_names": [self.project], "limit": 100}, list(items))

    def logged(self, *items: Item) -> "DstackHistory":
        """`events/list` shows these events."""
        return self.poll("/api/events/list", {"within_projects": [self.project], "limit": 100}, list(items))

    def failed(self, status: int | None = None, body: Any = None) -> "DstackHistory":
        """`runs/list` fails: no answer, or this status and body."""
        return self.poll("/api/runs/list", {"project_name": self.project, "limit": 100}, body, status=status)

    def note(self, text: str) -> "DstackHistory":
        """A lab note: no poll and no evidence."""
        self.lines.append({"t": moment(self.now, self.start), "ep": "lab_note", "note": text})
        return self

    def polls(self) -> Iterator[tuple[int, Poll | None]]:
        """The story as a trace reader gives it: (1-based line, poll or None)."""
        for number, line in enumerate(self.lines, start=1):
            yield number, None if line["ep"] == "lab_note" else poll_of(line)

    def write(self, path: Path) -> Path:
        """The story as a trace file."""
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines), encoding="utf-8")
        return path


def poll_of(line: Item) -> Poll:
    """The poll of one trace line."""
    req = json.dumps(line["req"]).encode()
    body = json.dumps(line["body"]).encode() if "body" in line else None
    started = parse_time(line["t"])
    return Poll(
        source=READINGS.source(line["path"], req),
        path=line["path"],
        req=req,
        started_at=started,
        observed_at=started + round(line["ms"] * 1000),
        status=line["status"],
        error=line.get("error"),
        body=body,
        ep=line["ep"],
        answered=READINGS.answered(line["path"], req, line["status"], body),
    )
