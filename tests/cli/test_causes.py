"""`steno causes`: one answer a file, the line quoted by its bytes, a site's rules first, bad input in one line."""

import json
from pathlib import Path

import pytest
from stenotest.in_process import InProcess

from steno.events.errors import UnreadableInput

OUTPUT = b"step 1 loss 2.1\ntorch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.\nbye\n"
RULE = "[[rule]]\nname = 'goodbye'\ncause = 'preempted'\nsource = 'ours'\npatterns = ['^bye$']\nremedy = 'say hello'\n"


@pytest.fixture
def run(tmp_path: Path) -> InProcess:
    (tmp_path / "a.out").write_bytes(OUTPUT)
    return InProcess(tmp_path)


def test_one_object_a_file_quotes_the_line_by_its_bytes(run: InProcess, tmp_path: Path) -> None:
    (tmp_path / "empty.out").write_bytes(b"")
    done = run("causes", tmp_path / "a.out", tmp_path / "empty.out", "--exit-status", 1, "--json")
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["cause"], first["blame"]) == ("gpu_out_of_memory", "task")
    assert OUTPUT[first["from"] : first["to"]].decode() == first["line"]
    assert second["cause"] == "unknown"
    assert second["line"] is None


def test_after_exit_status_0_there_is_no_cause(run: InProcess, tmp_path: Path) -> None:
    assert run.json("causes", tmp_path / "a.out", "--exit-status", 0)["cause"] is None
    assert "no cause" in run.page("causes", tmp_path / "a.out", "--exit-status", 0)


def test_people_read_the_line_the_rule_and_what_to_do(run: InProcess, tmp_path: Path) -> None:
    page = run.page("causes", tmp_path / "a.out", "--exit-status", 1)
    assert "gpu_out_of_memory, blame: task" in page
    assert "HIP out of memory" in page
    assert "smaller batch" in page


def test_a_sites_rules_are_read_first(run: InProcess, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULE)
    answer = run.json("causes", tmp_path / "a.out", "--exit-status", 1, "--rules", rules)
    assert (answer["cause"], answer["rule"]) == ("preempted", "goodbye")
    by_setting = run.json("causes", tmp_path / "a.out", "--exit-status", 1, STENO_CAUSES=str(rules))
    assert by_setting["rule"] == "goodbye"


@pytest.mark.parametrize(
    ("rules", "word"),
    [("[[rule", "rules.toml"), (RULE.replace("^bye$", "(?=x)"), "linear"), (RULE.replace("preempted", "bad"), "bad")],
)
def test_bad_rules_are_refused_in_one_line(run: InProcess, tmp_path: Path, rules: str, word: str) -> None:
    (tmp_path / "rules.toml").write_text(rules)
    done = run("causes", tmp_path / "a.out", "--rules", tmp_path / "rules.toml")
    assert isinstance(done.exception, UnreadableInput)
    assert word in str(done.exception)
    assert not done.stdout


def test_without_a_file_it_lists_what_it_knows(run: InProcess) -> None:
    rows = run.json("causes")
    assert len(rows) == 26
    assert all(row["remedy"] and row["rules"] for row in rows)
    assert "gpu_out_of_memory" in run.page("causes")
