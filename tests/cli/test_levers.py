"""`steno pause`, `drain`, `resume`, `vms keep` and stops of many runs: on this machine, and on a record of machines."""

import getpass
import json
from pathlib import Path
from uuid import uuid4

import pytest
from stenotest.command_line import Steno
from stenotest.decided_record import DecidedRecord
from stenotest.in_process import InProcess

from steno.engine.submit.levers import STREAM
from steno.events.clock import SECOND, SystemClock
from steno.events.levers import LeverPulled
from steno.events.store.record import Batch, Record

pytestmark = pytest.mark.slow


def types(steno: Steno) -> list[str]:
    return [json.loads(line)["type"] for line in steno("events", "--json").stdout.splitlines()]


def test_a_pause_is_told_waited_for_and_released(steno: Steno) -> None:
    """A submission meanwhile is told who, why and what releases it; then the run goes as if nothing had been."""
    assert steno("pause", "--why", "maintenance").returncode == 0
    waits = steno("submit", "--name", "train", "--", "true")
    assert waits.returncode == 0, waits.stderr
    assert "paused everything" in waits.stderr
    assert "maintenance" in waits.stderr
    queue = json.loads(steno("ps", "--json").stdout)["queue"]
    assert [(place["why"], "steno resume" in place["detail"]) for place in queue] == [("lever", True)]
    assert "paused everything" in steno("ps").stderr
    assert "maintenance" in steno("explain", "train").stdout
    patient = steno("submit", "--wait", "--timeout", "1s", "--name", "later", "--", "true")
    assert (patient.returncode, "paused everything" in patient.stderr) == (1, True)
    assert "until 20" in steno("pause", "--user", "nobody", "--for", "1s", "--why", "one\nline").stdout
    twice = steno("pause", "--why", "once more")
    assert (twice.returncode, "already" in twice.stderr, "once more" in twice.stdout) == (0, True, False)
    released = steno("resume")
    assert (released.returncode, "runs that wait: 2; `steno up` or `steno record`" in released.stderr) == (0, True)
    gone = steno("resume")
    assert (gone.returncode, len(gone.stderr.splitlines())) == (4, 1)
    assert steno("submit", "--wait", "--name", "last", "--", "true").returncode == 0
    steno("pause", "--for", "2h", "--why", "lunch")
    steno("submit", "--name", "hungry", "--", "true")
    assert "Z, as the lever ends then." in " ".join(steno("explain", "hungry").stdout.split())
    assert types(steno).count("LeverPulled") == 3


def test_a_lever_that_ends_while_others_are_released_stops_nothing(steno: Steno, place: str) -> None:
    """Levers still in force are released, and the answer says so; only where none is left there is nothing to do."""
    assert steno("pause", "--why", "for good").returncode == 0
    me = getpass.getuser()
    with Record.open(place, write=True, clock=SystemClock()) as record:
        ends = SystemClock().now() + SECOND
        brief = [
            LeverPulled(lever_id=uuid4().hex, action="pause", user=f"user-{n}", until=ends, why="brief", by=me)
            for n in range(100)
        ]
        record.append_many([Batch(STREAM, tuple(brief))])
    SystemClock().sleep(ends - SystemClock().now() - SECOND // 10)
    released = steno("resume")
    assert released.returncode == 0, released.stderr
    assert steno("resume").returncode == 4


def test_everything_is_stopped_by_one_command_and_nothing_starts(steno: Steno) -> None:
    """The runs that it stops are shown first, with its cost; where nobody can answer nothing happens."""
    for name in ("one", "two"):
        assert steno("submit", "--name", name, "--", "sleep 600").returncode == 0
    unsure = steno("stop", "--all")
    assert (unsure.returncode, unsure.stdout) == (2, "")
    assert "add --yes to stop 2 runs" in unsure.stderr
    assert "one  running" in unsure.stderr
    assert "LeverPulled" not in types(steno)
    done = steno("stop", "--all", "--yes", "--why", "the bill", "--json")
    assert done.returncode == 0, done.stderr
    lever = json.loads(done.stdout)
    assert (lever["action"], lever["why"], lever["until"]) == ("stop", "the bill", None)
    states = {run["name"]: run["state"] for run in json.loads(steno("ps", "--json").stdout)["runs"]}
    assert states == {"one": "stopped", "two": "stopped"}
    assert "the bill" in steno("explain", "one").stdout
    assert "queued" in steno("submit", "--name", "three", "--", "true").stderr
    assert json.loads(steno("show", "three", "--json").stdout)["state"] == "queued"
    assert types(steno).count("LeverPulled") == 1
    assert "every decision follows" in steno("audit").stdout


def test_several_runs_are_stopped_or_run_again_by_one_command(steno: Steno) -> None:
    """If one of the names is not known, nothing happens to the others."""
    for name in ("one", "two"):
        assert steno("submit", "--name", name, "--", "sleep 600").returncode == 0
    assert steno("stop", "one", "nobody", "two").returncode == 4
    assert "StopRequested" not in types(steno)
    done = steno("stop", "one", "two", "--json")
    assert [json.loads(line)["state"] for line in done.stdout.splitlines()] == ["stopped", "stopped"]
    assert steno("rerun", "one", "nobody").returncode == 4
    again = steno("rerun", "one", "two", "--json")
    assert [json.loads(line)["name"] for line in again.stdout.splitlines()] == ["one", "two"]
    assert steno("stop", "--state", "running", "--yes").returncode == 0
    assert "nothing to stop" in steno("stop", "--state", "running", "--yes").stdout


@pytest.fixture
def site(tmp_path: Path) -> tuple[DecidedRecord, InProcess]:
    """A record with a machine that is idle."""
    made = DecidedRecord(tmp_path)
    made.request("train")
    made.round()
    made.start("train", "m1")
    made.wait(60)
    made.end("train", "m1")
    made.round()
    return made, InProcess(tmp_path)


def test_a_machine_is_kept_by_one_person_until_somebody_releases_it(site: tuple[DecidedRecord, InProcess]) -> None:
    """The answer and `explain` say when dstack's own timer ends it; who keeps it may keep it longer, others may not."""
    _, call = site
    made = call("vms", "keep", "m1", "--for", "2h", "--why", "a crash")
    assert made.exit_code == 0, made.output
    assert "dstack itself ends it" in made.stderr
    longer = call.json("vms", "keep", "m1", "--for", "3h", "--why", "a crash")
    assert (longer["action"], longer["machines"]) == ("keep", ["m1"])
    refused = call("vms", "keep", "m1", "--for", "1h", "--why", "mine", LOGNAME="bob")
    assert (refused.exit_code, "keeps m1 until" in str(refused.exception)) == (1, True)
    explained = call.page("explain", "m1")
    assert "keeps it until" in explained
    assert "dstack itself ends it about" in explained
    call.page("resume", longer["lever_id"][:8])
    call.page("vms", "keep", "m1", "--for", "1h", "--why", "mine", LOGNAME="bob")


def test_what_somebody_keeps_is_their_money_in_every_answer(site: tuple[DecidedRecord, InProcess]) -> None:
    """The idle time of a machine that ada keeps: by user, of her alone, and in what changed."""
    made, call = site
    until = made.clock.now() + 3600 * SECOND
    keep = LeverPulled(lever_id="k", action="keep", vm_id=made.vm_id("m1"), until=until, why="a crash", by="ada")
    made.write("levers", keep)
    made.wait(600)
    sums = {row["key"]: row["total_usd"] for row in call.json("costs", "--by", "user")["rows"]}
    assert set(sums) == {"ada", "(idle)"}
    assert float(sums["ada"]) > 600 / 3600 * 1.99
    mine = call.json("costs", "--by", "user", "--user", "ada")
    assert (mine["total"]["total_usd"], mine["total"]["lines"]["idle"] > "0.3") == (sums["ada"], True)
    for words in ((), ("--user", "ada")):
        changed = call.json("changes", "--since", "2025-12-01", *words)["changes"]
        spent = {row["name"]: row["cost_usd"] for row in changed if row["kind"] == "money"}
        assert spent == (sums if not words else {"ada": sums["ada"]})


def test_of_several_machines_none_is_kept_if_one_cannot_be(site: tuple[DecidedRecord, InProcess]) -> None:
    made, call = site
    made.request("other")
    made.round()
    made.start("other", "m2")
    made.round()
    call.page("vms", "keep", "m2", "--for", "1h", "--why", "mine", LOGNAME="bob")
    refused = call("vms", "keep", "m1", "m2", "--for", "1h", "--why", "x")
    assert "bob keeps m2 until" in str(refused.exception)
    assert [event.type for event in made.record.read()].count("LeverPulled") == 1


def test_a_lever_about_a_user_whom_nobody_knows_says_so(steno: Steno) -> None:
    """It is pulled: the user may come. The nearest name is shown."""
    me = getpass.getuser()
    assert steno("submit", "--name", "one", "--wait", "--", "true").returncode == 0
    paused = steno("pause", "--user", f"{me}x", "--why", "x")
    assert (paused.returncode, len(paused.stderr.splitlines())) == (0, 1)
    assert f"user/{me}x: no run of that user is in the record yet; did you mean {me}?" in paused.stderr
    assert steno("pause", "--user", me, "--why", "x").stderr == ""
    assert steno("drain", "--for", "2h").returncode == 0
    assert "drain everything until 20" in steno("changes").stdout


def test_a_lever_that_cannot_be_pulled_is_one_line(site: tuple[DecidedRecord, InProcess], steno: Steno) -> None:
    """And nothing is recorded."""
    record = str(site[0].folder / "record.db")
    for words, code, text in (
        (("pause",), 2, "--why"),
        (("pause", "--why", " "), 2, "say why"),
        (("pause", "--why", "ü" * 501), 2, "it has 501 characters; use 500 at most"),
        (("pause", "--for", "90d", "--why", "x"), 5, "31 days"),
        (("rules", "adopt", "current", "--why", "\n"), 2, "say why"),
        (("budget", "move", "1", "--from", "user/a", "--to", "user/b", "--why", "x" * 501), 2, "500 at most"),
        (("pause", "--user", "", "--why", "x"), 2, "`user` is empty"),
        (("pause", "--source", "moon", "--why", "x"), 4, "no source moon"),
        (("drain", "--for", "soon"), 2, "soon"),
        (("drain", "--for", "0"), 2, "above 0 and up to a year"),
        (("drain", "--for", "90d"), 5, "31 days"),
        (("resume", "l9"), 4, "no lever l9 in force"),
        (("vms", "keep", "m9", "--for", "2h", "--why", "x"), 4, "m9"),
        (("vms", "keep", "m1", "--why", "x"), 2, "--until 18:00"),
        (("vms", "keep", "m1", "--until", "2h ago", "--why", "x"), 2, "is past"),
        (("stop", "--state", "dancing", "--yes"), 2, "no state dancing"),
        (("stop", "train", "--all"), 2, "take no names"),
        (("stop",), 2, "RUN"),
    ):
        refused = steno(*words, STENO_RECORD=record)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (code, 1), refused.stderr
        assert text in refused.stderr
    site[0].live.catch_up()
    assert "LeverPulled" not in {event.type for event in site[0].record.read()}


def test_a_lever_by_gpu_is_found_again_however_the_gpu_is_written(steno: Steno) -> None:
    """By `pause`, which pulls it once, and by `resume`."""
    assert "MI300X" in steno("pause", "--gpu", "amd:mi300x", "--why", "maintenance").stdout
    assert "already" in steno("pause", "--gpu", "MI300X", "--why", "once more").stderr
    assert steno("resume", "--gpu", "AMD Instinct MI300X VF").returncode == 0
    assert types(steno).count("LeverPulled") == 1
