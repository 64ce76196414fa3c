"""Runs on this machine through the genuine command, from the request to the explanation."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from stenotest.command_line import Background, Steno, refused
from stenotest.gated_run import holding
from stenotest.waiting import wait

pytestmark = pytest.mark.slow


RUN_KEYS = [
    "run_id",
    "provider_id",
    "name",
    "provider",
    "state",
    "reason",
    "exit_status",
    "rule",
    "evidence",
    "reported",
    "attempts",
    "vm_id",
    "start",
    "submitted_at",
    "started_at",
    "finished_at",
    "execution_seconds",
    "cost_usd",
    "provider_cost_usd",
    "transitions",
    "provider_submitted_at",
]


def state_of(steno: Steno, name: str) -> str:
    """The run's state by the newest look."""
    answer: str = json.loads(steno("show", name, "--json").stdout)["state"]
    return answer


def test_a_command_that_succeeds(steno: Steno) -> None:
    """Exit 0, the run object with --json, and everything about it can be read afterwards."""
    done = steno("submit", "--wait", "--json", "--name", "fine", "--", "echo one; sleep 0.5; echo two")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert list(run) == RUN_KEYS
    assert (run["name"], run["state"], run["reason"], run["exit_status"]) == ("fine", "succeeded", "exit_zero", 0)

    listed = json.loads(steno("ps", "--json").stdout)
    assert list(listed) == ["runs", "sources", "position", "queue"]
    assert [run["run_id"] for run in listed["runs"]] == [run["run_id"]]

    answer = json.loads(steno("show", "fine", "--json").stdout)
    assert list(answer) == [
        *RUN_KEYS,
        "ran",
        "observability",
        "anomalies",
        "position",
        "queued",
        "why",
        "blame",
        "again",
        "like",
        "use",
    ]

    drawn = json.loads(steno("timeline", "fine", "--json").stdout)
    spanned = [
        "run_id",
        "name",
        "state",
        "reason",
        "from",
        "until",
        "first_poll_at",
        "spans",
        "blind",
        "machine",
        "phases",
    ]
    assert list(drawn) == spanned

    explained = json.loads(steno("explain", "fine", "--json").stdout)
    assert list(explained) == [
        *("run", "sentence", "rule", "evidence", "steps", "flips", "anomalies", "blind", "witnesses", "why"),
        "blame",
        *("again", "output_cause", "wait", "start", "not_warm", "decisions"),
    ]
    fields = {field["path"]: field["value"] for field in explained["evidence"][0]["fields"]}
    assert fields[".[0].exit_status"] == 0

    assert steno("logs", "fine").stdout == "one\ntwo\n"
    assert [json.loads(line) for line in steno("logs", "fine", "--json").stdout.splitlines()] == [
        {"text": "one"},
        {"text": "two"},
    ]
    assert "fine had already ended: succeeded" in steno("stop", "fine").stdout


def test_a_command_that_fails(steno: Steno) -> None:
    """Exit 1, and the verdict on stdout."""
    done = steno("submit", "--wait", "--name", "broken", "--", "sh", "-c", "exit 3")
    assert done.returncode == 1
    assert done.stdout.startswith("broken  ● failed · exit_nonzero · exit 3")
    assert "exit_status" in steno("explain", "broken").stdout


def test_what_explain_quotes_is_found_in_the_poll(steno: Steno) -> None:
    """A quoted path leads to its value in the answer that `steno poll` prints."""
    steno("submit", "--wait", "--name", "quoted", "--", "exit 4")
    quoted = json.loads(steno("explain", "quoted", "--json").stdout)["evidence"][0]
    answer = json.loads(steno("poll", quoted["position"]).stdout)
    for field in quoted["fields"]:
        value = answer
        for step in field["path"].replace("[", ".").replace("]", "").strip(".").split("."):
            if step:
                value = value[int(step)] if step.isdecimal() else value[step]
        assert value == field["value"]


def test_a_run_of_this_machine_is_looked_at_before_it_is_shown(steno: Steno, gate: Path) -> None:
    """Without a recorder `ps` still shows the present state; it only looks: a request in the queue stays there."""

    def shown() -> tuple[str, int | None]:
        (run,) = json.loads(steno("ps", "--all", "--json").stdout)["runs"]
        return run["state"], run["exit_status"]

    assert steno("submit", "--name", "quick", "--", f"{holding(gate)}; exit 4").returncode == 0
    assert shown()[1] is None
    gate.touch()
    wait(lambda: shown() == ("failed", 4))
    polls = len(steno("polls", "--json").stdout.splitlines())
    assert steno("ps").returncode == 0
    assert len(steno("polls", "--json").stdout.splitlines()) == polls, "nothing goes on, so nobody is asked"


def test_a_run_is_stopped(steno: Steno) -> None:
    """`stop` asks, and looks for half a minute whether it has ended."""
    submitted = json.loads(steno("submit", "--name", "endless", "--json", "--", "sleep", "3600").stdout)
    assert list(submitted) == ["run_id", "provider_id", "name", "provider", "project", "position", "state", "start"]
    stopped = json.loads(steno("stop", "endless", "--json").stdout)
    assert list(stopped) == ["run_id", "name", "state", "asked"]
    assert (stopped["run_id"], stopped["name"], stopped["asked"]) == (submitted["run_id"], "endless", True)
    wait(lambda: state_of(steno, "endless") == "stopped")
    assert json.loads(steno("show", "endless", "--json").stdout)["reason"] == "stopped_by_user"


def test_waiting_ends_with_the_timeout_and_the_run_goes_on(steno: Steno) -> None:
    """Exit 1, and a line that says so."""
    done = steno("submit", "--wait", "--timeout", "1s", "--name", "slow", "--", "sleep", "3600")
    assert done.returncode == 1
    assert "still runs" in done.stderr.splitlines()[-1]
    assert json.loads(steno("stop", "slow", "--abort", "--json").stdout)["asked"]
    wait(lambda: state_of(steno, "slow") == "stopped")


def test_ctrl_c_leaves_the_run_alive(steno: Steno, background: Background) -> None:
    """Exit 130, one line."""
    waits = ("submit", "--wait", "--name", "alive", "--", "sleep", "3600")
    process = background(*waits, out=subprocess.PIPE, err=subprocess.PIPE)
    assert process.stderr is not None
    assert any("running" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert out == ""
    assert "alive still runs" in err
    assert "Traceback" not in err
    assert json.loads(steno("stop", "alive", "--json").stdout)["asked"]
    wait(lambda: state_of(steno, "alive") == "stopped")


def test_a_name_in_use_is_refused(steno: Steno) -> None:
    """Exit 5."""
    steno("submit", "--name", "taken", "--", "sleep", "3600")
    try:
        assert "taken" in refused(steno("submit", "--name", "taken", "--", "true"), 5)
    finally:
        steno("stop", "taken", "--abort")


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("type: task\ncommands: [ls]\nkomands: [x]\n", "komands"),
        ("type: service\ncommands: [ls]\n", "service"),
        ("type: fleet\nname: f\n", "No ssh_config or nodes specified"),
        ("type: task\nname: Not_A_Name\ncommands: [ls]\n", "Not_A_Name"),
        ("type: task\n  commands: [\n", "line"),
        ("", "empty"),
    ],
)
def test_a_task_file_dstack_would_refuse_is_refused(steno: Steno, home: Path, file: str, line: str) -> None:
    """Exit 2, the field named; nothing is recorded."""
    (home / "task.yml").write_text(file)
    assert line in refused(steno("submit", "-f", "task.yml"), 2)
    assert not (home / "record.db").exists()


def test_a_task_file_is_found_and_flags_are_laid_over_it(steno: Steno, home: Path) -> None:
    """./.dstack.yml, as dstack itself does."""
    (home / ".dstack.yml").write_text("type: task\nname: from-file\ncommands: ['echo $WORD']\nenv: [WORD=file]\n")
    assert steno("submit", "--wait", "--env", "WORD=flag").returncode == 0
    assert steno("logs", "from-file").stdout == "flag\n"


@pytest.mark.usefixtures("record_file")
def test_no_secret_of_a_submission_is_in_the_record(steno: Steno, home: Path) -> None:
    """Neither in the record, nor in the vault after the outcome, nor in an exported trace."""
    secret = "hunter2-4711-hunter2"
    steno("submit", "--wait", "--name", "secretive", "--env", f"TOKEN={secret}", "--", "true")
    steno("export", "secretive", "--trace", "x.jsonl")
    steno("ps")
    kept = [path for path in home.iterdir() if path.is_file()]
    assert len(kept) > 3
    assert [path.name for path in kept if secret.encode() in path.read_bytes()] == []


def test_an_exported_run_replays_anywhere(steno: Steno) -> None:
    """Same verdict from the trace alone."""
    steno("submit", "--wait", "--name", "moved", "--", "exit 5")
    assert steno("export", "moved", "--trace", "x.jsonl.zst").returncode == 0
    (run,) = json.loads(steno("replay", "x.jsonl.zst", "--json").stdout)["runs"]
    assert (run["name"], run["state"], run["exit_status"]) == ("moved", "failed", 5)


def test_the_recorder_stops_in_order_on_sigterm(steno: Steno, background: Background) -> None:
    """Exit 0, log lines on stdout, its start and its end in the record, a trace beside it."""
    process = background("record", "--trace", "live.jsonl", out=subprocess.PIPE, err=subprocess.PIPE)
    assert process.stdout is not None
    assert "recording local/" in process.stdout.readline()
    submitted = steno("submit", "--name", "watched", "--wait", "--", "sleep 0.5; exit 6")
    assert submitted.returncode == 1, submitted.stderr
    assert any("failed" in line for line in process.stdout)
    process.terminate()
    out, err = process.communicate()
    assert (process.returncode, err) == (0, ""), out
    types = [json.loads(line)["type"] for line in steno("events", "--json").stdout.splitlines()]
    assert types[-1] == "RecorderStopped"
    assert "RecorderStarted" in types
    (run,) = json.loads(steno("replay", "live.jsonl", "--json").stdout)["runs"]
    assert (run["name"], run["exit_status"]) == ("watched", 6)


def test_a_reader_that_goes_away_is_not_an_error(steno: Steno, home: Path, environment: dict[str, str]) -> None:
    """`steno polls | head -1` ends without a word."""
    steno("submit", "--wait", "--", "true")
    line = f"{sys.executable} -m steno.cli.main events --json | head -1"
    done = subprocess.run(line, shell=True, cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
