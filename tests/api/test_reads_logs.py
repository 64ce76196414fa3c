"""GET /api/runs/{id}/logs: what a real process of this machine wrote, as it writes it."""

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from stenotest import steno_process
from stenotest.outputs import keep_output
from stenotest.waiting import LIMIT_S

from steno.events.clock import SystemClock
from steno.events.store.record import Record

Serve = Callable[..., Any]


def submitted(record: Path, name: str, command: str, *, wait: bool) -> None:
    """Have a command run on this machine."""
    words = ["submit", "--record", str(record), "--name", name, *(["--wait", "--quiet"] if wait else []), "--", command]
    env = {"PATH": os.environ["PATH"], "HOME": str(record.parent), "LANG": "C.UTF-8"}
    steno_process.run(words, env=env, cwd=record.parent, check=True)


def shows_all(client: httpx.Client, record: Path) -> None:
    """Wait until the service shows what others appended."""
    with Record.open(record, clock=SystemClock()) as opened:
        head = opened.head().position
    assert client.get("/api/runs", params={"min_position": head}).status_code == 200


@pytest.fixture
def client(served: Serve, empty_record: Path) -> httpx.Client:
    """A client of the service of a record with nothing in it yet."""
    made: httpx.Client = served(empty_record).client
    return made


def test_the_output_is_what_the_process_wrote_byte_by_byte(client: httpx.Client, empty_record: Path) -> None:
    """Any bytes, text or not; HEAD has the headers alone; a moment is refused, as output has none."""
    submitted(empty_record, "wrote", "printf 'one\\ntwo\\377\\000three'", wait=True)
    shows_all(client, empty_record)
    answer = client.get("/api/runs/wrote/logs")
    assert (answer.status_code, answer.content) == (200, b"one\ntwo\xff\x00three")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert client.get("/api/runs/wrote/logs", params={"follow": "true"}).content == answer.content
    only = client.head("/api/runs/wrote/logs")
    assert (only.status_code, only.content) == (200, b"")
    refused = client.get("/api/runs/wrote/logs", params={"at": 1})
    assert (refused.status_code, refused.json()["field"]) == (400, "at")


def test_output_that_its_machine_has_no_more_comes_from_the_record(client: httpx.Client, empty_record: Path) -> None:
    """With a header that says so."""
    submitted(empty_record, "wrote", "echo of the machine", wait=True)
    shows_all(client, empty_record)
    assert "steno-output" not in client.get("/api/runs/wrote/logs").headers
    run = client.get("/api/runs/wrote").json()
    with Record.open(empty_record, clock=SystemClock(), write=True) as record:
        keep_output(record, run["run_id"], run["provider_id"], b"of the ", b"record\n")
    shutil.rmtree(empty_record.with_name(f"{empty_record.name}.local"))
    answer = client.get("/api/runs/wrote/logs", params={"follow": "true"})
    assert (answer.content.endswith(b"of the record\n"), answer.headers["steno-output"]) == (True, "record")


def test_recorded_output_is_searched_within_bounds(
    client: httpx.Client, empty_record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of all runs or of one, as recorded at a moment; a long line is cut around the text."""
    for name in ("first", "second"):
        submitted(empty_record, name, f"echo {name} needle; echo hay", wait=True)
    shows_all(client, empty_record)
    run = client.get("/api/runs/second").json()
    head = client.get("/api/record").json()["position"]
    with Record.open(empty_record, clock=SystemClock(), write=True) as record:
        keep_output(record, run["run_id"], "again", b"x" * 5000 + b" needle " + b"y" * 5000 + b"\n\xff needle")
    shows_all(client, empty_record)

    def lines(**params: object) -> tuple[list[tuple[str, int]], bool]:
        answer = client.get("/api/output", params={"search": "needle", **params}).json()
        assert all("needle" in line["text"] and len(line["text"]) <= 1000 for line in answer["lines"])
        return [(line["run"], line["offset"]) for line in answer["lines"]], answer["complete"]

    assert lines(run="first") == ([("first", 0)], True)
    assert lines(at=head)[0] == [("second", 0), ("first", 0)]
    everything = [("second", 0), ("second", 0), ("second", 10_009), ("first", 0)]
    assert lines() == (everything, True)
    assert (lines(limit=3), lines(limit=4)) == ((everything[:3], False), (everything, True))
    monkeypatch.setattr("steno.projections.api.reads.output.MOST_SEARCHED", 40)
    assert lines() == (everything[:1], False)
    missing = client.get("/api/output", params={"run": "first"})
    assert (missing.status_code, missing.json()["field"]) == (400, "search")
    assert client.get("/api/output", params={"search": "x", "run": "nobody"}).status_code == 404


def test_output_is_followed_while_it_is_written_until_the_run_ends(client: httpx.Client, empty_record: Path) -> None:
    """The first line is there before the last is written, and the answer ends with the run."""
    go = empty_record.with_name("go")
    waits = f"echo line 1; until [ -e {go} ]; do sleep 0.05; done; echo line 2; echo line 3"
    submitted(empty_record, "slow", waits, wait=False)
    try:
        shows_all(client, empty_record)
        with client.stream("GET", "/api/runs/slow/logs", params={"follow": "true"}) as answer:
            assert answer.status_code == 200
            assert answer.headers["x-accel-buffering"] == "no", "nginx would keep it back"
            pieces = answer.iter_raw()
            first = next(pieces)
            go.touch()
            rest = b"".join(pieces)
    finally:
        go.touch()
    assert (first, rest) == (b"line 1\n", b"line 2\nline 3\n")


@pytest.mark.parametrize("says", ["echo here; ", ""], ids=["it wrote", "it is silent"])
def test_who_leaves_leaves_no_thread_behind(client: httpx.Client, empty_record: Path, says: str) -> None:
    """A client that goes away ends what was asked of the provider for it, also before the first byte of output."""
    submitted(empty_record, "endless", f"{says}sleep 600", wait=False)
    try:
        shows_all(client, empty_record)
        before, address = outputs(), (client.base_url.host, client.base_url.port or 80)
        with closing(socket.create_connection(address, timeout=LIMIT_S)) as raw:
            raw.sendall(b"GET /api/runs/endless/logs?follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while not outputs() - before:
                time.sleep(0.01)
            (mine,) = outputs() - before
            if says:
                assert raw.recv(1 << 16).startswith(b"HTTP/1.1 200")
        mine.join(LIMIT_S)
        assert not mine.is_alive()
    finally:
        steno_process.run(
            ["stop", "--abort", "--record", str(empty_record), "endless"],
            env={"PATH": os.environ["PATH"], "HOME": str(empty_record.parent), "LANG": "C.UTF-8"},
            cwd=empty_record.parent,
            check=True,
        )


def outputs() -> set[threading.Thread]:
    """The threads that pass output on."""
    return {thread for thread in threading.enumerate() if thread.name == "steno-output" and thread.is_alive()}


def test_a_run_that_has_not_reached_its_provider_has_no_output(client: httpx.Client) -> None:
    """409 that says so: nothing was refused, it is too early."""
    made = client.post("/api/runs", json={"name": "waits", "configuration": {"type": "task", "commands": ["true"]}})
    client.get("/api/runs", params={"min_position": made.json()["position"]})
    answer = client.get("/api/runs/waits/logs")
    assert answer.status_code == 409
    assert "has not reached its provider" in answer.json()["detail"]
