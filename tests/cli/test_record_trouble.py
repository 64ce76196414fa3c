"""A record that is damaged, linked, moved or used twice: one line and a documented exit code."""

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import zstandard
from stenotest.command_line import Background, Steno, refused
from stenotest.gated_run import holding
from stenotest.waiting import wait

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("record_file")]

TRACES = Path(__file__).parent.parent / "traces" / "dstack-0.22.5"
NEED_A_RECORD = (
    "ps",
    "show x",
    "timeline x",
    "explain x",
    "events",
    "polls",
    "poll 1",
    "verify",
    "replay",
    "rebuild",
    "export --trace x.jsonl",
    "stop x",
    "logs x",
)


@pytest.fixture
def record(steno: Steno, home: Path) -> Path:
    """A record of one failed run."""
    done = steno("import", TRACES / "failure.jsonl.zst")
    assert done.returncode == 0, done.stderr
    return home / "record.db"


@pytest.mark.parametrize("words", NEED_A_RECORD)
def test_a_command_that_needs_a_record_does_not_make_it(steno: Steno, home: Path, words: str) -> None:
    """Exit 4, and nothing is there afterwards."""
    assert str(home / "record.db") in refused(steno(*words.split()), 4)
    assert list(home.iterdir()) == []


def test_a_file_that_is_no_record_is_refused(steno: Steno, home: Path) -> None:
    """Exit 7; the file is not changed."""
    (home / "notes.txt").write_text("not a record " * 100)
    assert "not a Steno record" in refused(steno("ps", "--record", "notes.txt"), 7)
    with closing(sqlite3.connect(home / "other.db")) as other:
        other.executescript("CREATE TABLE t (x)")
    before = (home / "other.db").read_bytes()
    assert "not a Steno record" in refused(steno("ps", "--record", "other.db"), 7)
    assert "not a Steno record" in refused(steno("import", TRACES / "failure.jsonl.zst", "--record", "other.db"), 7)
    assert (home / "other.db").read_bytes() == before


def test_a_truncated_record_is_refused(steno: Steno, record: Path) -> None:
    """Exit 7, whoever opens it."""
    content = record.read_bytes()
    record.write_bytes(content[: len(content) // 2])
    assert "cut" in refused(steno("ps"), 7)
    assert "cut" in refused(steno("verify"), 7)
    assert "cut" in refused(steno("submit", "--", "true"), 7)


def test_a_record_of_a_newer_schema_is_refused_and_left_alone(steno: Steno, record: Path) -> None:
    """Exit 8; update Steno."""
    with closing(sqlite3.connect(record)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    before = record.read_bytes()
    assert "newer" in refused(steno("ps"), 8)
    assert "newer" in refused(steno("submit", "--", "true"), 8)
    assert "newer" in refused(steno("db", "upgrade"), 8)
    assert record.read_bytes() == before


def test_a_record_somebody_holds_is_waited_for_and_then_given_up(steno: Steno, record: Path) -> None:
    """Exit 5 after five seconds; readers do not mind."""
    holder = sqlite3.connect(record, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        assert "held" in refused(steno("import", TRACES / "success.jsonl.zst"), 5)
        assert steno("ps").returncode == 0
    finally:
        holder.execute("ROLLBACK")
        holder.close()


@pytest.mark.usefixtures("held_by_permissions")
def test_a_read_only_record_is_read_and_not_written(steno: Steno, record: Path) -> None:
    """Readers work; writers exit 8."""
    record.chmod(0o400)
    assert steno("ps").returncode == 0
    assert "read-only" in refused(steno("import", TRACES / "success.jsonl.zst"), 8)


def test_a_byte_changed_by_hand_is_found_and_named(steno: Steno, record: Path) -> None:
    """`verify` exits 7 and says where; with --json as one object."""
    assert json.loads(steno("verify", "--json").stdout)["ok"] is True
    with closing(sqlite3.connect(record)) as database, database:
        database.execute("DROP TRIGGER events_no_update")
        database.execute("UPDATE events SET observed_at = observed_at + 1 WHERE position = 7")
    done = steno("verify", "--json")
    assert done.returncode == 7
    answer = json.loads(done.stdout)
    assert list(answer) == ["ok", "events", "head", "damage", "outputs", "dropped"]
    assert answer["ok"] is False
    assert 7 in {damage["position"] for damage in answer["damage"]}
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_a_saved_head_is_checked(steno: Steno, record: Path) -> None:
    """`--expect` takes what verify printed."""
    head = json.loads(steno("verify", "--json").stdout)["head"]
    assert steno("verify", "--expect", f"{head['position']}:{head['hash']}").returncode == 0
    other = f"{head['position']}:{'0' * 64}"
    assert steno("verify", "--expect", other).returncode == 7


def test_after_a_saved_head_only_the_rest_is_read(steno: Steno, record: Path) -> None:
    """`--after` takes what verify printed; a head that the record does not have is damage, and all is read."""
    whole = json.loads(steno("verify", "--json").stdout)
    saved = f"{whole['head']['position']}:{whole['head']['hash']}"
    assert (
        f"0 events after position {whole['head']['position']}, every byte" in steno("verify", "--after", saved).stdout
    )
    assert json.loads(steno("verify", "--json", "--after", saved).stdout) == whole
    other = steno("verify", "--after", f"{whole['head']['position']}:{'0' * 64}")
    assert (other.returncode, "another hash" in other.stderr) == (7, True), other.stderr
    assert steno("verify", "--after", "nonsense").returncode == 2


@pytest.fixture
def broken(home: Path) -> Path:
    """A trace whose third line is broken."""
    with zstandard.open(TRACES / "failure.jsonl.zst", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    lines[2] = lines[2][:100]
    path = home / "broken.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_broken_line_is_named_and_nothing_is_imported(steno: Steno, home: Path, broken: Path) -> None:
    """Exit 2; --lenient reads the rest and says how many lines it skipped."""
    assert "line 3" in refused(steno("import", broken), 2)
    assert "line 3" in refused(steno("replay", broken), 2)
    answer = json.loads(steno("import", broken, "--lenient", "--json").stdout)
    assert list(answer) == ["polls", "skipped", "first_position", "last_position", "left_out"]
    assert answer["skipped"] == 1
    assert json.loads(steno("replay", broken, "--lenient", "--json").stdout)["runs"][0]["state"] == "failed"


def test_a_file_that_is_not_there_is_not_found(steno: Steno) -> None:
    """Exit 4."""
    for words in (["replay", "no.jsonl"], ["import", "no.jsonl"], ["submit", "-f", "no.yml"]):
        assert words[-1] in refused(steno(*words), 4)


def test_an_unknown_run_suggests_the_near_ones(steno: Steno, record: Path) -> None:
    """Exit 4."""
    assert "did you mean bad-run" in refused(steno("show", "bad-rn"), 4)
    assert "ps --all" in refused(steno("show", "zzz"), 4)


def test_a_position_that_is_no_poll_is_not_found(steno: Steno, record: Path) -> None:
    """Exit 4; a position that is none at all is a usage error."""
    assert "999999" in refused(steno("poll", "999999"), 4)
    refused(steno("poll", "0"), 2)


def test_the_future_is_refused(steno: Steno, record: Path) -> None:
    """Exit 2, by time and by position."""
    assert "beyond" in refused(steno("ps", "--at", "999999"), 2)
    assert "in the future" in refused(steno("ps", "--at", "2999-01-01T00:00:00Z"), 2)
    assert "not a time" in refused(steno("ps", "--at", "tomorrow"), 2)


def test_a_second_engine_on_a_link_to_the_record_stands_by(steno: Steno, background: Background, home: Path) -> None:
    """It says who records, whichever of the two names the first was given; both names show one world."""
    (home / "link.db").symlink_to("record.db")
    first = background("up", "--no-api", "--provider", "local", "--record", "link.db")
    wait(lambda: "held" in steno("workers").stdout)
    log = home / "second.log"
    with log.open("w") as file:
        background("up", "--no-api", "--provider", "local", out=file, err=file)
        wait(lambda: f"process {first.pid} records" in log.read_text())
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


@pytest.mark.parametrize("api", [pytest.param("--no-api", marks=pytest.mark.long), "--api"])
def test_a_folder_renamed_under_an_engine_ends_it_and_no_run(
    steno: Steno, background: Background, home: Path, gate: Path, api: str
) -> None:
    """Exit 8 and one line; moved back, the run still goes on, and ends normally."""
    folder = home / "data"
    there = {"STENO_RECORD": str(folder / "record.db")}
    up = background("up", api, "--provider", "local", err=subprocess.PIPE, **there)
    wait(lambda: "held" in steno("workers", **there).stdout)
    submitted = steno("submit", "--provider", "local", "--", "sh", "-c", holding(gate), **there)
    assert submitted.returncode == 0, submitted.stderr

    def state() -> str:
        (run,) = json.loads(steno("ps", "--all", "--json", **there).stdout)["runs"]
        return str(run["state"])

    wait(lambda: state() == "running")
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
    wait(lambda: state() == "succeeded")
    assert steno("verify", **there).returncode == 0
