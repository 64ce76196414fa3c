"""`steno seal`: the commands answer as before; one clear line where it cannot be done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stenotest.command_line import refused

from events.store.store import store_at

if TYPE_CHECKING:
    from stenotest.command_line import Steno

TRACE = Path(__file__).parents[1] / "traces" / "dstack-0.22.5" / "name_reuse.jsonl.zst"
ALL = ("--before", "2100-01-01T00:00:00Z")
QUESTIONS = ("ps --all", "events --type RunObserved -n 3", "poll 1", "replay", "verify", "show {run}", "explain {run}")


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def test_every_command_answers_as_before(steno: Steno, home: Path, kind: str, request: pytest.FixtureRequest) -> None:
    """Byte for byte, read models built again included, on both databases; then there is nothing to seal."""
    url = "record.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    record = {"STENO_RECORD": url}
    assert steno("import", TRACE, **record).returncode == 0
    run = json.loads(steno("ps", "--all", "--json", **record).stdout)["runs"][0]["run_id"]
    words = [question.format(run=run).split() for question in QUESTIONS]
    before = [steno(*one, "--json", **record).stdout for one in words]
    planned = json.loads(steno("seal", *ALL, "--events", 40, "--dry-run", "--json", **record).stdout)
    assert (planned["files"], planned["due"][0], planned["sealed"]) == ([], [1, 40], 0)
    done = steno("seal", *ALL, "--events", 40, "--to", "files", "--json", **record)
    assert done.returncode == 0, done.stderr
    sealed = json.loads(done.stdout)
    assert [[one["first"], one["last"]] for one in sealed["files"]] == planned["due"]
    assert all((home / "files" / one["file"]).stat().st_size == one["bytes"] for one in sealed["files"])
    (manifest,) = (home / "files").rglob("manifest.json")
    assert json.loads(manifest.read_text())["ranges"] == sealed["files"]
    assert steno("rebuild", **record).returncode == 0
    assert [steno(*one, "--json", **record).stdout for one in words] == before
    again = steno("seal", *ALL, "--events", 40, **record)
    assert "nothing to seal" in again.stdout
    named = json.loads(steno("db", "status", "--json", **record).stdout)["sealed"]
    assert named == [str(home / "files" / one["file"]) for one in sealed["files"]]
    assert steno("db", "copy", url, "back.db").returncode == 0
    assert [steno(*one, "--json", "--record", "back.db").stdout for one in words] == before


@pytest.mark.usefixtures("record_file")
def test_a_lost_file_is_one_line(steno: Steno, home: Path) -> None:
    """It names the file; verify finds it, and the file of a copy brings everything back."""
    assert steno("import", TRACE).returncode == 0
    answer = steno("poll", "1").stdout
    done = steno("seal", *ALL, "--events", 100)
    assert (done.returncode, "positions 1 to" in done.stdout) == (0, True)
    lost = sorted((home / "record.db.sealed").rglob("*.parquet"))[0]
    lost.rename(home / "elsewhere")
    for words in (("poll", "1"), ("events", "--json"), ("replay",)):
        done = steno(*words)
        assert (done.returncode, str(lost) in done.stderr) == (7, True), done
        assert "(positions 1 to 100) is missing" in done.stderr
    found = steno("verify", "--json")
    assert found.returncode == 7
    assert [one["kind"] for one in json.loads(found.stdout)["damage"]] == ["sealed"]
    (home / "elsewhere").rename(lost)
    assert steno("poll", "1").stdout == answer
    assert steno("verify").returncode == 0


@pytest.mark.usefixtures("record_file")
def test_what_cannot_be_done_is_one_line(steno: Steno, home: Path, postgres_url: str) -> None:
    """Another process seals, no place, a place that cannot be written, a time that is none."""
    assert steno("import", TRACE).returncode == 0
    lease = store_at(home / "record.db").lease("seal")
    assert lease is not None
    with lease:
        assert "Another process seals" in refused(steno("seal", *ALL), 5)
    (home / "file").write_text("in the way")
    assert "cannot be written" in refused(steno("seal", *ALL, "--events", 50, "--to", "file/folder"), 8)
    assert "not a folder for sealed files" in refused(steno("seal", *ALL, "--events", 50, "--to", "nowhere://x"), 2)
    refused(steno("seal", "--before", "soon"), 2)
    refused(steno("seal", STENO_SEAL_EVENTS="none"), 2)
    assert "no record" in refused(steno("seal", "--record", "none.db"), 4)
    assert steno("db", "copy", "record.db", postgres_url).returncode == 0
    assert "seal.folder" in refused(steno("seal", *ALL, "--events", 50, "--record", postgres_url), 2)


@pytest.mark.usefixtures("record_file")
def test_files_can_move(steno: Steno, home: Path) -> None:
    """Each is checked where it is now, before that is noted."""
    assert steno("import", TRACE).returncode == 0
    assert steno("seal", *ALL, "--events", 60).returncode == 0
    before = steno("events", "--json").stdout
    (home / "record.db.sealed").rename(home / "archive")
    assert steno("seal", "--moved-to", "nowhere").returncode == 7
    assert steno("seal", "--moved-to", "archive").returncode == 0
    assert steno("events", "--json").stdout == before
