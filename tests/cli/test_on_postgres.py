"""The commands on a record in PostgreSQL: the answers of SQLite, and one clear line where the database refuses."""

import json
import signal
from pathlib import Path

import psycopg
import pytest
from stenotest.command_line import Steno
from stenotest.postgres import FAST, new_server
from stenotest.waiting import wait

from steno.events.store.store import REVISION

TRACE = Path(__file__).parents[1] / "traces" / "dstack-0.22.5" / "name_reuse.jsonl.zst"
QUESTIONS = (
    "ps --all", "vms", "costs --by run", "polls", "events", "poll 1", "replay", "verify", "show {run}",
    "timeline {run}", "explain {run}", "replay --rules 2025-12-sdk --diff current",
)  # fmt: skip
"""Asked with --json of both records; what they say of the clock of the day is none of it."""


@pytest.mark.usefixtures("record_file")
def test_a_copied_record_answers_as_the_original(steno: Steno, home: Path, postgres_url: str) -> None:
    """Every question, byte for byte, there and after the way back."""
    assert steno("import", TRACE).returncode == 0
    assert steno("db", "copy", "record.db", postgres_url).returncode == 0
    assert steno("db", "copy", postgres_url, "back.db").returncode == 0
    run = json.loads(steno("ps", "--all", "--json").stdout)["runs"][0]["run_id"]
    for question in QUESTIONS:
        words = question.format(run=run).split()
        answers = [steno(*words, "--json", "--record", where) for where in ("record.db", postgres_url, "back.db")]
        assert {answer.stderr for answer in answers} == {answers[0].stderr}, question
        assert {(answer.returncode, answer.stdout) for answer in answers} == {
            (answers[0].returncode, answers[0].stdout)
        }
        assert answers[0].stdout, question


def test_a_run_is_submitted_recorded_and_shown(steno: Steno, postgres_url: str) -> None:
    """From an empty database to a verdict, its output, its cost and a whole chain."""
    record = {"STENO_RECORD": postgres_url}
    assert steno("ps", **record).returncode == 4
    done = steno("submit", "--provider", "local", "--wait", "--name", "hello", "--", "echo", "from the run", **record)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(steno("ps", "--all", "--json", **record).stdout)["runs"]
    assert (run["name"], run["state"]) == ("hello", "succeeded")
    assert steno("logs", "hello", **record).stdout == "from the run\n"
    assert steno("verify", **record).returncode == 0
    assert steno("rebuild", **record).returncode == 0
    status = json.loads(steno("db", "status", "--json", **record).stdout)
    assert status["database"].startswith("PostgreSQL")
    assert status["schema"] == status["newest_schema"]


def test_a_password_is_shown_to_nobody(steno: Steno, postgres_url: str) -> None:
    """It may be in the URL; in messages it is not."""
    with psycopg.connect(postgres_url) as database:
        url = f"postgresql://postgres:hunter2@127.0.0.1:{database.info.port}/{database.info.dbname}"
    done = steno("ps", "--record", url)
    assert done.returncode == 3
    assert "password authentication failed" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("url", "code", "line"),
    [
        ("postgresql://127.0.0.1:1/steno", 3, "cannot be reached"),
        ("postgresql://[", 7, "not a URL"),
        ("mysql://127.0.0.1/steno", 7, "not a record's URL"),
    ],
)
def test_an_address_without_a_record_is_one_line(steno: Steno, url: str, code: int, line: str) -> None:
    done = steno("ps", "--record", url)
    assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), done.stderr
    assert line in done.stderr


def test_what_is_in_the_database_decides(steno: Steno, postgres_url: str) -> None:
    """No such database, no record, another's schema, a newer record, an older one, a server that is read-only."""
    missing = postgres_url.replace("/steno_", "/nothing_")
    record = {"STENO_RECORD": postgres_url}
    for url, code, line in ((missing, 4, "createdb"), (postgres_url, 4, "no record")):
        done = steno("ps", STENO_RECORD=url)
        assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), done.stderr
        assert line in done.stderr
    with psycopg.connect(postgres_url, autocommit=True) as database:
        database.execute("CREATE SCHEMA steno CREATE TABLE mine (id int)")
        assert steno("import", TRACE, **record).returncode == 7
        database.execute("DROP SCHEMA steno CASCADE")
        assert steno("import", TRACE, **record).returncode == 0
        database.execute("UPDATE steno.alembic_version SET version_num = '9999'")
        assert steno("ps", **record).returncode == 8
        database.execute("UPDATE steno.alembic_version SET version_num = %s", (REVISION,))
        options = f"{postgres_url}&options=-c%20default_transaction_read_only%3Don"
        done = steno("import", TRACE, STENO_RECORD=options)
        assert done.returncode == 0, done.stderr  # everything is there: nothing is written
        assert steno("ps", STENO_RECORD=options).returncode == 0


@pytest.mark.parametrize("which", [pytest.param("--provider", marks=pytest.mark.long), "--source"])
def test_recording_goes_on_after_the_database_was_restarted(
    steno: Steno, home: Path, environment: dict[str, str], which: str
) -> None:
    """The recorder says at each try that it is away."""
    from stenotest import steno_process

    server = new_server(*FAST)
    try:
        server.start()
        environment["STENO_RECORD"] = server.url()
        log = home / "up.log"
        with log.open("w") as out:
            up = steno_process.Popen(
                ["up", which, "local", "--no-api"], cwd=home, env=environment, stdout=out, stderr=out
            )
        try:
            wait(lambda: "recording local" in log.read_text())
            server.stop(signal.SIGQUIT)
            wait(lambda: "cannot be reached" in log.read_text())
            server.start()
            done = steno("submit", "--wait", "--", "true")
            assert done.returncode == 0, done.stderr + log.read_text()
        finally:
            up.terminate()
            assert up.wait() == 0, log.read_text()
        assert steno("verify").returncode == 0
    finally:
        server.remove()
