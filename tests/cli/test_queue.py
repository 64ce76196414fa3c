"""`steno submit` where there is no room, no money, or somebody else acts: with machines of this host at a price."""

import getpass
import json
from pathlib import Path

import pytest
from stenotest.command_line import Background, Steno, refused
from stenotest.waiting import wait

ONE = {"STENO_LOCAL_PRICE": "1.99", "STENO_MAX_VMS": "1", "STENO_IDLE_TIMEOUT": "1"}


def types(steno: Steno) -> list[str]:
    lines = steno("events", "--json").stdout.splitlines()
    return [json.loads(line)["type"] for line in lines]


@pytest.mark.slow
def test_a_run_without_room_is_queued_and_said_to_be(steno: Steno) -> None:
    """Without --wait at once, exit 0; whoever waits gets its turn after the others, on the warm machine."""
    kept = ONE | {"STENO_IDLE_TIMEOUT": "1h"}
    assert steno("submit", "--name", "first", "--", "sleep 3600", **kept).returncode == 0
    second = steno("submit", "--json", "--name", "second", "--", "true", **kept)
    assert second.returncode == 0, second.stderr
    body = json.loads(second.stdout)
    assert (body["state"], body["provider_id"], body["name"]) == ("queued", None, "second")
    page = steno("submit", "--name", "third", "--", "true", **kept)
    assert page.stdout == "third\n"
    assert "queued: position 2" in page.stderr
    waits = json.loads(steno("explain", "third", "--json").stdout)["wait"]
    assert "number 2 in the queue" in waits[0]
    assert f"behind second of {getpass.getuser()}." in waits[0]
    assert f"(first of {getpass.getuser()} since " in waits[2]
    assert f"of runs of {getpass.getuser()}" in waits[3]
    assert "none is before it" in json.loads(steno("explain", "second", "--json").stdout)["wait"][0]
    assert json.loads(steno("explain", "first", "--json").stdout)["wait"] == []
    assert "second is queued and does not run yet" in refused(steno("attach", "second", "--port", "80"), 5)
    patient = steno("submit", "--wait", "--timeout", "1s", "--name", "patient", "--", "true", **kept)
    assert "patient  queued  position 3" in patient.stderr
    assert "still runs" in patient.stderr
    taken_back = steno("stop", "second", **kept)
    assert taken_back.returncode == 0, taken_back.stderr
    assert "stopped" in taken_back.stdout
    assert steno("stop", "first", **kept).returncode == 0
    fourth = steno("submit", "--wait", "--name", "fourth", "--", "true", **kept)
    assert fourth.returncode == 0, fourth.stderr
    assert "warm" in fourth.stdout
    seen = types(steno)
    assert seen.count("RunPlaced") == 4
    assert seen.count("SubmitIntended") == 4


@pytest.mark.ci
@pytest.mark.slow
def test_after_nine_starts_of_its_kind_it_is_said_when_a_run_may_start(steno: Steno, background: Background) -> None:
    """At submission and by `explain` while it waits, with the share that such ranges held. None while it runs."""
    kept = ONE | {"STENO_IDLE_TIMEOUT": "1h"}
    names = [f"run{number}" for number in range(10)]
    for name in names:
        steno("submit", "--name", name, "--", "sleep 3600", **kept)
    background("record", "--interval", "0.2", **kept)
    for name in names[:-1]:  # each waits for those before it
        wait(lambda name=name: json.loads(steno("show", name, "--json").stdout)["state"] == "running")
        steno("stop", name, **kept)
    wait(lambda: json.loads(steno("show", names[-1], "--json").stdout)["state"] == "running")
    assert json.loads(steno("explain", names[-1], "--json").stdout)["start"] is None
    waits = steno("submit", "--name", "waits", "--", "true", **kept)
    assert "It may start between " in waits.stderr
    assert "runs of local/vm without a GPU that waited as long, 80 % started " in waits.stderr
    start = json.loads(steno("explain", "waits", "--json").stdout)["start"]
    assert (start["level_percent"], start["unknown"]) == (80, None)
    assert "It may start between " in steno("explain", "waits").stdout
    assert json.loads(steno("submit", "--json", "--name", "more", "--", "true", **kept).stdout)["start"]["samples"] >= 9
    steno("stop", names[-1], "waits", "more", **kept)


@pytest.mark.slow
def test_who_only_submits_leaves_the_providers_timer_as_the_guard(
    steno: Steno,
    background: Background,
) -> None:
    """It is told the timeout itself. A recorder ends idle machines first, so that the provider is told 30 s more."""
    short = ONE | {"STENO_IDLE_TIMEOUT": "2"}

    def told() -> list[int]:
        events = [json.loads(line) for line in steno("events", "--json").stdout.splitlines()]
        return [event["data"]["idle"] for event in events if event["type"] == "RunPlaced"]

    assert steno("submit", "--wait", "--", "true", **short).returncode == 0
    assert told() == [2_000_000]
    background("record", "--interval", "0.2", **short)
    wait(lambda: "RecorderStarted" in types(steno))
    assert steno("submit", "--", "true", **short).returncode == 0
    assert told() == [2_000_000, 32_000_000]


def test_a_run_the_budget_cannot_bear_is_refused_before_there_is_a_request(steno: Steno) -> None:
    """Exit 6, one line with the arithmetic; a shorter limit makes it fit."""
    tight = ONE | {"STENO_BUDGET": "1.00"}
    refused = steno("submit", "--max-duration", "2h", "--", "true", **tight)
    assert refused.returncode == 6
    assert refused.stdout == ""
    assert len(refused.stderr.strip().splitlines()) == 1
    assert "$1.99/h" in refused.stderr
    assert "RunRequested" not in types(steno)
    assert steno("submit", "--max-duration", "10m", "--", "true", **tight).returncode == 0


def test_a_run_that_needs_more_machines_than_are_allowed_is_refused(steno: Steno, home: Path) -> None:
    """Exit 6, before a request is recorded: it could never start."""
    (home / "task.dstack.yml").write_text("type: task\nnodes: 3\ncommands: ['true']\n")
    refused = steno("submit", "-f", "task.dstack.yml", **ONE | {"STENO_MAX_VMS": "2"})
    assert refused.returncode == 6
    assert "3 machines at once, and the machine limit is 2" in refused.stderr
    assert "RunRequested" not in types(steno)


@pytest.mark.slow
def test_a_recorder_that_sleeps_wakes_when_somebody_asks(
    steno: Steno,
    background: Background,
    home: Path,
) -> None:
    """A warm start must not wait for the next poll: here that would be an hour away."""
    log = home / "log"
    with log.open("w") as out:
        controller = background("record", "--interval", "3600", out=out, err=out, **ONE)
    wait(lambda: "RecorderStarted" in types(steno))
    assert steno("submit", "--name", "asked", "--", "true", **ONE).returncode == 0
    wait(lambda: "asked: the provider chooses an idle machine or starts one" in log.read_text())
    controller.terminate()
    assert controller.wait() == 0
    assert "RecorderStopped" in types(steno)
