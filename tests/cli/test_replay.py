"""`steno replay` of what people hand it: broken lines are counted, odd limits and odd flags are refused."""

import json
from pathlib import Path

import pytest
from stenotest.command_line import Steno, refused
from stenotest.story import Story, single


@pytest.fixture
def broken(home: Path) -> Path:
    """A trace of three polls whose second line is broken."""
    story = Story()
    for status in ("submitted", "running", "done"):
        story.listed(single(run=status)).wait(5)
    path = story.write(home / "broken.jsonl")
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([lines[0], lines[1][:40], lines[2], ""]), encoding="utf-8")
    return path


@pytest.mark.parametrize("more", [[], ["--json"], ["--diff", "current"], ["--step"]])
def test_lenient_says_how_many_lines_it_left_out(steno: Steno, broken: Path, more: list[str]) -> None:
    """On stderr, once, with the number of the first."""
    assert "line 2" in refused(steno("replay", broken, *more), 2)
    done = steno("replay", broken, "--lenient", *more)
    assert done.returncode == 0
    assert done.stderr == "steno: 1 broken line skipped: line 2\n"
    assert done.stdout


def test_a_walk_compares_nothing(steno: Steno, broken: Path) -> None:
    """Two flags of which one would be ignored are refused."""
    assert "--step" in refused(steno("replay", broken, "--lenient", "--step", "--diff", "2025-12-sdk"), 2)


def test_a_limit_beyond_every_position_is_no_limit(steno: Steno, home: Path) -> None:
    """Of a record as of a trace."""
    trace = Story().listed(single(run="done")).write(home / "one.jsonl")
    assert steno("import", trace).returncode == 0
    for history in ([], [trace]):
        done = steno("replay", *history, "--until", "9" * 30, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["runs"][0]["state"] == "succeeded"
    refused(steno("replay", "--until", "9" * 5000), 2)


def test_rule_sets_come_from_the_registry(steno: Steno, broken: Path) -> None:
    """Those of every provider are listed with what they are, and can be named; a wrong name lists them."""
    shown = steno("replay", "--help").stdout
    for name in ("current", "2025-12-sdk-enum", "2026-02-rv"):
        assert f"\n  {name} " in shown
    assert steno("replay", broken, "--lenient", "--rules", "2026-02-rv", "--json").returncode == 0
    assert "2026-02-rv" in refused(steno("replay", broken, "--diff", "2026"), 2)
