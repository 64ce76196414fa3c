"""What people do all day: read the newest run's last lines, run it again, compare the two."""

import json

import pytest
from stenotest.command_line import Steno, refused

pytestmark = pytest.mark.slow


def run(steno: Steno, command: str, *words: str) -> dict[str, object]:
    """`submit` or `rerun` to its end; the run."""
    done = steno(command, "--wait", "--json", *words)
    found: dict[str, object] = json.loads(done.stdout)
    return found


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


@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_the_last_lines_of_an_output(steno: Steno, follow: tuple[str, ...]) -> None:
    """The whole output where it is shorter; a last line without its end counts."""
    run(steno, "submit", "--name", "lines", "--", "seq 1 40; printf rest")
    assert steno("logs", "lines", "--tail", "3", *follow).stdout.split() == ["39", "40", "rest"]
    assert steno("logs", "lines", "-n", "500", *follow).stdout.split()[0] == "1"
    texts = [
        json.loads(line)["text"] for line in steno("logs", "lines", "-n", "2", "--json", *follow).stdout.splitlines()
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
    found = json.loads(steno("compare", "one", "two", "--json").stdout)
    outcome = {line["field"]: line["values"] for line in found["outcome"]}
    assert outcome["state"] == ["succeeded", "failed"]
    assert outcome["exit_status"] == [0, 7]
    assert [line["field"] for line in found["task"]] == ["commands", "env.TOKEN"]
    assert [one["run_id"] for one in found["runs"]] == [first["run_id"], second["run_id"]]
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

    (found,) = steno("ps", "--failed", "--gpu", "MI300X", "--since", "yesterday", "-s", "SEQ 1 9", "-q").stdout.split()
    lines = steno("logs", found, "--tail", "50").stdout.splitlines()
    why = steno("explain", found).stdout
    again = steno("rerun", found, "--memory", "2GB", "--wait", **here)
    both = steno("compare", found, "bad").stdout

    assert lines == [str(number) for number in range(41, 91)]
    assert "because memory ran out; give it more memory: `steno rerun bad --memory 2GB`" in " ".join(why.split())
    assert again.stdout.splitlines()[0] == "1"
    assert "1GB" in both
    assert "2GB" in both


@pytest.mark.parametrize(("flag", "size"), [("--memory", "900TB"), ("--cpu", "90000.."), ("--disk", "900000TB")])
def test_a_size_that_this_machine_does_not_have_is_refused(steno: Steno, flag: str, size: str) -> None:
    """One line names the flag, and nothing is requested; a size that it has is one of its machine."""
    run(steno, "submit", "--name", "plain", flag, "1", "--", "true")
    for words in (("submit", flag, size, "--", "true"), ("rerun", "-l", flag, size)):
        assert f"{flag} {size}: the provider local has one machine" in refused(steno(*words), 2)
    assert len(json.loads(steno("ps", "--all", "--json").stdout)["runs"]) == 1
