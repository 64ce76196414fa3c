"""`events -f` and `polls -f`: what is new, as it comes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stenotest.command_line import Steno, refused

Until = Callable[[Callable[[], object]], None]


@pytest.mark.parametrize("command", ["events", "polls"])
def test_following_begins_now_or_with_the_last_rows(
    steno: Steno, background: Callable[..., Any], until: Until, tmp_path: Path, command: str
) -> None:
    """Alone it prints nothing that was there before; with -n the newest rows first."""
    steno("submit", "--wait", "-q", "--", "true")
    before = json.loads(steno(command, "-n", "1", "--json").stdout)["position"]
    new, last = tmp_path / "new", tmp_path / "last"
    with new.open("w") as out, last.open("w") as other:
        background(command, "-f", "--json", out=out)
        background(command, "-n", "1", "-f", "--json", out=other)
        until(last.read_text)

        def said() -> bool:
            steno("submit", "--wait", "-q", "--", "true")
            return bool(new.read_text()) and last.read_text().count("\n") > 1

        until(said)
    first = [json.loads(path.read_text().splitlines()[0])["position"] for path in (new, last)]
    assert first[0] > before
    assert first[1] == before


def test_following_has_no_end(steno: Steno) -> None:
    steno("submit", "--wait", "-q", "--", "true")
    assert "leave --to out" in refused(steno("polls", "-f", "--to", "1h"), 2)
