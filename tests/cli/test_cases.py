"""`steno cases`, `steno rules diff` and `steno bisect`: their forms, and what they say where they cannot."""

import csv
import json
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from stenotest.command_line import Steno, refused

TRACE = Path(__file__).parents[1] / "traces" / "dstack-0.22.5" / "several.jsonl.zst"


def test_the_list_counts_what_every_run_showed(imported: Steno) -> None:
    """As JSON, as CSV and as text; a case leads to runs that had it, and to the polls."""
    answer = json.loads(imported("cases", "--json").stdout)
    cases = answer["cases"]
    assert [row["case"] for row in cases] == list(range(1, len(cases) + 1))
    assert all(row["runs"] <= row["observations"] and row["last_position"] >= row["first_position"] for row in cases)
    table = list(csv.DictReader(StringIO(imported("cases", "--csv").stdout)))
    assert [int(row["observations"]) for row in table] == [row["observations"] for row in cases]
    failed = json.loads(imported("cases", "--state", "failed", "--json").stdout)["cases"]
    assert failed == [row for row in cases if row["judged"][0]["state"] == "failed"]
    assert failed
    page = json.loads(imported("cases", str(failed[0]["case"]), "--json").stdout)
    example = page["examples"][0]
    assert (page["words"], example["position"]) == (failed[0]["words"], page["first_position"])
    assert imported("poll", str(example["position"])).returncode == 0
    assert example["name"] in imported("cases", str(failed[0]["case"])).stdout
    assert failed[0]["words"] in imported("cases").stdout


def test_a_moment_before_has_only_what_was_seen_then(imported: Steno) -> None:
    now = json.loads(imported("cases", "--json").stdout)
    then = json.loads(imported("cases", "--at", "100", "--json").stdout)
    assert then["position"] == 100
    assert [row["case"] for row in then["cases"]] == [
        row["case"] for row in now["cases"] if row["first_position"] <= 100
    ]
    assert all(row["last_position"] <= 100 for row in then["cases"])


def test_rules_that_no_observation_reached_are_named_with_a_case_that_would(imported: Steno) -> None:
    answer = json.loads(imported("cases", "--unseen", "--json").stdout)
    reached = {row["judged"][0]["rule"] for row in json.loads(imported("cases", "--json").stdout)["cases"]}
    unseen = {row["rule"] for row in answer["unseen"]}
    assert "current@1/master-done" in unseen
    assert not unseen & reached
    assert "current@1/master-done" in imported("cases", "--unseen").stdout


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["cases", "999"], 4, "there is no case 999"),
        (["cases", "3", "--unseen"], 2, "one case is shown alone"),
        (["cases", "--unseen", "--csv"], 2, "--unseen lists rules"),
        (["cases", "--diff", "current", "2025-12-sdk"], 2, "sees more than cases"),
        (["cases", "--diff", "current", "nobody"], 2, "No rule set 'nobody'"),
        (["rules", "diff", "current", "nobody"], 2, "No rule set 'nobody'"),
        (["rules", "diff", "current", "current", "--markdown", "--json"], 2, "cannot be combined"),
        (["rules", "diff", "current", "current", "nothing.jsonl"], 4, "nothing.jsonl"),
        (["rules", "diff", "current", "current", "--junit", "no/folder/rules.xml"], 2, "no/folder is not a folder"),
        (["bisect", "nobody", "current", "2025-12-sdk"], 4, "there is no run 'nobody'"),
    ],
)
def test_what_cannot_be_answered_is_said_in_one_line(imported: Steno, words: list[str], code: int, text: str) -> None:
    assert text in refused(imported(*words), code)


def test_a_rule_set_that_sees_facts_is_folded_in_full_and_says_what_replay_says(imported: Steno, home: Path) -> None:
    """Its verdicts, its exit code, its report for CI; and the same of the trace itself."""
    replayed = imported("replay", "--diff", "2025-12-sdk", "--json")
    diff = imported("rules", "diff", "current", "2025-12-sdk", "--json", "--junit", "rules.xml")
    assert (replayed.returncode, diff.returncode) == (1, 1)
    answer, differences = json.loads(diff.stdout), json.loads(replayed.stdout)["differences"]
    assert (answer["how"], answer["why"]) == ("full", "2025-12-sdk sees more than cases")
    changed = [change for change in answer["changes"] if change["verdict"]]
    assert [(change["run_id"], change["left"], change["right"]) for change in changed] == [
        (each["run_id"], each["left"], each["right"]) for each in differences
    ]
    suite = ElementTree.parse(home / "rules.xml").getroot()
    assert suite.get("failures") == str(len(suite.findall("testcase/failure"))) == str(len(answer["changes"]))
    assert "steno bisect" not in imported("rules", "diff", "current", "2025-12-sdk", TRACE).stdout
    there = imported("rules", "diff", "current", "2025-12-sdk", "record.db").stdout
    assert "current 2025-12-sdk --record record.db\n" in there
    of_trace = json.loads(imported("rules", "diff", "current", "2025-12-sdk", TRACE, "--json").stdout)
    assert [change["run_id"] for change in of_trace["changes"]] == [change["run_id"] for change in answer["changes"]]
    table = imported("rules", "diff", "current", "2025-12-sdk", "--markdown").stdout
    assert all(f"| {change['name']} |" in table for change in answer["changes"])
    name, position = changed[0]["name"], changed[0]["position"]
    parted = imported("bisect", name, "current", "2025-12-sdk", "--json")
    assert (parted.returncode, json.loads(parted.stdout)["poll"]["position"]) == (1, position)
    assert f"position {position}" in imported("bisect", name, "current", "2025-12-sdk").stdout


def test_a_rule_set_that_changes_nothing_ends_with_zero(imported: Steno, home: Path) -> None:
    diff = imported("rules", "diff", "current", "current", "--junit", "rules.xml")
    assert (diff.returncode, "no run changes" in diff.stdout, "0 events folded" in diff.stdout) == (0, True, True)
    assert ElementTree.parse(home / "rules.xml").getroot().get("failures") == "0"
    assert imported("bisect", "m-1", "current", "current").returncode == 0


def test_with_decisions_everything_is_folded(imported: Steno) -> None:
    answer = json.loads(imported("rules", "diff", "current", "current", "--decisions", "--json").stdout)
    assert (answer["how"], answer["changes"], answer["folded"]) == ("full", [], 2 * answer["events"])
