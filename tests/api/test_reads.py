"""Reads over HTTP: the same objects as the command line prints, with tags and positions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from stenotest import steno_process

Reader = Callable[..., Any]


def told(record: Path, *words: str) -> Any:
    """The output of the genuine command with --json."""
    home = record.parent
    done = steno_process.run(
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
    runs: list[dict[str, Any]] = answer["runs"]
    return runs


def test_one_run_is_the_object_the_command_line_prints(reader: httpx.Client, town: Path) -> None:
    """A run has one object: the API and `steno show` give the same values."""
    run = all_runs(reader)[0]
    printed = told(town, "show", run["run_id"])
    beside = {"observability", "anomalies", "position", "queued", "why", "blame", "again", "like", "use"}
    assert {key: value for key, value in printed.items() if key not in beside} == run
    assert printed["why"] == reader.get(f"/api/runs/{run['run_id']}/explain").json()["why"]
    like = reader.get(f"/api/runs/{run['run_id']}/like").json()
    assert printed["like"] | {"position": printed["position"]} == like
    answer = reader.get(f"/api/runs/{run['run_id']}")
    assert answer.json() == run
    assert answer.headers["steno-position"] == str(printed["position"])


def test_a_run_is_found_by_every_word_a_person_has_for_it(reader: httpx.Client) -> None:
    """Run id, the provider's id, the newest of a name, and the beginning of an id that no other has."""
    run = all_runs(reader)[0]
    for word in (run["run_id"], run["provider_id"], run["name"], run["run_id"][:13]):
        assert reader.get(f"/api/runs/{word}").json()["name"] == run["name"]


def test_timeline_explanation_costs_and_budget_are_those_of_the_command_line(reader: httpx.Client, town: Path) -> None:
    """The service answers what `--json` prints; what it adds stands beside it."""
    run = next(run for run in all_runs(reader) if run["vm_id"] is not None)
    timeline = reader.get(f"/api/runs/{run['run_id']}/timeline").json()
    position = timeline.pop("position")
    assert timeline == told(town, "timeline", run["run_id"])
    explained = reader.get(f"/api/runs/{run['run_id']}/explain").json()
    printed = told(town, "explain", run["run_id"])
    assert {key: explained[key] for key in printed} == printed
    assert set(explained) - set(printed) == {"observability", "queued", "position"}
    costs = reader.get("/api/costs", params={"by": "run"}).json()
    assert costs.pop("reconciliation") == told(town, "costs", "--reconcile")["total"]
    assert costs.pop("next") is None
    assert costs == told(town, "costs", "--by", "run")
    budget, printed = reader.get("/api/budget").json(), told(town, "budget")
    month = reader.get("/api/forecast").json()
    assert {**printed.pop("month"), "position": position} == month
    assert {**budget, "exhausted_at": None} == {**printed, "exhausted_at": None, "position": position}
    assert (budget["exhausted_at"] is None) == (printed["exhausted_at"] is None)  # it is reckoned from the present time


def test_a_runs_charges_sum_to_its_cost_and_its_differences_to_the_difference(reader: httpx.Client) -> None:
    """Money has no residue: every micro-dollar of a run's cost is a charge, every difference has a cause."""

    def micro(text: str) -> int:
        return round(float(text) * 1_000_000)

    compared = 0
    for run in all_runs(reader):
        costs = reader.get(f"/api/runs/{run['run_id']}/costs").json()
        assert costs["cost_usd"] == run["cost_usd"]
        assert costs["provider_cost_usd"] == run["provider_cost_usd"]
        assert sum(micro(charge["cost_usd"]) for charge in costs["charges"]) == micro(run["cost_usd"] or "0")
        sides = costs["reconciliation"]
        if sides["theirs_usd"] is not None:
            lines = sum(micro(line["amount_usd"]) for line in sides["lines"])
            assert lines == micro(sides["ours_usd"]) - micro(sides["theirs_usd"])
            compared += 1
    assert compared


def test_a_machine_has_its_bill_its_facts_and_why_it_is_up(reader: httpx.Client, town: Path) -> None:
    """A machine's answer is that of `steno vms VM`, and why it is up is that of `steno explain VM`."""
    machines = reader.get("/api/vms", params={"limit": 500}).json()["vms"]
    assert machines
    machine = reader.get(f"/api/vms/{machines[0]['vm_id']}").json()
    printed = told(town, "vms", machines[0]["vm_id"])
    assert {key: machine[key] for key in printed} == printed
    gone = next(vm["vm_id"] for vm in machines if vm["state"] == "terminated")
    assert reader.get(f"/api/vms/{gone}").json()["why_up"] == told(town, "explain", gone)["why_up"]
    assert reader.get("/api/vms", params={"live": "true"}).json()["vms"] == [
        vm for vm in machines if vm["state"] != "terminated"
    ]


def test_the_events_of_a_run_are_those_of_its_stream(reader: httpx.Client, town: Path) -> None:
    """All pages together are the stream, in order, each event once."""
    run = all_runs(reader)[0]
    listed, cursor = [], None
    while True:
        query = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
        answer = reader.get(f"/api/runs/{run['run_id']}/events", params=query).json()
        listed += answer["events"]
        cursor = answer["next"]
        if cursor is None:
            break
    home = town.parent
    done = steno_process.run(
        ["events", "--stream", f"run/{run['run_id']}", "--record", str(town), "--json"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"},
        cwd=home,
        check=True,
    )
    assert listed == [json.loads(line) for line in done.stdout.splitlines()]


OF_RUN = ("", "/timeline", "/explain", "/events", "/costs")


@pytest.mark.parametrize(
    "path", ["/api/runs", *(f"/api/runs/{{run}}{part}" for part in OF_RUN), "/api/vms", "/api/costs"]
)
def test_an_answer_has_a_tag_and_a_client_that_has_it_already_gets_no_body(reader: httpx.Client, path: str) -> None:
    """ETag is strong and the same while nothing changes; If-None-Match with it, or `*`, is 304; HEAD has no body."""
    path = path.format(run=next(run["run_id"] for run in all_runs(reader) if run["finished_at"]))
    first = reader.get(path)
    assert first.status_code == 200
    assert first.headers["content-type"] == "application/json"
    assert first.headers["cache-control"] == "no-cache"
    tag = first.headers["etag"]
    assert tag.startswith('"')
    for header in (tag, f'"other", W/{tag}', "*"):
        again = reader.get(path, headers={"If-None-Match": header})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
        assert again.headers["steno-position"] == first.headers["steno-position"]
    assert reader.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    for pair in (("x", tag), (tag, "x")):
        assert reader.get(path, headers=[("If-None-Match", header) for header in pair]).status_code == 304
    head = reader.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(first.content))
    assert head.headers["etag"] == tag


def test_the_answer_follows_the_record_as_it_grows(client: httpx.Client, town: Path) -> None:
    """An append is seen: the tag changes with the bytes."""
    run = client.post("/api/runs", json={"configuration": {"type": "task", "commands": ["sleep 1"]}}).json()
    path = f"/api/runs/{run['run_id']}"
    before = client.get(path, params={"min_position": run["position"]})
    assert before.json()["state"] == "requested"
    position = told(town, "submit", "--", "true")["position"]
    assert position > run["position"]
    after = client.get("/api/runs", params={"min_position": position, "limit": 2})
    assert int(after.headers["steno-position"]) >= position
    # the provider decides which of them is newer: the command submits the waiting run, too
    assert sum(run_["name"].startswith("true-") for run_ in after.json()["runs"]) == 1
