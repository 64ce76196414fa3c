"""Commands over HTTP: requests in the record, each once, held against policy, by whom they were made."""

import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from stenotest.dstack_history import DstackHistory, single

from steno.engine.providers.registry import READINGS
from steno.events import types
from steno.events.clock import SystemClock
from steno.events.store.record import Batch, Record

TASK = {"type": "task", "commands": ["true"]}
Serve = Callable[..., Any]


def requests(path: Path) -> list[tuple[int, types.RunRequested]]:
    """Every request for a run in the record, with its position."""
    with Record.open(path, shapes=READINGS.shape, clock=SystemClock()) as record:
        facts = [(stored.position, stored.data) for stored in record.read(types={"RunRequested"})]
    return [(position, fact) for position, fact in facts if isinstance(fact, types.RunRequested)]


def test_a_run_asked_for_is_a_request_in_the_record(client: httpx.Client, town: Path) -> None:
    """202 with its id, name, position and place; nothing has been said to any provider."""
    answer = client.post("/api/runs", json={"configuration": TASK | {"env": {"TOKEN": "hush"}}})
    assert answer.status_code == 202
    made = answer.json()
    assert set(made) == {"run_id", "name", "position"}
    assert answer.headers["location"] == f"/api/runs/{made['run_id']}"
    assert answer.headers["cache-control"] == "no-store"
    ((position, request),) = requests(town)
    assert (position, request.run_id, request.name) == (made["position"], made["run_id"], made["name"])
    assert (request.provider, request.submitter, request.idempotency_key) == ("local", "loopback", None)
    assert b"hush" not in request.configuration
    assert made["name"] == f"steno-{made['run_id'].replace('-', '')[-12:]}"
    assert client.post("/api/runs", json={"configuration": TASK | {"name": "mine"}}).json()["name"] == "mine"
    named = client.post("/api/runs", json={"name": "ours", "configuration": TASK | {"name": "mine"}})
    assert named.json()["name"] == "ours"


def test_a_name_that_an_active_run_has_is_a_conflict(served: Serve, empty_record: Path) -> None:
    """409, by what the recorder saw just now; nothing is requested."""
    host = platform.node() or "localhost"
    item = single("train", "running", "running", project=host)
    body = {"name": "train", "configuration": TASK}
    client = served(empty_record).client
    assert client.post("/api/runs", json=body).status_code == 202
    with Record.open(empty_record, write=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        ((_, poll),) = DstackHistory(start=SystemClock().now()).poll("/local/runs/list", {"host": host}, [item]).polls()
        assert poll is not None
        record.append_polls([msgspec.structs.replace(poll, source=f"local/{host}")], stream_of=lambda *_: "run/x")
    refused = client.post("/api/runs", json=body)
    assert refused.status_code == 409
    assert "steno stop" in refused.json()["detail"]
    assert client.post("/api/runs", json={"configuration": TASK}).status_code == 202
    assert [request.name for _, request in requests(empty_record)].count("train") == 1


def test_of_submissions_of_one_name_at_one_moment_one_is_accepted(served: Serve, empty_record: Path) -> None:
    """The others get 409 with the id of the run that has the name, at once: none is accepted and rejected later."""
    client, body = served(empty_record, api__submit_rate="off").client, {"name": "train", "configuration": TASK}
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: client.post("/api/runs", json=body), range(24)))
    (made,) = (answer.json() for answer in answers if answer.status_code == 202)
    refused = [answer for answer in answers if answer.status_code != 202]
    assert {answer.status_code for answer in refused} == {409}
    assert all(f"the active run {made['run_id']} is named train" in answer.json()["detail"] for answer in refused)
    assert [request.run_id for _, request in requests(empty_record)] == [made["run_id"]]


def test_the_same_key_and_body_are_the_same_run_also_after_a_restart(served: Serve, town: Path) -> None:
    """However often a request comes, in whatever order its keys are, it is one run with one answer; another body of
    the same key is a conflict that changes nothing.
    """
    header = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}
    body = {"name": "once", "configuration": TASK | {"env": {"TOKEN": "hush"}}}
    first = served(town, api__submit_rate="off")
    made = first.client.post("/api/runs", json=body, headers=header)
    assert made.status_code == 202
    assert first.client.post("/api/runs", json=body, headers=header).content == made.content
    first.stop()
    again = served(town, api__submit_rate="off", profile="batch").client
    text = '{"configuration": {"env": {"TOKEN": "hush"}, "commands": ["true"], "type": "task"},\n "name": "once"}'
    repeated = again.post("/api/runs", content=text, headers=header | {"Content-Type": "application/json"})
    assert (repeated.status_code, repeated.content) == (202, made.content)
    assert repeated.headers["location"] == made.headers["location"]
    for other in ({"name": "twice"}, {"configuration": TASK}, {"configuration": TASK | {"env": {"TOKEN": "other"}}}):
        refused = again.post("/api/runs", json=body | other, headers=header)
        assert refused.status_code == 409, refused.text
    assert [request.name for _, request in requests(town)] == ["once"]
    assert again.post("/api/runs", json=body, headers={"Idempotency-Key": "another"}).json() != made.json()


def test_requests_that_race_under_one_key_lead_to_one_run(served: Serve, town: Path) -> None:
    """Two services of one record, many clients, one key: one request, and everybody gets its run."""
    clients = [served(town, api__submit_rate="off").client for _ in range(2)]

    def ask(number: int) -> tuple[int, bytes]:
        answer = clients[number % 2].post(
            "/api/runs", json={"configuration": TASK}, headers={"Idempotency-Key": f"race-{number // 10}"}
        )
        return answer.status_code, answer.content

    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(ask, range(40)))
    assert {status for status, _ in answers} == {202}
    assert [len(set(answers[first : first + 10])) for first in range(0, 40, 10)] == [1, 1, 1, 1]
    assert len(requests(town)) == 4


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "\x7f", "schlüssel".encode(), b"\x01"])
def test_a_key_that_is_none_is_refused_by_name(client: httpx.Client, town: Path, key: str | bytes) -> None:
    """Empty, too long, not printable: 400 that names the header, and no run."""
    headers = [(b"Idempotency-Key", key if isinstance(key, bytes) else key.encode())]
    answer = client.post("/api/runs", json={"configuration": TASK}, headers=headers)
    assert answer.status_code == 400, answer.text
    assert requests(town) == []


def test_a_key_given_twice_is_refused(client: httpx.Client, town: Path) -> None:
    """Two keys are ambiguous."""
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    answer = client.post("/api/runs", json={"configuration": TASK}, headers=headers)
    assert answer.status_code == 400
    assert requests(town) == []


def test_what_the_budget_cannot_bear_is_refused_with_the_arithmetic(served: Serve, empty_record: Path) -> None:
    """The guard of `steno submit`: worst cases of runs that wait count, so a burst cannot pass it either."""
    client = served(empty_record, api__submit_rate="off", local__price="1", budget__total="5").client
    body = {"configuration": TASK | {"max_duration": "1h"}}
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: client.post("/api/runs", json=body), range(12)))
    taken = [answer for answer in answers if answer.status_code == 202]
    refused = [answer for answer in answers if answer.status_code == 403]
    assert len(taken) + len(refused) == 12
    assert len(taken) == 4  # an hour and ten minutes of idling each, at $1.00 an hour
    assert "at worst: $" in refused[0].json()["detail"]
    assert "left: $5.00 − $0.00 spent − $" in refused[0].json()["detail"]
    assert len(requests(empty_record)) == len(taken)


def test_a_run_that_needs_more_machines_than_are_allowed_is_refused(served: Serve, empty_record: Path) -> None:
    """It could never start, and says so at once."""
    client = served(empty_record, local__price="1", vms__max="2", provider="local").client
    answer = client.post("/api/runs", json={"configuration": TASK | {"nodes": 3}})
    assert answer.status_code == 403
    assert "3 machines at once, and the machine limit is 2" in answer.json()["detail"]
    assert requests(empty_record) == []


def test_a_stop_is_a_request_and_of_a_run_that_has_ended_nothing(client: httpx.Client, town: Path) -> None:
    """202 and asked, once; an ended run is left alone with 200; an unknown run is 404."""
    made = client.post("/api/runs", json={"name": "long", "configuration": TASK}).json()
    answer = client.post(f"/api/runs/{made['run_id']}/stop", json={"abort": True})
    assert answer.status_code == 202
    stopped = answer.json()
    assert stopped == {"run_id": made["run_id"], "position": stopped["position"], "state": "requested", "asked": True}
    with Record.open(town, shapes=READINGS.shape, clock=SystemClock()) as record:
        (stop,) = list(record.read(after=stopped["position"] - 1, limit=1))
    assert stop.data == types.StopRequested(
        run_id=made["run_id"], provider="local", name="long", project=requests(town)[0][1].project, abort=True,
        submitter="loopback",
    )  # fmt: skip
    ended = next(run for run in client.get("/api/runs").json()["runs"] if run["state"] == "succeeded")
    again = client.post(f"/api/runs/{ended['run_id']}/stop")
    assert (again.status_code, again.json()["asked"], again.json()["state"]) == (200, False, "succeeded")
    with Record.open(town, shapes=READINGS.shape, clock=SystemClock()) as record:
        assert record.head().position == stopped["position"]
    assert client.post("/api/runs/nobody/stop").status_code == 404


def test_the_end_of_a_machine_is_asked_for_only_if_it_is_ours(client: httpx.Client, town: Path) -> None:
    """A machine that has gone is left alone; a machine that Steno did not make is a conflict that says what to do."""
    machines = client.get("/api/vms").json()["vms"]
    gone = next(vm for vm in machines if vm["state"] == "terminated")
    answer = client.post(f"/api/vms/{gone['vm_id']}/stop", json={"when_idle": True})
    assert (answer.status_code, answer.json()["asked"]) == (200, False)
    others = next(vm for vm in machines if vm["state"] != "terminated")
    refused = client.post(f"/api/vms/{others['vm_id']}/stop")
    assert refused.status_code == 409
    assert "dstack fleet delete" in refused.json()["detail"]
    assert client.post("/api/vms/nobody/stop").status_code == 404


def test_a_run_is_not_submitted_again_with_a_size_that_this_machine_lacks(served: Serve, empty_record: Path) -> None:
    """As `steno rerun --memory 900TB`: 422, and nothing is requested; a size that it has is taken."""
    client = served(empty_record).client
    made = client.post("/api/runs", json={"name": "plain", "configuration": TASK}).json()["run_id"]
    for name, size in (("memory", "900TB"), ("cpu", "90000.."), ("disk", "900000TB")):
        refused = client.post(f"/api/runs/{made}/rerun", json={name: size, "name": "again"})
        assert refused.status_code == 422
        assert refused.json()["detail"].startswith(f"{name} {size}: the provider local has one machine")
    assert len(requests(empty_record)) == 1
    assert client.post(f"/api/runs/{made}/rerun", json={"memory": "1GB", "name": "again"}).status_code == 202


def test_a_run_is_submitted_again_with_changes(client: httpx.Client, town: Path) -> None:
    """The recorded task with what is given over it, once for one key; the values of variables are asked for; what the
    two differ in is compared. Nothing that Steno did not submit, and nothing with files, is submitted again.
    """
    task = TASK | {"env": {"SEED": "4"}, "resources": {"gpu": "MI300X:1", "memory": "32GB"}, "image": "rocm/dev"}
    made = client.post("/api/runs", json={"name": "train", "configuration": task}).json()
    first = made["run_id"]
    recorded = client.get(f"/api/runs/{first}/request", params={"min_position": made["position"]}).json()
    assert (recorded["name"], recorded["needs"], recorded["refused"]) == ("train", ["SEED"], None)
    assert recorded["configuration"]["resources"] == task["resources"]

    refused = client.post(f"/api/runs/{first}/rerun", json={"memory": "2GB"})
    assert (refused.status_code, refused.json()["field"]) == (422, "env.SEED")
    assert client.post(f"/api/runs/{first}/rerun", json={"ram": "2GB"}).status_code == 422
    body = {"memory": "2GB", "env": {"SEED": "5"}}
    taken = client.post(f"/api/runs/{first}/rerun", json=body)
    assert (taken.status_code, first in taken.json()["detail"]) == (409, True)
    body["name"] = "train-2"
    answers = [
        client.post(f"/api/runs/{first}/rerun", json=body, headers={"Idempotency-Key": "again"}) for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [202, 202]
    second = answers[0].json()["run_id"]
    assert {answer.json()["run_id"] for answer in answers} == {second} != {first}
    *_, (_, request) = requests(town)
    made = msgspec.json.decode(request.configuration)
    assert (request.run_id, request.name, request.submitter) == (second, "train-2", "loopback")
    assert made["resources"] == {"gpu": "MI300X:1", "memory": "2GB"}
    assert b'"5"' not in request.configuration

    at = {"min_position": answers[0].json()["position"]}
    comparison = client.get("/api/compare", params={"a": first, "b": second, **at}).json()
    assert [run["run_id"] for run in comparison["runs"]] == [first, second]
    assert [row["field"] for row in comparison["task"]] == ["env.SEED", "resources.memory"]
    assert client.get("/api/compare", params={"a": first}).json()["field"] == "b"

    theirs = client.get("/api/runs/ok-run").json()["run_id"]
    assert "Steno did not submit it" in client.get(f"/api/runs/{theirs}/request").json()["refused"]
    assert client.post(f"/api/runs/{theirs}/rerun").status_code == 409
    with Record.open(town, write=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        files = msgspec.json.encode(TASK | {"files": ["train.py"]})
        sent = msgspec.structs.replace(request, run_id="with-files", name="sent", configuration=files)
        record.append_many([Batch("run/with-files", [sent])])
    refused = client.post("/api/runs/with-files/rerun")
    assert (refused.status_code, "steno rerun with-files" in refused.json()["detail"]) == (409, True)


def test_a_generated_name_is_generated_again(client: httpx.Client) -> None:
    first = client.post("/api/runs", json={"configuration": TASK}).json()
    recorded = client.get(f"/api/runs/{first['run_id']}/request", params={"min_position": first["position"]})
    assert recorded.json()["name"] is None
    again = client.post(f"/api/runs/{first['run_id']}/rerun").json()
    assert again["name"] == f"steno-{again['run_id'].replace('-', '')[-12:]}"


def test_the_text_of_a_key_is_shown_to_nobody(served: Serve, empty_record: Path) -> None:
    """The event holds a commitment to it, and the same key still finds the same run."""
    here = served(empty_record)
    body, header = {"configuration": TASK}, {"Idempotency-Key": "mine-and-private"}
    made = here.client.post("/api/runs", json=body, headers=header).json()
    assert here.client.post("/api/runs", json=body, headers=header).json() == made
    events = here.client.get("/api/events", params={"min_position": made["position"], "type": "RunRequested"})
    assert "mine-and-private" not in events.text
    (event,) = events.json()["events"]
    assert event["data"]["idempotency_key"].startswith("steno:secret:")
