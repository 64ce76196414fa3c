"""`steno workers`: who holds which source, on both databases."""

from __future__ import annotations

import json
import platform
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from stenotest.command_line import Steno

    Background = Callable[..., object]

SOURCE = f"local/{platform.node()}"


@pytest.fixture(params=["sqlite", "postgres"])
def record(request: pytest.FixtureRequest, environment: dict[str, str]) -> str:
    """The kind of database that every command of the test uses."""
    if request.param == "postgres":
        environment["STENO_RECORD"] = request.getfixturevalue("postgres_url")
    return str(request.param)


def lease(steno: Steno) -> dict[str, object] | None:
    """What is said of the source's lease."""
    done = steno("workers", "--json")
    if done.returncode == 4:
        return None
    return next((one for one in json.loads(done.stdout)["leases"] if one["lease"] == SOURCE), None)


def test_it_says_who_holds_a_source_and_who_held_it(
    steno: Steno, background: Background, until: Callable[..., None], record: str
) -> None:
    """Process, host and token; after the holder ends the source is free, and the next holder has the next token."""
    recorder = background("record")
    until(lambda: (lease(steno) or {}).get("held"))
    found = lease(steno) or {}
    assert (found["process"], found["host"], found["token"]) == (recorder.pid, platform.node(), 1)
    assert str(found["since"]).startswith("20")
    left = found["seconds_left"]
    assert left is None if record == "sqlite" else 0 < left < 10
    shown = steno("workers").stdout
    assert f"{SOURCE}  held" in shown
    assert str(recorder.pid) in shown
    until(lambda: steno("polls").stdout)
    recorder.send_signal(signal.SIGTERM)
    recorder.wait()
    found = lease(steno) or {}
    assert (found["held"], found["process"]) == (False, recorder.pid)
    assert f"nobody acts on {SOURCE}; `steno up --source {SOURCE}` takes over" in steno("workers").stderr
    second = background("record")
    until(lambda: (lease(steno) or {}).get("held"))
    again = lease(steno) or {}
    assert (again["process"], again["token"]) == (second.pid, 2)
    assert again["worker"] != found["worker"]
    second.send_signal(signal.SIGKILL)
    second.wait()
    until(lambda: not (lease(steno) or {"held": True})["held"])


def test_it_names_no_source_that_never_answered(steno: Steno, record: str) -> None:
    """A misspelled project, of which somebody held the lease once, is nobody's and nobody's to take over."""
    words = ("submit", "--provider", "dstack", "--image", "x", "--", "true")
    nowhere = {"STENO_DSTACK_URL": "http://127.0.0.1:9", "DSTACK_TOKEN": "x", "STENO_BUDGET": "off"}
    assert steno(*words, **nowhere, STENO_PROJECT="mian").returncode == 3
    done = steno("workers")
    assert (done.stdout, "mian" in done.stderr) == ("", False)
    assert json.loads(steno("workers", "--json").stdout) == {"leases": []}


def test_without_a_record_it_is_one_line(steno: Steno, record: str) -> None:
    """Exit 4, as every command that reads."""
    done = steno("workers")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (4, "", 1)
