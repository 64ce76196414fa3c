"""`steno rules`: files are checked, shown and adopted; the record keeps what was adopted."""

import json
import re
from pathlib import Path

import pytest
from stenotest.command_line import Steno, refused
from stenotest.rule_texts import ROWS, rule_text

from steno.engine.rules.rule_file import digest_of

pytestmark = pytest.mark.slow


@pytest.fixture
def site(home: Path) -> Path:
    """The rules of a site, in the rules folder."""
    (home / "rules").mkdir()
    path = home / "rules" / "site.toml"
    path.write_text(rule_text())
    return path


def killed(steno: Steno, name: str) -> str:
    """The reason that `steno show` gives of a run that exits 137."""
    assert steno("submit", "--wait", "--name", name, "--", "sh", "-c", "exit 137").returncode == 1
    return str(json.loads(steno("show", name, "--json").stdout)["reason"])


def test_a_site_says_its_own_and_takes_it_back(steno: Steno, site: Path) -> None:
    """From the adoption on, and until `current` is adopted again; runs before it stay as they were judged."""
    assert killed(steno, "first") == "exit_nonzero"
    assert steno("replay", "--diff", "site").returncode == 1
    (parting,) = json.loads(steno("cases", "--diff", "current", "site", "--json").stdout)["cases"]
    assert [each["rules"] for each in parting["judged"]] == ["current", "site"]
    adopted = steno("rules", "adopt", "site", "--why", "the memory killer", "--json")
    assert json.loads(adopted.stdout)["hash"] == digest_of([site.read_text()])
    site.write_text("edited since")
    assert killed(steno, "second") == "out_of_memory"
    explained = json.loads(steno("explain", "second", "--json").stdout)
    assert explained["sentence"].startswith("The row `killed-for-memory` of the rules `site` says failed/out_of_memory")
    assert json.loads(steno("rules", "adopt", "adopted", "--why", "again", "--json").stdout)["position"] is None
    assert steno("rules", "adopt", "current", "--why", "enough").returncode == 0
    assert killed(steno, "third") == "exit_nonzero"
    site.unlink()
    runs = {run["name"]: run["reason"] for run in json.loads(steno("replay", "--json").stdout)["runs"]}
    assert runs == {"first": "exit_nonzero", "second": "out_of_memory", "third": "exit_nonzero"}
    listed = json.loads(steno("rules", "list", "--json").stdout)
    assert [(step["name"], step["why"]) for step in listed["adopted"]] == [
        ("site", "the memory killer"),
        ("current", "enough"),
    ]
    assert listed["in_force"] == "current"


def test_findings_have_file_and_line_and_an_exit_code(steno: Steno, site: Path) -> None:
    """Errors exit 1, notes 0; each line can be clicked."""
    assert steno("rules", "check").stdout.endswith("1 file: nothing to complain of\n")
    row = '\n[[row]]\nwhen.over = true\nwhen.deciding = { cause = "interrupted", exit_status = 2 }\n'
    site.write_text(rule_text(ROWS + row + 'then = { state = "failed", reason = "interrupted" }\n'))
    done = steno("rules", "check", "rules/site.toml")
    assert done.returncode == 1
    assert done.stdout.startswith(
        "rules/site.toml:19: hidden: row-3: it never decides: all of its cases match taken-away"
    )
    (finding,) = json.loads(steno("rules", "check", "--json").stdout)["findings"]
    assert (finding["line"], finding["kind"], finding["error"]) == (19, "hidden", True)
    refusal = steno("rules", "adopt", "site", "--why", "it was late")
    assert refusal.returncode == 6
    assert "site.toml:19" in refusal.stderr


def test_a_set_that_cannot_be_extended_is_a_finding_and_hides_no_other(steno: Steno, site: Path) -> None:
    """At the line of `extends`, of a set that is not there, is not understood, or extends its own extension."""
    bases = {"a": "nowhere", "b": "site", "c": "d", "d": "c", "e": "f", "f": "current"}
    for name, base in bases.items():
        site.with_name(f"{name}.toml").write_text(rule_text(name=name, extends=base))
    site.with_name("f.toml").write_text("cut")
    site.with_name("z.toml").write_text("cut")
    done = steno("rules", "check", "--json")
    lines = {Path(each["file"]).stem: each["line"] for each in json.loads(done.stdout)["findings"]}
    assert (done.returncode, lines) == (1, {"a": 5, "c": 5, "d": 5, "e": 5, "f": 1, "z": 1})
    assert "a.toml:5: there is no" in refused(steno("replay", "--rules", "a"), 2)


def test_rule_sets_of_one_name_are_told_apart_where_they_are_compared(steno: Steno, site: Path) -> None:
    """The adopted text, the file edited since, and a file elsewhere; the suggested command compares the same."""
    assert steno("rules", "adopt", "site", "--why", "the memory killer").returncode == 0
    assert killed(steno, "first") == "out_of_memory"
    site.write_text(rule_text(ROWS.replace("out_of_memory", "node_failed")))
    (site.parent.parent / "site.toml").write_text(rule_text())
    for left, right in (("adopted", "site"), ("site.toml", "site")):
        answer = json.loads(steno("rules", "diff", left, right, "--json").stdout)
        assert (answer["rules"], len(answer["changes"])) == ([left, right], 1)
        (command,) = re.findall("steno (bisect .*)", steno("rules", "diff", left, right).stdout)
        parted = steno(*command.split())
        assert parted.returncode == 1
        assert re.search(rf"^{left} +failed/out_of_memory.*\n{right} +failed/node_failed", parted.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("format = 2\n", "format 2 is of a later version"),
        ('format = 1\nname = "si', "site.toml:2: is not valid TOML"),
        (rule_text('\n[[row]]\nwhen.status = "done"\nthen = { state = "failed" }\n'), "site.toml:8: `status` is not"),
    ],
)
def test_a_file_that_is_not_understood_changes_nothing(steno: Steno, site: Path, text: str, words: str) -> None:
    """The message is a single line with file and line; the list shows it too, and goes on."""
    site.write_text(text)
    for command in (("replay", "--rules", "site"), ("rules", "adopt", "site", "--why", "x"), ("rules", "show", "site")):
        assert words in refused(steno(*command), 2)
    assert steno("rules", "check").returncode == 1
    assert steno("rules", "list").returncode == 0


def test_rows_are_shown(steno: Steno, site: Path) -> None:
    """The rows of a file, of `current`, and of what is in force."""
    assert "failed/out_of_memory  killed-for-memory" in steno("rules", "show", str(site)).stdout
    rows = json.loads(steno("rules", "show", "current", "--json").stdout)["rows"]
    assert (rows[0]["name"], rows[0]["then"]) == ("all-exits-zero", "succeeded/exit_zero")
    assert "is a program, not a table" in refused(steno("rules", "show", "2025-12-sdk"), 2)
    assert "No rule set 'nope'" in refused(steno("rules", "show", "nope"), 2)
