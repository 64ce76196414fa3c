"""GET /api/runs/{id}/logs: what a real process of this machine wrote, as it writes it."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

Serve = Callable[..., Any]


def submitted(record: Path, name: str, command: str, *, wait: bool) -> None:
    """Have a command run on this machine."""
    words = ["submit", "--record", str(record), "--name", name, *(["--wait"] if wait else []), "--", command]
    subprocess.run(
        [sys.executable, "-m", "cli.main", *words],
        env={"PATH": os.environ["PATH"], "HOME": str(record.parent), "LANG": "C.UTF-8"},
        cwd=record.parent,
        capture_output=True,
        check=True,
    )


@pytest.fixture
def client(served: Serve, empty_record: Path) -> httpx.Client:
    """A client of the service of a record with nothing in it yet."""
    found: httpx.Client = served(empty_record).client
    return found


def test_the_output_is_what_the_process_wrote_byte_by_byte(client: httpx.Client, empty_record: Path) -> None:
    """Any bytes, text or not; HEAD has the headers alone; a moment is refused, for output is no part of the record."""
    submitted(empty_record, "wrote", "printf 'one\\ntwo\\377\\000three'", wait=True)
    head = int(client.get("/api/record").json()["position"])
    client.get("/api/runs", params={"min_position": head})
    answer = client.get("/api/runs/wrote/logs")
    assert (answer.status_code, answer.content) == (200, b"one\ntwo\xff\x00three")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert client.get("/api/runs/wrote/logs", params={"follow": "true"}).content == answer.content
    only = client.head("/api/runs/wrote/logs")
    assert (only.status_code, only.content) == (200, b"")
    refused = client.get("/api/runs/wrote/logs", params={"at": 1})
    assert (refused.status_code, refused.json()["field"]) == (400, "at")


def test_output_is_followed_while_it_is_written_until_the_run_ends(client: httpx.Client, empty_record: Path) -> None:
    """The first line is there long before the last, and the answer ends with the run."""
    submitted(empty_record, "slow", "for n in 1 2 3; do echo line $n; sleep 0.7; done", wait=False)
    came: list[tuple[float, bytes]] = []
    with client.stream("GET", "/api/runs/slow/logs", params={"follow": "true"}) as answer:
        assert answer.status_code == 200
        came += [(time.monotonic(), piece) for piece in answer.iter_raw()]
    assert b"".join(piece for _, piece in came) == b"line 1\nline 2\nline 3\n"
    assert came[-1][0] - came[0][0] > 0.5


def test_who_leaves_leaves_no_thread_behind(client: httpx.Client, empty_record: Path) -> None:
    """A client that goes away in the middle ends what was asked of the provider for it."""
    submitted(empty_record, "endless", "echo here; sleep 60", wait=False)
    with client.stream("GET", "/api/runs/endless/logs", params={"follow": "true"}) as answer:
        assert next(answer.iter_raw()) == b"here\n"
        assert any(thread.name == "steno-output" for thread in threading.enumerate())
    end = time.monotonic() + 10
    while any(thread.name == "steno-output" for thread in threading.enumerate()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(thread.name == "steno-output" for thread in threading.enumerate())
    subprocess.run(
        [sys.executable, "-m", "cli.main", "stop", "--abort", "--record", str(empty_record), "endless"],
        env={"PATH": os.environ["PATH"], "HOME": str(empty_record.parent), "LANG": "C.UTF-8"},
        cwd=empty_record.parent,
        capture_output=True,
        check=True,
    )


def test_a_run_that_has_not_reached_its_provider_has_no_output(client: httpx.Client) -> None:
    """409 that says so: nothing was refused, it is too early."""
    made = client.post("/api/runs", json={"name": "waits", "configuration": {"type": "task", "commands": ["true"]}})
    client.get("/api/runs", params={"min_position": made.json()["position"]})
    answer = client.get("/api/runs/waits/logs")
    assert answer.status_code == 409
    assert "has not reached its provider" in answer.json()["detail"]
