"""The product and its tests stay within the budget of pyproject.toml, and one name means one class."""

import re
import subprocess
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("cli", "engine", "events", "migrations", "projections", "src")

Budget = dict[str, dict[str, Any]]


def budget_of(pyproject: str) -> Budget:
    """The rows of `[tool.steno.budget]`; none in a version that has no such table."""
    budget: Budget = tomllib.loads(pyproject).get("tool", {}).get("steno", {}).get("budget", {})
    return budget


def files_of(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def raised_without_a_reason(before: Budget, after: Budget) -> list[str]:
    """The rows that allow more than before under the same `why`."""
    return [
        name
        for name, row in after.items()
        if (old := before.get(name)) is not None
        and any(row[count] > old[count] for count in row.keys() & old.keys() & {"lines", "files"})
        and row["why"] == old["why"]
    ]


BUDGET = budget_of((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", [*PRODUCT, "product", "tests"])
def test_a_row_of_the_budget_holds(row: str) -> None:
    """Lines and files of Python: delete elsewhere, or raise the row and say why."""
    files = files_of(*(PRODUCT if row == "product" else (row,)))
    assert sum(map(lines_of, files)) <= BUDGET[row]["lines"]
    assert len(files) <= BUDGET[row]["files"]


def test_no_file_is_longer_than_the_budget_allows() -> None:
    """A longer one holds a second noun: split it."""
    lengths = {path.relative_to(ROOT): lines_of(path) for path in files_of(*PRODUCT, "tests", "benchmarks")}
    assert not {path: lines for path, lines in lengths.items() if lines > BUDGET["longest"]["lines"]}


def test_every_row_says_why() -> None:
    assert not [name for name, row in BUDGET.items() if not row["why"].strip()]


def test_a_raised_row_has_a_new_reason() -> None:
    """Compared with the last two commits, as far as they are here."""
    for commit in ("HEAD", "HEAD~1"):
        command = ["git", "show", f"{commit}:pyproject.toml"]
        before = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if before.returncode == 0:
            assert raised_without_a_reason(budget_of(before.stdout), BUDGET) == []


def test_only_more_room_needs_a_new_reason() -> None:
    """Less needs none, and neither does a row that is new."""
    before: Budget = {"cli": {"lines": 10, "files": 2, "why": "a command"}, "longest": {"lines": 9, "why": "a file"}}
    assert raised_without_a_reason(before, {"cli": {"lines": 11, "files": 2, "why": "a command"}}) == ["cli"]
    assert raised_without_a_reason(before, {"cli": {"lines": 9, "files": 3, "why": "a command"}}) == ["cli"]
    assert raised_without_a_reason(before, {"longest": {"lines": 10, "why": "a file"}}) == ["longest"]
    assert raised_without_a_reason(before, {"cli": {"lines": 11, "files": 3, "why": "another command"}}) == []
    assert raised_without_a_reason(before, {"cli": {"lines": 9, "files": 2, "why": "a command"}}) == []
    assert raised_without_a_reason({}, {"cli": {"lines": 9, "files": 2, "why": "a command"}}) == []


def test_no_two_public_classes_have_one_name() -> None:
    """Searching for a name leads to one class."""
    places = defaultdict(list)
    for path in files_of(*PRODUCT):
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            places[name].append(str(path.relative_to(ROOT)))
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}
