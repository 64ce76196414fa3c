"""`steno serve --record A --record B` as a process: SQLite and PostgreSQL behind one address, and what is refused."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.wiring.served_records import named_records

if TYPE_CHECKING:
    from conftest import Recorded, Starts

FARM = "postgresql://nobody:secret@db.example:5432/farm?sslmode=require"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("lab.db", "farm.db"), ["lab", "farm"]),
        (("a/record.db", "b/record.db", "c/record.db"), ["record", "record-2", "record-3"]),
        (("lab.db", FARM), ["lab", "farm"]),
        (("lab=x.db", "lab.db"), ["lab", "lab-2"]),
        (("lab.db", "lab=x.db"), ["lab-2", "lab"]),
        (("my lab (old).db", "sqlite:////tmp/x.y.db"), ["my-lab-old", "x-y"]),
        ((".db", f"f={FARM}"), ["db", "f"]),
    ],
)
def test_a_record_is_named_by_its_place_or_as_it_is_asked(words: tuple[str, ...], names: list[str]) -> None:
    """Each name is used once; what is given wins."""
    assert list(named_records(words)) == names


def test_two_databases_are_served_as_one(
    started: Starts, recorded: Recorded, tmp_path: Path, postgres_url: str
) -> None:
    """A SQLite file and a PostgreSQL database: one list, one sum, one stream; it ends in order."""
    lab = recorded(tmp_path / "lab.db", "success")
    recorded(postgres_url, "failure")
    process = started("serve", "--record", lab, "--record", f"farm={postgres_url}")
    process.says("(records lab = ")
    runs = process.get("/api/runs").json()
    assert {run["name"]: run["record"] for run in runs["runs"]} == {"ok-run": "lab", "bad-run": "farm"}
    parts = process.get("/api/budget").json()["parts"]
    assert [one["record"] for one in parts] == ["lab", "farm"]
    for run in runs["runs"]:
        assert process.get(f"/api/runs/{run['name']}").json() == run
    process.signal(signal.SIGTERM)
    assert process.ended() == 0
    assert process.err == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--record", "x=lab.db", "--record", "x=farm.db"), 2, "two records are named x"),
        (("--record", "lab.db", "--record", "again=lab.db"), 2, "lab and again are the same record"),
        (("--record", "lab.db", "--record", "nobody.db"), 4, "nobody.db"),
        (("--record", "lab.db", "--record", "text.db"), 7, "text.db"),
        (("--record", "lab.db", "--record", ""), 2, "it is empty"),
    ],
)
def test_wrong_records_are_refused_before_anything_is_served(
    started: Starts, recorded: Recorded, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    """In one line, and nothing is created."""
    home = tmp_path / "home"
    home.mkdir()
    recorded(home / "lab.db", "no_capacity")
    (home / "text.db").write_text("this is no database, but it is long enough to be taken for one" * 20)
    process = started("serve", *words)
    assert process.ended() == code
    assert said in process.err[-1]
    assert "Traceback" not in "".join(process.err)
    assert {path.name for path in home.iterdir() if not path.name.startswith(("lab.db", "."))} == {"text.db"}
