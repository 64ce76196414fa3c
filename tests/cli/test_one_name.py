"""One engine a record, by whatever name it is reached; and a record that is moved while it is in use."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from stenotest.command_line import Steno, refused
from stenotest.gate import holding

Background = Callable[..., "subprocess.Popen[str]"]
Until = Callable[[Callable[[], object]], None]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("record_file")]


def test_a_second_engine_on_a_link_to_the_record_stands_by(
    steno: Steno, background: Background, until: Until, home: Path
) -> None:
    """It says who records, whichever of the two names the first was given; both names show one world."""
    (home / "link.db").symlink_to("record.db")
    first = background("up", "--no-api", "--provider", "local", "--record", "link.db")
    until(lambda: "held" in steno("workers").stdout)
    log = home / "second.log"
    with log.open("w") as file:
        background("up", "--no-api", "--provider", "local", out=file, err=file)
        until(lambda: f"process {first.pid} records" in log.read_text())
    assert steno("submit", "--provider", "local", "--name", "one", "--", "true").returncode == 0
    by_name, by_link = (
        json.loads(steno("ps", "--all", "--json", *words).stdout) for words in ([], ["--record", "link.db"])
    )
    assert [run["run_id"] for run in by_name["runs"]] == [run["run_id"] for run in by_link["runs"]] != []
    assert sorted(path.name for path in home.glob("link.db*")) == ["link.db"]


def test_a_record_with_two_hard_links_is_refused_in_one_line(steno: Steno, home: Path) -> None:
    """Exit 8, for readers and writers; nothing is lost."""
    assert steno("submit", "--provider", "local", "--name", "one", "--", "true").returncode == 0
    before = steno("events", "--json").stdout
    (home / "other.db").hardlink_to(home / "record.db")
    for words in (["ps"], ["verify"], ["record", "--provider", "local"], ["serve", "--port", "0"]):
        assert "hard links" in refused(steno(*words, "--record", "other.db"), 8)
        assert "hard links" in refused(steno(*words), 8)
    (home / "other.db").unlink()
    assert steno("events", "--json").stdout == before


@pytest.mark.parametrize("api", ["--no-api", "--api"])
def test_a_folder_renamed_under_an_engine_ends_it_and_no_run(
    steno: Steno, background: Background, until: Until, home: Path, gate: Path, api: str
) -> None:
    """Exit 8 and one line; moved back, the run is running still, and ends as it does."""
    folder = home / "data"
    there = {"STENO_RECORD": str(folder / "record.db")}
    up = background("up", api, "--provider", "local", err=subprocess.PIPE, **there)
    until(lambda: "held" in steno("workers", **there).stdout)
    submitted = steno("submit", "--provider", "local", "--", "sh", "-c", holding(gate), **there)
    assert submitted.returncode == 0, submitted.stderr

    def state() -> str:
        (run,) = json.loads(steno("ps", "--all", "--json", **there).stdout)["runs"]
        return str(run["state"])

    until(lambda: state() == "running")
    folder.rename(home / "elsewhere")
    assert up.wait() == 8
    assert up.stderr is not None
    lines = up.stderr.read().splitlines()
    assert len([line for line in lines if "was moved, removed or replaced" in line]) == 1, lines
    assert not [line for line in lines if "Traceback" in line or "bug in Steno" in line], lines
    (home / "elsewhere").rename(folder)
    assert state() == "running"
    background("up", "--no-api", "--provider", "local", **there)
    gate.touch()
    until(lambda: state() == "succeeded")
    assert steno("verify", **there).returncode == 0
