"""Bodies that are not what is wanted: refused by the field that is wrong, and never a mistake of ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from steno.engine.providers.registry import READINGS
from steno.events.clock import SystemClock
from steno.events.store.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Serve, Served

TASK = {"type": "task", "commands": ["true"]}
DEEP = "[" * 5000 + "]" * 5000


@pytest.fixture(scope="module")
def service(served_on: Serve, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A service of an empty record without a rate limit; refusals change nothing, so one serves the whole file."""
    path = tmp_path_factory.mktemp("refused") / "empty.db"
    Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()).close()
    return served_on(path, api__submit_rate="off")


@pytest.fixture
def client(service: Served) -> httpx.Client:
    """A client of the service."""
    return service.client


@pytest.fixture(autouse=True)
def _nothing_was_asked_for(service: Served) -> Iterator[None]:
    """After each test here the record is as empty as before."""
    yield
    with Record.open(service.record, shapes=READINGS.shape, clock=SystemClock()) as record:
        assert record.head().position == 0


def task(**changes: object) -> dict[str, Any]:
    """A body with a task that differs."""
    return {"configuration": TASK | changes}


SHAPES = [
    ({}, "configuration"),
    ([], "body"),
    (None, "body"),
    ("x", "body"),
    (5, "body"),
    ({"configuration": None}, "configuration"),
    ({"configuration": []}, "configuration"),
    ({"configuration": "type: task"}, "configuration"),
    ({"configuration": TASK, "priority": 1}, "priority"),
    ({"configuration": TASK, "name": 5}, "name"),
    ({"configuration": TASK, "name": ""}, "name"),
    ({"configuration": TASK, "name": "Not A Name"}, "name"),
    ({"configuration": TASK, "name": "a\r\nSet-Cookie: b"}, "name"),
    ({"configuration": TASK, "name": "n" * 5000}, "name"),
    ({"configuration": TASK, "project": 1}, "project"),
    ({"configuration": TASK, "project": ""}, "project"),
]
TASKS = [
    ({"configuration": {}}, "configuration.type"),
    ({"configuration": {"type": "task"}}, "configuration.commands"),
    (task(type="service"), "configuration.type"),
    (task(type="fleet", nodes=1), "configuration"),
    (task(commands="true"), "configuration.commands"),
    (task(commands=["a\0b"]), "configuration.commands[0]"),
    (task(env=["HOME"]), "configuration.env[0]"),
    (task(env={"HOME": None}), "configuration.env.HOME"),
    (task(env=["1=2"]), "configuration"),
    (task(env={"A": [1]}), "configuration.env"),
    (task(files=["/etc/passwd"]), "configuration.files"),
    (task(repos=["."]), "configuration.repos"),
    (task(name="Not A Name"), "configuration.name"),
    (task(nodes="many"), "configuration.nodes"),
    (task(resources={"gpu": {"count": "x"}}), "configuration.resources.gpu.count"),
    (task(resources=5), "configuration.resources"),
    (task(max_duration="soon"), "configuration.max_duration"),
    (task(working_dir="relative"), "configuration"),
    (task(nonsense=True), "configuration.nonsense"),
    (task(creation_policy="maybe"), "configuration.creation_policy"),
]


@pytest.mark.parametrize(("body", "field"), SHAPES + TASKS)
def test_a_body_that_is_not_what_is_wanted_is_named_where_it_is_not(
    client: httpx.Client, body: object, field: str
) -> None:
    """422, one problem, the first field that is wrong, written as its sender wrote it."""
    answer = client.post("/api/runs", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["field"].startswith(field), problem
    assert len(answer.content) < 2000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nothing",
        b"\xff\xfe",
        b'{"configuration": {"type": "task", "commands": ["\xff"]}}',
        b'{"name": "\\ud800", "configuration": {}}',
        b'{"configuration": NaN}',
        b'{"configuration": {"nodes": 1e999}}',
        b'{"a": ' + b"1" * 5000 + b"}",
        b"\xef\xbb\xbf{}",
        b'{"configuration": {}} {}',
        DEEP.encode(),
        b'{"configuration": ' + DEEP.encode() + b"}",
        '{"configuration": {}}'.encode("utf-16"),
        b"\x00" * 100,
    ],
)
def test_what_is_no_json_is_refused(client: httpx.Client, body: bytes) -> None:
    """Truncated, not UTF-8, not a number, too deep: 400 or 422 that names the body, never 500."""
    answer = client.post("/api/runs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in {400, 422}, answer.text
    assert answer.json()["field"] == "body"
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "a/b/c"]
)
def test_a_body_that_is_not_said_to_be_json_is_refused(client: httpx.Client, kind: str | None) -> None:
    """415, so that a page of another site cannot send a command as a form."""
    headers = {} if kind is None else {"Content-Type": kind}
    answer = client.post("/api/runs", content=json.dumps(task()).encode(), headers=headers)
    assert (answer.status_code, answer.json()["field"]) == (415, "Content-Type")


@pytest.mark.parametrize(("path", "key"), [("/api/runs/any/stop", "abort"), ("/api/vms/any/stop", "when_idle")])
def test_how_to_stop_is_a_switch_and_nothing_else(client: httpx.Client, path: str, key: str) -> None:
    """Numbers and words are not switches, unknown keys are named; no body is the default."""
    for body, field in (({key: "yes"}, key), ({key: 1}, key), ({"force": True}, "force"), ([], "body"), ("x", "body")):
        answer = client.post(path, json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    for text in ("", "null", "{}"):
        answer = client.post(path, content=text, headers={"Content-Type": "application/json"})
        assert answer.status_code == 404


def test_a_command_takes_no_parameters(client: httpx.Client) -> None:
    """A value in the query would be lost silently."""
    answer = client.post("/api/runs?name=x", json=task())
    assert (answer.status_code, answer.json()["field"]) == (400, "name")


def test_a_project_that_nobody_records_is_not_found(client: httpx.Client) -> None:
    """Its runs would wait for ever."""
    answer = client.post("/api/runs", json={"project": "elsewhere", **task()})
    assert (answer.status_code, answer.json()["field"]) == (404, "project")
