"""Reads over HTTP: the same objects as the command line prints, with tags and positions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from stenotest import prefork

Reader = Callable[..., Any]


@pytest.fixture
def client(served: Callable[..., Any], town: Path) -> httpx.Client:
    """A client of the service of a record with runs of every end."""
    found: httpx.Client = served(town).client
    return found


def told(record: Path, *words: str) -> Any:
    """What the genuine command prints with --json."""
    home = record.parent
    done = prefork.run(
        [words[0], "--record", str(record), "--json", *words[1:]],
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"},
        cwd=home,
        check=True,
    )
    return json.loads(done.stdout)


def all_runs(client: httpx.Client) -> list[dict[str, Any]]:
    """Every run of the town."""
    answer = client.get("/api/runs", params={"limit": 500}).json()
    assert answer["next"] is None
    found: list[dict[str, Any]] = answer["runs"]
    return found


def test_one_run_is_the_object_the_command_line_prints_whether_hot_or_not(client: httpx.Client, town: Path) -> None:
    """A run has one object: hot reads, the router and `steno show` give the same values."""
    run = all_runs(client)[0]
    shown = told(town, "show", run["run_id"])
    beside = {"observability", "anomalies", "position", "queued", "why", "blame", "again", "like"}
    assert {key: value for key, value in shown.items() if key not in beside} == run
    assert shown["why"] == client.get(f"/api/runs/{run['run_id']}/explain").json()["why"]
    like = client.get(f"/api/runs/{run['run_id']}/like").json()
    assert shown["like"] | {"position": shown["position"]} == like
    for _ in range(20):  # the first ones come from the router, the others from the bytes
        answer = client.get(f"/api/runs/{run['run_id']}")
        assert answer.status_code == 200
        assert answer.json() == run
        assert answer.headers["steno-position"] == str(shown["position"])
    by_router = client.get(f"/api/runs/{run['run_id']}", params={"min_position": 1})
    assert by_router.content == answer.content
    assert by_router.headers["etag"] == answer.headers["etag"]


def test_a_run_is_found_by_every_word_a_person_has_for_it(client: httpx.Client) -> None:
    """Run id, the provider's id, the newest of a name, and the beginning of an id that no other has."""
    run = all_runs(client)[0]
    for word in (run["run_id"], run["provider_id"], run["name"], run["run_id"][:13]):
        assert client.get(f"/api/runs/{word}").json()["name"] == run["name"]


def test_timeline_explanation_costs_and_budget_are_those_of_the_command_line(client: httpx.Client, town: Path) -> None:
    """The service answers what `--json` prints; what it adds stands beside it."""
    run = next(run for run in all_runs(client) if run["vm_id"] is not None)
    timeline = client.get(f"/api/runs/{run['run_id']}/timeline").json()
    position = timeline.pop("position")
    assert timeline == told(town, "timeline", run["run_id"])
    explained = client.get(f"/api/runs/{run['run_id']}/explain").json()
    shown = told(town, "explain", run["run_id"])
    assert {key: explained[key] for key in shown} == shown
    assert set(explained) - set(shown) == {"observability", "queued", "position"}
    costs = client.get("/api/costs", params={"by": "run"}).json()
    assert costs.pop("reconciliation") == told(town, "costs", "--reconcile")["total"]
    assert costs.pop("next") is None
    assert costs == told(town, "costs", "--by", "run")
    budget, shown = client.get("/api/budget").json(), told(town, "budget")
    assert {**budget, "exhausted_at": None} == {**shown, "exhausted_at": None, "position": position}
    assert (budget["exhausted_at"] is None) == (shown["exhausted_at"] is None)  # it is reckoned from the present time


def test_a_runs_charges_sum_to_its_cost_and_its_differences_to_the_difference(client: httpx.Client) -> None:
    """Money has no residue: every micro-dollar of a run's cost is a charge, every difference has a cause."""

    def micro(text: str) -> int:
        return round(float(text) * 1_000_000)

    compared = 0
    for run in all_runs(client):
        costs = client.get(f"/api/runs/{run['run_id']}/costs").json()
        assert costs["cost_usd"] == run["cost_usd"]
        assert costs["provider_cost_usd"] == run["provider_cost_usd"]
        assert sum(micro(one["cost_usd"]) for one in costs["charges"]) == micro(run["cost_usd"] or "0")
        found = costs["reconciliation"]
        if found["theirs_usd"] is not None:
            lines = sum(micro(line["amount_usd"]) for line in found["lines"])
            assert lines == micro(found["ours_usd"]) - micro(found["theirs_usd"])
            compared += 1
    assert compared


def test_a_machine_has_its_bill_its_facts_and_why_it_is_up(client: httpx.Client, town: Path) -> None:
    """A machine's answer is that of `steno vms VM`, and why it is up is that of `steno explain VM`."""
    machines = client.get("/api/vms", params={"limit": 500}).json()["vms"]
    assert machines
    one = client.get(f"/api/vms/{machines[0]['vm_id']}").json()
    shown = told(town, "vms", machines[0]["vm_id"])
    assert {key: one[key] for key in shown} == shown
    gone = next(vm["vm_id"] for vm in machines if vm["state"] == "terminated")
    assert client.get(f"/api/vms/{gone}").json()["why_up"] == told(town, "explain", gone)["why_up"]
    assert client.get("/api/vms", params={"live": "true"}).json()["vms"] == [
        vm for vm in machines if vm["state"] != "terminated"
    ]


def test_the_events_of_a_run_are_those_of_its_stream(client: httpx.Client, town: Path) -> None:
    """All pages together are the stream, in order, each event once."""
    run = all_runs(client)[0]
    found, cursor = [], None
    while True:
        query = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
        answer = client.get(f"/api/runs/{run['run_id']}/events", params=query).json()
        found += answer["events"]
        cursor = answer["next"]
        if cursor is None:
            break
    home = town.parent
    done = prefork.run(
        ["events", "--stream", f"run/{run['run_id']}", "--record", str(town), "--json"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"},
        cwd=home,
        check=True,
    )
    assert found == [json.loads(line) for line in done.stdout.splitlines()]


OF_RUN = ("", "/timeline", "/explain", "/events", "/costs")


@pytest.mark.parametrize(
    "path", ["/api/runs", *(f"/api/runs/{{run}}{one}" for one in OF_RUN), "/api/vms", "/api/costs"]
)
def test_an_answer_has_a_tag_and_a_client_that_has_it_already_gets_no_body(client: httpx.Client, path: str) -> None:
    """ETag is strong and the same while nothing changes; If-None-Match with it, or `*`, is 304; HEAD has no body."""
    path = path.format(run=next(run["run_id"] for run in all_runs(client) if run["finished_at"]))
    first = client.get(path)
    assert first.status_code == 200
    assert first.headers["content-type"] == "application/json"
    assert first.headers["cache-control"] == "no-cache"
    tag = first.headers["etag"]
    assert tag.startswith('"')
    for header in (tag, f'"other", W/{tag}', "*"):
        again = client.get(path, headers={"If-None-Match": header})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
        assert again.headers["steno-position"] == first.headers["steno-position"]
    assert client.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    for pair in (("x", tag), (tag, "x")):
        assert client.get(path, headers=[("If-None-Match", one) for one in pair]).status_code == 304
    head = client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(first.content))
    assert head.headers["etag"] == tag


def test_the_answer_follows_the_record_as_it_grows(client: httpx.Client, town: Path) -> None:
    """What is appended is seen, hot reads included: the tag changes with the bytes."""
    run = client.post("/api/runs", json={"configuration": {"type": "task", "commands": ["sleep 1"]}}).json()
    path = f"/api/runs/{run['run_id']}"
    before = client.get(path, params={"min_position": run["position"]})
    assert before.json()["state"] == "requested"
    for _ in range(5):
        assert client.get(path).json() == before.json()
    position = told(town, "submit", "--", "true")["position"]
    assert position > run["position"]
    after = client.get("/api/runs", params={"min_position": position, "limit": 2})
    assert int(after.headers["steno-position"]) >= position
    # which of them is newer is the provider's word: the command submits the one that waits, too
    assert sum(one["name"].startswith("true-") for one in after.json()["runs"]) == 1
