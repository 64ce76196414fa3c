"""`steno ps` finds runs, and `steno show` says what ran, through the genuine command."""

import json
from pathlib import Path

import pytest
from stenotest.command_line import Steno
from stenotest.story import single

pytestmark = pytest.mark.slow


@pytest.fixture
def three(steno: Steno) -> Steno:
    """A record of three runs, two of one name."""
    steno("submit", "--wait", "--name", "train", "--", "echo learning; exit 3")
    steno("submit", "--wait", "--name", "other", "--", "echo 100%")
    steno("submit", "--wait", "--name", "train", "--", "echo learned")
    return steno


def found(steno: Steno, *words: str) -> list[str]:
    """The commands of the runs that `ps` lists."""
    done = steno("ps", "--json", *words)
    assert done.returncode == 0, done.stderr
    return [run["ran"]["command"] for run in json.loads(done.stdout)["runs"]]


def test_ps_finds_runs_by_what_a_person_knows_of_them(three: Steno) -> None:
    """By command in any case, state, name, order, number; text is plain text; the same at a past moment."""
    ended, failed, other = "echo learned", "echo learning; exit 3", "echo 100%"
    assert found(three) == [ended, other, failed]
    assert found(three, "--failed") == found(three, "--reason", "exit_nonzero") == [failed]
    assert found(three, "-s", "LEARN", "--sort", "name") == [failed, ended]
    assert found(three, "-s", "0%") == [other]
    assert found(three, "-s", "%") == [other]
    assert found(three, "-n", "1") == [ended]
    assert found(three, "--since", "1h", "--gpu", "none", "--state", "succeeded") == [ended, other]
    assert found(three, "-s", "x" * 10_000) == found(three, "-s", ".*[") == []
    position = json.loads(three("ps", "--json").stdout)["position"]
    assert found(three, "--at", str(position), "--failed") == [failed]
    assert found(three, "--at", "3", "--user", "nobody") == []

    ids = three("ps", "-q", "-s", "learn").stdout.split()
    assert [json.loads(three("show", one, "--json").stdout)["ran"]["command"] for one in ids] == [ended, failed]
    wide = three("ps", "--wide").stdout.splitlines()
    assert wide[0].split()[-3:] == ["USER", "GPU", "COMMAND"]
    assert wide[1].endswith(ended)
    narrow = three("ps", COLUMNS="60").stdout
    assert all(one[:8] in narrow for one in ids), "two runs of one name: the id tells them apart"

    shown = three("show", ids[1]).stdout
    assert "command        echo learning; exit 3\n" in shown
    assert "submitted by" in shown


def test_what_cannot_be_found_says_why(three: Steno) -> None:
    """An unknown value: exit 2 and one line that names the known ones. No run at a time: a hint."""
    for words, said in (
        (("--user", "nobody"), "unknown user 'nobody'; known: "),
        (("--machine", "nothing"), "unknown machine 'nothing'; known: local-0"),
        (("--state", "good"), "'good' is not one of 'requested'"),
        (("--failed", "--state", "lost"), "contradict"),
        (("--since", "then"), "'then' is not a time"),
    ):
        done = three("ps", *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert said in done.stderr
    for words, said in (
        (("--since", "2999-01-01"), "in the future"),
        (("--until", "2001-01-01"), "the first one was submitted at"),
        (("-s", "nothing like it"), "steno ps --all"),
        (("--at", "3", "--user", "nobody"), "unknown user 'nobody'"),
    ):
        done = three("ps", *words)
        assert (done.returncode, done.stdout) == (0, "")
        assert said in done.stderr


def test_the_newest_run_is_that_of_the_newest_submission(steno: Steno, tmp_path: Path) -> None:
    """Also at first contact, where one answer shows several runs, the newest first: for -l and for a shared name."""
    newest_first = [single("train", "done", "done", submitted=number, label=f"{number}") for number in (3, 2, 1)]
    line = {
        "t": "2026-01-01T00:00:00Z", "path": "/api/runs/list", "req": {"project_name": "main", "limit": 100},
        "status": 200, "ms": 5, "body": newest_first,
    }  # fmt: skip
    (tmp_path / "first.jsonl").write_text(json.dumps(line) + "\n")
    assert steno("import", str(tmp_path / "first.jsonl")).returncode == 0
    newest = newest_first[0]["id"]
    for words in (("show", "-l"), ("show", "train"), ("timeline", "-l"), ("explain", "train")):
        shown = json.loads(steno(*words, "--json").stdout)
        run = shown.get("run", shown)
        assert run.get("provider_id", newest) == newest
        assert run["run_id"] == json.loads(steno("show", newest, "--json").stdout)["run_id"], words
    assert json.loads(steno("ps", "--all", "--json").stdout)["runs"][0]["provider_id"] == newest
