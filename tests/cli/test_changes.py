"""`changes`, and `--since`, `--user` and `--mine` of other lists: what an operator asks in the morning."""

import getpass
import json
from pathlib import Path

import pytest
from stenotest.command_line import Steno, refused
from stenotest.gated_run import holding

from steno.cli.render import paint
from steno.cli.render.changes import page
from steno.projections.answers.changes import ChangeRow, Changes

pytestmark = pytest.mark.slow
TRACE = Path(__file__).parent.parent / "traces" / "dstack-0.22.5" / "unreachable.jsonl.zst"


def test_what_changed_is_summed_up_and_listed(steno: Steno) -> None:
    """Runs of one name share a line, runs without success come first; nothing of others is in `--mine`."""
    steno("import", TRACE)
    for command in ("true", "exit 3", "exit 3"):
        steno("submit", "--wait", "--name", "nightly", "--", command)
    page = steno("changes", "--since", "1h").stdout
    assert "3 runs submitted, 3 ended (2 without success)" in page
    assert page.index("nightly (2 runs)") < page.index("● succeeded")
    assert "It exited 3" in page
    everything = json.loads(steno("changes", "--since", "2026-01-01", "--json").stdout)["changes"]
    assert [row["name"] for row in everything if row["state"] == "vanished"] == ["lab-fleet-0 (MI300X:1)"]
    assert {row["user"] for row in everything if row["kind"] == "run"} == {"admin", getpass.getuser()}
    mine = json.loads(steno("changes", "--since", "2026-01-01", "--mine", "--json").stdout)["changes"]
    assert {row["user"] for row in mine if row["kind"] == "run"} == {getpass.getuser()}
    assert not [row for row in mine if row["kind"] == "anomaly"]
    assert json.loads(steno("incidents", "--mine", "--json").stdout)["anomalies"] == []
    assert len(json.loads(steno("incidents", "--since", "2026-01-01", "--json").stdout)["anomalies"]) == 1
    assert json.loads(steno("incidents", "--since", "1h", "--json").stdout)["anomalies"] == []
    assert {run["name"] for run in json.loads(steno("ps", "--mine", "--json").stdout)["runs"]} == {"nightly"}


def test_a_long_reason_hides_neither_who_nor_when() -> None:
    """The row of a lever keeps its time in a wide terminal, and its user in a narrow one."""
    rows = [
        ChangeRow(kind="setting", name="levers", user="ada", at=1_796_101_087_805_502, what=f"pulled a lever {why}")
        for why in ("(bench)", "(" + "long " * 99 + ")")
    ]
    answer = Changes(start=0, end=1, user=None, runs_submitted=0, total_usd=0, changes=tuple(rows), more=False)
    for columns, at in ((140, 2), (120, 2), (100, 0), (80, 0)):
        lines = page(answer, columns).splitlines()
        assert max(map(paint.width, lines)) <= columns
        assert [line.count("ada") for line in lines[3:]] == [1, 1]
        assert sum("2026-12-01 04:58:07Z" in line for line in lines) == at


def test_costs_of_a_user_are_the_line_of_that_user(steno: Steno) -> None:
    steno("import", TRACE)
    steno("submit", "--wait", "--", "true", STENO_LOCAL_PRICE="1.99")
    by_user = {
        row["key"]: row["total_usd"] for row in json.loads(steno("costs", "--by", "user", "--json").stdout)["rows"]
    }
    for user in ("admin", getpass.getuser()):
        for by in ("run", "vm", "day", "gpu"):
            report = json.loads(steno("costs", "--by", by, "--user", user, "--json").stdout)
            assert report["total"]["total_usd"] == by_user[user], by


@pytest.mark.parametrize("command", ["changes", "incidents"])
def test_bad_ranges_and_users_are_named_in_one_line(steno: Steno, command: str) -> None:
    steno("submit", "--wait", "--", "true")
    assert "2099-01-01 is in the future" in refused(steno(command, "--since", "2099-01-01"), 2)
    assert "'soon' is not a time" in refused(steno(command, "--since", "soon"), 2)
    assert "unknown user 'nobody'; known: " in refused(steno(command, "--user", "nobody"), 2)
    assert "leave --user out" in refused(steno(command, "--mine", "--user", "nobody"), 2)


def test_a_range_without_data_says_where_the_record_begins(steno: Steno) -> None:
    steno("import", TRACE)
    done = steno("changes", "--since", "1h")
    assert done.stdout == ""
    assert done.stderr.startswith("nothing changed since ")
    assert "the record begins at 2026-11-20" in steno("changes", "--since", "2026-11-20T12:00:00Z").stderr
    assert "leave --chart" in refused(steno("costs", "--mine", "--chart"), 2)


def test_the_way_to_a_port_of_a_run_of_this_machine(steno: Steno, gate: Path) -> None:
    """Its address while it runs; why not once it has ended, and of an archive."""
    steno("submit", "--name", "web", "--", holding(gate))
    assert steno("attach", "web", "--port", "8888").stdout == "http://127.0.0.1:8888\n"
    way = json.loads(steno("attach", "web", "-p", "8888", "--json").stdout)
    assert (way["address"], way["commands"], way["inside"]) == ("http://127.0.0.1:8888", [], None)
    assert "name a port" in steno("attach", "web").stdout
    gate.touch()
    steno("watch", "web")
    assert "web has ended (succeeded)" in refused(steno("attach", "web", "--port", "8888"), 5)
    assert "'-p': 0 is not in the range" in refused(steno("attach", "web", "--port", "0"), 2)
    steno("import", TRACE)
    assert "part of the archive" in refused(steno("attach", "spot-run", "--port", "80"), 5)
