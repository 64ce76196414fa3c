"""The Grafana dashboard of a record on PostgreSQL: a role that may only read asks a real one every question."""

import json
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from stenotest.big import big_record
from stenotest.records import poll_of

from steno.engine.providers.registry import READINGS
from steno.events import types
from steno.events.clock import SECOND, SystemClock
from steno.events.codec import KINDS
from steno.events.store.record import Batch, Record

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "grafana" / "steno-postgres.json").read_text(encoding="utf-8")
)
QUESTIONS = {panel["title"]: panel["targets"][0] for panel in DASHBOARD["panels"]}


@pytest.mark.slow
def test_every_question_is_answered_to_a_reader(postgres_url: str) -> None:
    """A number for a panel of one number, else time, name and value; of the range that Grafana shows."""
    now = SystemClock().now()
    big_record(postgres_url, events=300, until=now - 60 * SECOND)
    with Record.open(postgres_url, write=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        record.append_polls([poll_of(None, at=now, status=None, error="refused", answered=False)])
        stop = types.StopRequested(run_id="r", provider="dstack", name="r", submitter="ada")
        record.append_many([Batch("run/r", [stop])])
        head = record.head().position
    with psycopg.connect(postgres_url, autocommit=True) as database:
        database.execute("CREATE ROLE grafana_reader")
        try:
            database.execute("SELECT steno.admit('grafana_reader', false)")
            database.execute("SET ROLE grafana_reader")
            answers = {title: _asked(database, target["rawSql"], now) for title, target in QUESTIONS.items()}
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                database.execute("SELECT content FROM steno.blobs")
        finally:
            database.execute("RESET ROLE")
            database.execute("DROP OWNED BY grafana_reader")
            database.execute("DROP ROLE grafana_reader")
    assert answers["Events"] == [(head,)]
    for title, question in QUESTIONS.items():
        assert answers[title], title
        assert all(len(row) == (1 if question["format"] == "table" else 3) for row in answers[title]), title
    assert answers["Failed polls"][0][1:] == ("source/dstack/main", 1)
    assert sum(value for _, _, value in answers["Answered polls"]) > 20
    assert {name for _, name, _ in answers["Requests, submissions and stops"]} == {"StopRequested"}


def _asked(database: psycopg.Connection[Any], sql: str, now: int) -> list[tuple[Any, ...]]:
    """As Grafana sends it, of the last day."""
    until = now // SECOND + 60
    sent = sql.replace("$__unixEpochFrom()", str(until - 86400)).replace("$__unixEpochTo()", str(until))
    assert "$" not in sent
    return database.execute(sent.encode()).fetchall()


def test_it_is_a_dashboard_of_its_own() -> None:
    """Beside the other dashboard, of a data source that its reader chooses; events have the names of the record."""
    assert (DASHBOARD["uid"], DASHBOARD["schemaVersion"]) == ("steno-postgres", 39)
    (variable,) = DASHBOARD["templating"]["list"]
    assert (variable["name"], variable["query"]) == ("datasource", "grafana-postgresql-datasource")
    chosen = {"type": "grafana-postgresql-datasource", "uid": "${datasource}"}
    for panel in DASHBOARD["panels"]:
        assert [panel["datasource"], panel["targets"][0]["datasource"]] == [chosen, chosen]
        assert panel["description"].endswith(".")
        for kind, name in re.findall(r"\((\d+), '(\w+)'\)", panel["targets"][0]["rawSql"]):
            assert KINDS[int(kind)][0] == name
