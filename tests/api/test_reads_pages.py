"""Pages of long lists, their filters, and parameters that are none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from steno.projections.answers import record_pages as browse


def pages(client: httpx.Client, path: str, key: str, **query: object) -> list[Any]:
    """All pages of a list, one after the other."""
    parts: list[Any] = []
    cursor = None
    while True:
        answer = client.get(path, params=query | ({} if cursor is None else {"cursor": cursor}))
        assert answer.status_code == 200, answer.text
        parts.append(answer.json()[key])
        cursor = answer.json()["next"]
        if cursor is None:
            return parts


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("limit", [1, 2, 3, 500])
def test_pages_together_are_the_list_whatever_their_size(reader: httpx.Client, order: str, limit: int) -> None:
    """No run is left out or given twice, and every page but the last is full."""
    whole = reader.get("/api/runs", params={"limit": 500, "order": order}).json()["runs"]
    parts = pages(reader, "/api/runs", "runs", limit=limit, order=order)
    assert [run for part in parts for run in part] == whole
    assert all(len(part) == limit for part in parts[:-1])
    times = [run["submitted_at"] for run in whole]
    assert times == sorted(times, reverse=order == "newest")


def test_a_page_does_not_move_when_runs_come(client: httpx.Client) -> None:
    """Runs that are asked for between two pages are not on the second, and push nothing onto it."""
    whole = [run["run_id"] for run in client.get("/api/runs", params={"limit": 500}).json()["runs"]]
    first = client.get("/api/runs", params={"limit": 3}).json()
    task = {"type": "task", "commands": ["true"]}
    made = [client.post("/api/runs", json={"configuration": task}).json() for _ in range(3)]
    rest = client.get(
        "/api/runs", params={"limit": 500, "cursor": first["next"], "min_position": made[-1]["position"]}
    ).json()
    assert [run["run_id"] for run in (*first["runs"], *rest["runs"])] == whole
    newest = client.get("/api/runs", params={"limit": 3}).json()["runs"]
    assert {run["run_id"] for run in newest} == {accepted["run_id"] for accepted in made}


def test_machines_are_paged_the_newest_first(reader: httpx.Client) -> None:
    """Pages of machines together are all machines."""
    whole = reader.get("/api/vms", params={"limit": 500}).json()["vms"]
    assert len(whole) > 1
    assert [vm for part in pages(reader, "/api/vms", "vms", limit=1) for vm in part] == whole


@pytest.mark.parametrize("by", ["vm", "run", "day", "user", "gpu"])
def test_costs_are_paged_both_ways_and_every_page_has_the_sums(reader: httpx.Client, by: str) -> None:
    """Rows of all pages together are all rows, newest first the same backwards; left to itself it gives all."""
    whole = reader.get("/api/costs", params={"by": by}).json()
    assert whole["rows"]
    for limit in (1, 2, 500):
        parts = pages(reader, "/api/costs", "rows", by=by, limit=limit)
        assert [row for part in parts for row in part] == whole["rows"]
        assert all(len(part) == limit for part in parts[:-1])
        parts = pages(reader, "/api/costs", "rows", by=by, limit=limit, order="newest")
        assert [row for part in parts for row in part] == whole["rows"][::-1]
    for at in (whole["position"] // 2, whole["position"]):
        then = reader.get("/api/costs", params={"by": by, "at": at}).json()
        first = reader.get("/api/costs", params={"by": by, "at": at, "limit": 1}).json()
        assert {**first, "rows": then["rows"], "next": None} == then


def test_what_everything_cost_is_led_from_the_providers_figure_to_ours(reader: httpx.Client) -> None:
    """The causes sum to the difference exactly, by whatever the rows are, and are those of the runs and machines."""

    def micro(text: str | None) -> int:
        return round(float(text or 0) * 1_000_000)

    whole = reader.get("/api/costs").json()
    sides_of_all = whole["reconciliation"]
    assert sides_of_all["ours_usd"] == whole["total"]["total_usd"]
    assert sum(micro(line["amount_usd"]) for line in sides_of_all["lines"]) == micro(sides_of_all["ours_usd"]) - micro(
        sides_of_all["theirs_usd"]
    )
    assert reader.get("/api/costs", params={"by": "day", "limit": 1}).json()["reconciliation"] == sides_of_all
    runs = reader.get("/api/runs", params={"limit": 500}).json()["runs"]
    sides = [reader.get(f"/api/runs/{run['run_id']}/costs").json()["reconciliation"] for run in runs]
    assert micro(sides_of_all["theirs_usd"]) == sum(micro(side["theirs_usd"]) for side in sides)
    amounts = {line["cause"]: micro(line["amount_usd"]) for line in sides_of_all["lines"]}
    for cause in {"queueing", "cleaning up", "no machine seen"} & set(amounts):
        of_runs = [micro(line["amount_usd"]) for side in sides for line in side["lines"] if line["cause"] == cause]
        assert amounts[cause] == sum(of_runs)
    assert amounts["idle"] == micro(whole["total"]["lines"]["idle"])
    assert amounts["tear-down"] == micro(whole["total"]["lines"]["terminating"])


WRONG = [
    ("/api/runs", "limit=0", "limit"),
    ("/api/runs", "limit=501", "limit"),
    ("/api/runs", "limit=ten", "limit"),
    ("/api/runs", "limit=", "limit"),
    ("/api/runs", "limit=1&limit=2", "limit"),
    ("/api/runs", "cursor=zzz", "cursor"),
    ("/api/runs", "cursor=12", "cursor"),
    ("/api/runs", "cursor=1.2.3", "cursor"),
    ("/api/runs", "cursor=" + "9" * 40 + ".1", "cursor"),
    ("/api/vms", "cursor=1.2", "cursor"),
    ("/api/vms", "live=yes", "live"),
    ("/api/runs", "state=done", "state"),
    ("/api/runs", "order=random", "order"),
    ("/api/runs", "name=" + "x" * 201, "name"),
    ("/api/runs", "page=2", "page"),
    ("/api/runs", "LIMIT=2", "LIMIT"),
    ("/api/runs/any", "verbose=1", "verbose"),
    ("/api/runs/any/logs", "at=1", "at"),
    ("/api/runs/any/logs", "follow=1", "follow"),
    ("/api/costs", "by=month", "by"),
    ("/api/costs", "by=", "by"),
    ("/api/costs", "limit=0", "limit"),
    ("/api/costs", "cursor=1.5", "cursor"),
    ("/api/costs", "order=dearest", "order"),
    ("/api/budget", "by=vm", "by"),
    ("/openapi.json", "pretty=1", "pretty"),
]


@pytest.mark.parametrize(("path", "query", "field"), WRONG)
def test_a_parameter_that_is_none_is_named(reader: httpx.Client, path: str, query: str, field: str) -> None:
    """Unknown, repeated and malformed parameters are 400 and name the parameter; nothing is guessed."""
    answer = reader.get(f"{path}?{query}")
    assert (answer.status_code, answer.json()["field"]) == (400, field), answer.text
    assert len(answer.content) < 600


@pytest.mark.parametrize(
    "path",
    [
        "/api",
        "/api/",
        "/api/runs/",
        "/api//runs",
        "/api/runs/nobody",
        "/api/runs/%2e%2e",
        "/api/runs/%2e%2e/%2e%2e/etc/passwd",
        "/api/runs/a%2fb",
        "/api/runs/%00",
        "/api/runs/%ff%fe",
        "/api/runs/%25",
        "/api/runs/%ed%a0%80",
        "/api/runs/" + "x" * 5000,
        "/api/runs/" + "x" * 5000 + "/explain",
        "/api/runs/nobody/timeline",
        "/api/runs/nobody/nothing",
        "/api/vms/nobody",
        "/api/vms/%0d%0aSet-Cookie:a=b",
        "/api/runs/nobody/logs",
        "/api/nothing",
    ],
)
def test_what_is_not_there_is_a_problem_and_never_a_mistake_of_ours(reader: httpx.Client, path: str) -> None:
    """Unknown routes and ids that nobody has are 404, tricks with paths 400 or 404: short problems all of them."""
    answer = reader.get(path)
    assert answer.status_code in {400, 404}, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code
    assert len(answer.content) < 600
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/runs", "GET, HEAD, POST"),
        ("DELETE", "/api/runs/any", "GET, HEAD"),
        ("GET", "/api/runs/any/stop", "POST"),
        ("POST", "/api/costs", "GET, HEAD"),
        ("PATCH", "/api/vms/any/stop", "POST"),
        ("OPTIONS", "/api/runs", "GET, HEAD, POST"),
        ("TRACE", "/api/runs", "GET, HEAD, POST, DELETE"),
        ("PROPFIND", "/api/runs", "GET, HEAD, POST, DELETE"),
    ],
)
def test_a_method_that_a_path_does_not_have_is_told_those_it_has(
    reader: httpx.Client, method: str, path: str, allowed: str
) -> None:
    """405 with every method of the path in Allow, over all routes that share it."""
    answer = reader.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_page_of_large_events_ends_early(served: Callable[..., Any], empty_record: Path) -> None:
    """Whoever may submit writes events of nearly a mebibyte: 500 of them would be one answer. Page by page all come."""
    client = served(empty_record, api__submit_rate="off", budget__total="off").client
    for _ in range(8):
        task = {"type": "task", "commands": ["true " + "x" * 1000] * 700}
        made = client.post("/api/runs", json={"configuration": task})
        assert made.status_code == 202, made.text
    assert client.get("/api/events", params={"min_position": made.json()["position"]}).status_code == 200
    parts = pages(client, "/api/events", "events", limit=500)
    positions = [row["position"] for page in parts for row in page]
    assert positions == list(range(1, made.json()["position"] + 1))
    assert len(parts) > 1
    assert len(client.get("/api/events", params={"limit": 500}).content) < browse.PAGE_BYTES + (2 << 20)
