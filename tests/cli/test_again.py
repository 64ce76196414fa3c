"""Daily work: find runs, read the newest run's last lines, run it again, compare the two."""

import json
from pathlib import Path

import pytest
from stenotest.command_line import Steno, refused
from stenotest.dstack_history import single

pytestmark = pytest.mark.slow


def run(steno: Steno, command: str, *words: str) -> dict[str, object]:
    """`submit` or `rerun` to its end; the run."""
    done = steno(command, "--wait", "--json", *words)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_the_newest_run_needs_no_name(steno: Steno) -> None:
    run(steno, "submit", "--name", "first", "--", "echo one")
    run(steno, "submit", "--name", "second", "--", "echo two; exit 3")
    assert steno("logs", "-l").stdout == "two\n"
    assert json.loads(steno("show", "--last", "--json").stdout)["name"] == "second"
    assert json.loads(steno("explain", "-l", "--json").stdout)["run"]["exit_status"] == 3
    assert "leave the name out" in refused(steno("show", "-l", "first"), 2)
    assert "missing argument 'RUN...'" in refused(steno("show"), 2)


def test_the_newest_of_no_runs_is_one_line(steno: Steno) -> None:
    run(steno, "submit", "--name", "only", "--", "true")
    assert "There is no record" in refused(steno("show", "-l", "--record", "none.db"), 4)


def test_the_last_lines_of_an_output(steno: Steno) -> None:
    """The whole output where it is shorter; a last line without its end counts."""
    run(steno, "submit", "--name", "lines", "--", "seq 1 40; printf rest")
    for follow in ((), ("-f",)):
        assert steno("logs", "lines", "--tail", "3", *follow).stdout.split() == ["39", "40", "rest"]
        assert steno("logs", "lines", "-n", "500", *follow).stdout.split()[0] == "1"
        texts = [
            json.loads(line)["text"]
            for line in steno("logs", "lines", "-n", "2", "--json", *follow).stdout.splitlines()
        ]
        assert texts == ["40", "rest"]
    assert "0 is not in the range" in refused(steno("logs", "lines", "-n", "0"), 2)


def test_a_run_is_submitted_again_as_it_was_or_otherwise(steno: Steno) -> None:
    """A chosen name stays, a generated one is generated again; flags are over what was recorded."""
    first = run(steno, "submit", "--name", "train", "-e", "SIZE=4", "--", "echo size $SIZE; exit ${CODE:-0}")
    assert "env wants SIZE from your environment" in refused(steno("rerun", "train"), 2)
    second = run(steno, "rerun", "train", "-e", "SIZE=4", "-e", "CODE=3")
    assert (second["name"], second["state"], second["exit_status"]) == ("train", "failed", 3)
    assert second["run_id"] != first["run_id"]
    assert steno("logs", "-l").stdout == "size 4\n"

    named = run(steno, "submit", "--", "true")
    again = run(steno, "rerun", str(named["name"]))
    assert str(again["name"]).startswith("true-")
    assert again["name"] != named["name"]
    assert "add --wait" in refused(steno("rerun", "-l", "--timeout", "5s"), 2)
    assert "there is no run" in refused(steno("rerun", "nobody"), 4)


def test_two_runs_stand_side_by_side(steno: Steno) -> None:
    """Outcome, times and cost; of the task only what differs, and no secret."""
    first = run(steno, "submit", "--name", "one", "-e", "TOKEN=hunter2", "-e", "SAME=x", "--", "exit 0")
    second = run(steno, "submit", "--name", "two", "-e", "TOKEN=swordfish", "-e", "SAME=x", "--", "exit 7")
    answer = json.loads(steno("compare", "one", "two", "--json").stdout)
    outcome = {line["field"]: line["values"] for line in answer["outcome"]}
    assert outcome["state"] == ["succeeded", "failed"]
    assert outcome["exit_status"] == [0, 7]
    assert [line["field"] for line in answer["task"]] == ["commands", "env.TOKEN"]
    assert [run["run_id"] for run in answer["runs"]] == [first["run_id"], second["run_id"]]
    page = steno("compare", "one", "two").stdout
    assert "exit 7" in page
    assert "hunter2" not in page
    assert "Both requests are equal." in steno("compare", "one", "one").stdout
    refused(steno("compare", "one"), 2)


def test_a_bad_day_takes_five_commands(steno: Steno) -> None:
    """Find the run that failed on an MI300X by its command, read its last 50 lines, say why, run it again with more
    memory, compare both.
    """
    here = {"STENO_LOCAL_GPU": "MI300X", "STENO_LOCAL_BOOT": "0s"}
    steno("submit", "--wait", "-q", "--name", "good", "--", "true", **here)
    steno("submit", "--wait", "-q", "--name", "bad", "--memory", "1GB", "--", "seq 1 90; kill -9 $$", **here)
    steno("submit", "--wait", "-q", "--name", "other", "--", "exit 3", **here)

    (run_id,) = steno("ps", "--failed", "--gpu", "MI300X", "--since", "yesterday", "-s", "SEQ 1 9", "-q").stdout.split()
    lines = steno("logs", run_id, "--tail", "50").stdout.splitlines()
    why = steno("explain", run_id).stdout
    again = steno("rerun", run_id, "--memory", "2GB", "--wait", **here)
    both = steno("compare", run_id, "bad").stdout

    assert lines == [str(number) for number in range(41, 91)]
    assert "because memory ran out; give it more memory: `steno rerun bad --memory 2GB`" in " ".join(why.split())
    assert again.stdout.splitlines()[0] == "1"
    assert "1GB" in both
    assert "2GB" in both


@pytest.mark.parametrize(("flag", "size"), [("--memory", "900TB"), ("--cpu", "90000.."), ("--disk", "900000TB")])
def test_a_size_that_this_machine_does_not_have_is_refused(steno: Steno, flag: str, size: str) -> None:
    """A line names the flag, and nothing is requested; a size that it has is one of its machine."""
    run(steno, "submit", "--name", "plain", flag, "1", "--", "true")
    for words in (("submit", flag, size, "--", "true"), ("rerun", "-l", flag, size)):
        assert f"{flag} {size}: the provider local has one machine" in refused(steno(*words), 2)
    assert len(json.loads(steno("ps", "--all", "--json").stdout)["runs"]) == 1


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
    assert [json.loads(three("show", run_id, "--json").stdout)["ran"]["command"] for run_id in ids] == [ended, failed]
    wide = three("ps", "--wide").stdout.splitlines()
    assert wide[0].split()[-3:] == ["USER", "GPU", "COMMAND"]
    assert wide[1].endswith(ended)
    narrow = three("ps", COLUMNS="60").stdout
    assert all(run_id[:8] in narrow for run_id in ids), "two runs of one name: the id tells them apart"

    page = three("show", ids[1]).stdout
    assert "command        echo learning; exit 3\n" in page
    assert "submitted by" in page


def test_what_cannot_be_found_says_why(three: Steno) -> None:
    """An unknown value: exit 2 and one line that names the known values. No run at a time: a hint."""
    for words, line in (
        (("--user", "nobody"), "unknown user 'nobody'; known: "),
        (("--machine", "nothing"), "unknown machine 'nothing'; known: local-0"),
        (("--state", "good"), "'good' is not one of 'requested'"),
        (("--failed", "--state", "lost"), "contradict"),
        (("--since", "then"), "'then' is not a time"),
    ):
        done = three("ps", *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert line in done.stderr
    for words, line in (
        (("--since", "2999-01-01"), "in the future"),
        (("--until", "2001-01-01"), "the first one was submitted at"),
        (("-s", "nothing like it"), "steno ps --all"),
        (("--at", "3", "--user", "nobody"), "unknown user 'nobody'"),
    ):
        done = three("ps", *words)
        assert (done.returncode, done.stdout) == (0, "")
        assert line in done.stderr


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
        answer = json.loads(steno(*words, "--json").stdout)
        run = answer.get("run", answer)
        assert run.get("provider_id", newest) == newest
        assert run["run_id"] == json.loads(steno("show", newest, "--json").stdout)["run_id"], words
    assert json.loads(steno("ps", "--all", "--json").stdout)["runs"][0]["provider_id"] == newest
