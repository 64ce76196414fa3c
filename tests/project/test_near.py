"""`make near` runs the tests of the rooms that changed."""

import subprocess
from pathlib import Path

import pytest
from stenotest.near import ALWAYS, changed, selection

ROOT = Path(__file__).parents[2]
CONTRACTS, *_ = ALWAYS


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("engine/decide/queue.py", "tests/engine/decide"),
        ("engine/state/states.py", "tests/engine/fold"),
        ("engine/objects.py", "tests/engine"),
        ("engine/kernel/warm_provider/provider.py", "tests/kernel"),
        ("engine/providers/slurm/words.py", "tests/providers/slurm"),
        ("events/store/sqlite/store.py", "tests/events"),
        ("projections/read_models/view.py", "tests/projections"),
        ("projections/api/reads/money.py", "tests/api"),
        ("projections/dashboard/assets/js/lanes.js", "tests/api"),
        ("cli/commands/ps.py", "tests/cli"),
        ("migrations/env.py", "tests/events"),
        ("tests/engine/money/test_bill.py", "tests/engine/money/test_bill.py"),
        ("tests/engine/money/conftest.py", "tests/engine/money"),
        ("tests/support/stenotest/dstack_history.py", "tests/project"),
        ("docs/api.md", "tests/project"),
        ("Makefile", "tests/project"),
    ],
)
def test_a_changed_file_names_the_selection_its_room(file: str, tests: str) -> None:
    """The folder of the same name, or of the nearest room around it."""
    assert set(selection([file], ROOT)) | set(ALWAYS) == {tests, *ALWAYS}


def test_every_room_of_the_product_has_selection_its_own() -> None:
    """None falls back to the tests of the project, which say nothing of it."""
    for package in ("cli", "engine", "events", "projections"):
        for room in (ROOT / package).rglob("__init__.py"):
            tests = set(selection([str(room.relative_to(ROOT))], ROOT)) - set(ALWAYS)
            assert tests, room
            assert "tests/project" not in tests, room


def test_a_folder_runs_once_and_a_deleted_test_not_at_all() -> None:
    files = ["tests/engine/money/test_bill.py", "engine/money/bill.py", "tests/engine/money/test_gone.py"]
    assert selection(files, ROOT) == sorted([*ALWAYS, "tests/engine/money"])


def test_what_a_branch_changed_is_found_whether_committed_or_not(tmp_path: Path) -> None:
    """Since it left `main`; on `main` since the last commit."""

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    def commit(name: str) -> None:
        (tmp_path / name).write_text(name)
        git("add", name)
        git("commit", "-m", name)

    git("init", "-b", "main")
    commit("old.py")
    (tmp_path / "old.py").write_text("edited")
    (tmp_path / "new é.py").touch()
    assert changed(tmp_path) == ["old.py", "new é.py"]
    git("checkout", "-b", "mine")
    commit("mine.py")
    assert changed(tmp_path) == ["mine.py", "old.py", "new é.py"]
