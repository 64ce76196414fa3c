"""`steno budget` with limits by owner, `steno budget move`, and what a submission is told."""

import getpass
import json
from pathlib import Path
from typing import Any

import pytest
from stenotest.command_line import Steno

ME = f"user/{getpass.getuser()}"
SETTINGS = f"""[local]
price = 1
[limits.user."{getpass.getuser()}"]
budget = 4
[limits.user.bob]
budget = 3
"""


@pytest.fixture
def limited(steno: Steno, home: Path) -> Steno:
    (home / "steno.toml").write_text(SETTINGS)
    return steno


def owners(steno: Steno, *words: str) -> dict[str, dict[str, Any]]:
    done = steno("budget", "--json", *words)
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    return {owner["owner"]: owner for owner in value["owners" if words else "limits"]}


def test_budget_moves_between_owners_and_a_submission_follows(limited: Steno, home: Path) -> None:
    """A run of five hours does not fit into $4; after a move of $3 it fits."""
    task = ("submit", "--name", "long", "--max-duration", "5h", "--", "true")
    refused = limited(*task)
    assert (refused.returncode, refused.stdout) == (6, "")
    assert f"The budget of user {getpass.getuser()} does not allow this run. run: 5 h" in refused.stderr
    moved = limited("budget", "move", "$3", "--from", "user/bob", "--to", ME, "--why", "deadline", "--json")
    assert moved.returncode == 0, moved.stderr
    value, by = json.loads(moved.stdout), getpass.getuser()
    del value["position"]
    assert value == {"amount_usd": "3.000000", "from": "user/bob", "to": ME, "why": "deadline", "by": by}
    assert limited(*task).returncode == 0
    standing = owners(limited)
    assert (standing[ME]["budget_usd"], standing["user/bob"]["budget_usd"]) == ("7.000000", "0.000000")
    assert (standing[ME]["moved_usd"], standing["user/bob"]["left_usd"]) == ("3.000000", "0.000000")
    assert set(owners(limited, "--by", "user")) == {ME, "user/bob"}
    page = limited("budget")
    assert "of $7.00" in page.stdout
    assert "limits.user.bob: no run of that user is in the record yet" in page.stderr
    (home / "steno.toml").write_text(SETTINGS.replace("budget = 3", "budget = 2"))
    assert "limits by owner of this shell differ from those in force" in limited("budget").stderr


MOVES = (
    (("9", "--from", "user/bob", "--to", ME), 6, "user/bob has a budget of $3.00, so $9.00 cannot be moved"),
    (("1", "--from", "user/eve", "--to", ME), 2, "user/eve has no budget in force: set `budget` under"),
    (("1", "--from", "bob", "--to", ME), 2, "bob is not an owner: write user/NAME, project/NAME"),
    (("0", "--from", "user/bob", "--to", ME), 2, "the amount must be dollars above 0"),
    (("off", "--from", "user/bob", "--to", ME), 2, "the amount must be dollars above 0"),
    (("1e30", "--from", "user/bob", "--to", ME), 2, "the amount must be dollars above 0"),
    (("x", "--from", "user/bob", "--to", ME), 2, "dollars above 0"),
    (("1", "--from", "user/bob", "--to", ME, "--why", " "), 2, "it is empty; say why"),
    (("1", "--from", "user/bob", "--to", "user/bob"), 2, "--from and --to are both user/bob"),
)


def test_a_move_that_cannot_be_is_one_line(limited: Steno) -> None:
    assert limited("submit", "--name", "short", "--max-duration", "1m", "--", "true").returncode == 0
    for words, code, line in MOVES:
        done = limited("budget", "move", *words, *(() if "--why" in words else ("--why", "test")))
        assert line in done.stderr
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), words
