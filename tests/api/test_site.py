"""Several records behind one API: what is merged, summed, passed on, and refused."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from stenolab.waiting import wait

if TYPE_CHECKING:
    from conftest import Recorded, Serve, Served
    from stenotest.served import ServeSite

DSTACK = {"provider": "dstack", "dstack__url": "http://127.0.0.1:1", "dstack__token": "none"}
"""The provider of submissions; nobody asks it anything here."""
LAB, FARM = ("success", "warm_reuse"), ("failure", "several")
SUMMED = ("provisioning", "busy", "idle", "terminating")


@pytest.fixture(scope="module")
def both(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two records, each with runs of its own sources."""
    folder = tmp_path_factory.mktemp("site")
    return {"lab": recorded(folder / "lab.db", *LAB), "farm": recorded(folder / "farm.db", *FARM)}


@pytest.fixture(scope="module")
def site(served_site_on: ServeSite, both: dict[str, Path]) -> httpx.Client:
    """A client of both; nothing is written to them."""
    return served_site_on(both, api__submit_rate="off").client


def read(client: httpx.Client, path: str, **query: Any) -> Any:
    """The JSON of an answer that is 200."""
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def problem(answer: httpx.Response, status: int) -> str:
    """What a problem says."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said: str = answer.json()["detail"]
    return said


def test_lists_are_merged_in_their_order_and_each_row_names_its_record(site: httpx.Client) -> None:
    """All runs of both records, newest first, and of each record those it has alone."""
    found = read(site, "/api/runs", limit=500)
    times = [run["submitted_at"] for run in found["runs"]]
    assert times == sorted(times, reverse=True)
    for name in ("lab", "farm"):
        alone = read(site, "/api/runs", limit=500, record=name)
        assert alone["record"] == name
        assert [{"record": name, **run} for run in alone["runs"]] == [
            run for run in found["runs"] if run["record"] == name
        ]
        assert alone["runs"]
    assert {one["record"]: one["trouble"] for one in found["records"]} == {"lab": None, "farm": None}
    assert found["position"] == ",".join(f"{one['record']}:{one['position']}" for one in found["records"])


@pytest.mark.parametrize(
    ("path", "key", "query"),
    [
        ("/api/runs", "runs", {"sort": "cost", "order": "oldest"}),
        ("/api/runs", "runs", {"sort": "name"}),
        ("/api/vms", "vms", {}),
        ("/api/polls", "polls", {"backwards": "true", "failed": "true"}),
        ("/api/events", "events", {"type": "VmObserved"}),
        ("/api/costs", "rows", {"by": "run"}),
    ],
)
def test_pages_together_are_the_whole_list(site: httpx.Client, path: str, key: str, query: dict[str, str]) -> None:
    """Whatever their size: nothing is lost, doubled, or out of order."""
    whole = read(site, path, limit=500, **query)
    assert whole["next"] is None
    for limit in (1, 3):
        parts, cursor = [], {}
        while cursor is not None:
            page = read(site, path, limit=limit, **query, **cursor)
            parts += page[key]
            cursor = None if page["next"] is None else {"cursor": page["next"]}
            if len(parts) > 40:
                break
        assert parts == whole[key][: len(parts)]
        assert len(parts) > 40 or len(parts) == len(whole[key])


def test_a_filter_may_be_known_to_one_record_only(site: httpx.Client) -> None:
    """A value that no record knows is refused, with what each knows."""
    found = read(site, "/api/runs", source="dstack/failure")
    assert {run["record"] for run in found["runs"]} == {"farm"}
    said = problem(site.get("/api/runs", params={"source": "dstack/nowhere"}), 400)
    assert "record lab: " in said
    assert "record farm: " in said


def test_costs_budget_and_overview_are_the_sums_of_the_parts(site: httpx.Client) -> None:
    """Of money exactly, and each part is shown."""
    total = read(site, "/api/costs")["total"]
    parts = [read(site, "/api/costs", record=name)["total"] for name in ("lab", "farm")]
    assert Decimal(total["total_usd"]) == sum(Decimal(one["total_usd"]) for one in parts) > 0
    for line in SUMMED:
        assert Decimal(total["lines"][line]) == sum(Decimal(one["lines"][line]) for one in parts)
    budget = read(site, "/api/budget")
    assert [one["record"] for one in budget["parts"]] == ["lab", "farm"]
    assert Decimal(budget["spent_usd"]) == sum(Decimal(one["spent_usd"]) for one in budget["parts"])
    assert budget["spent_usd"] == total["total_usd"]
    overview = read(site, "/api/overview")
    assert overview["budget"] == {key: value for key, value in budget.items() if key not in ("position", "records")}
    assert overview["burn"][-1]["spent_usd"] == total["total_usd"]
    assert {one["record"] for one in overview["recent"]} == {"lab", "farm"}
    spend = read(site, "/api/spend", since="2026-11-20", until="2026-11-21")
    assert spend["total_usd"] == total["total_usd"]
    assert site.get("/api/spend?format=csv").text.splitlines()[-1].endswith(total["total_usd"])


def test_what_one_record_has_is_answered_by_that_record(site: httpx.Client) -> None:
    """By id and by name, with the record in the body and in a header; every further path of it too."""
    for run in read(site, "/api/runs", limit=500)["runs"]:
        answer = site.get(f"/api/runs/{run['run_id']}")
        assert answer.headers["steno-record"] == run["record"]
        assert answer.json() == run
        assert answer.headers["content-length"] == str(len(answer.content))
        alone = site.get(f"/api/runs/{run['run_id']}/explain", params={"record": run["record"]})
        assert alone.json() == read(site, f"/api/runs/{run['run_id']}/explain")
    (vm, *_) = read(site, "/api/vms")["vms"]
    assert read(site, f"/api/vms/{vm['vm_id']}")["record"] == vm["record"]
    assert "any of the records lab, farm" in problem(site.get("/api/runs/nobody"), 404)


def test_positions_are_of_a_record(site: httpx.Client) -> None:
    """One event is asked for with its record; a moment is a time, or a position of each record."""
    assert "name one with ?record=, one of lab, farm" in problem(site.get("/api/events/3"), 400)
    assert read(site, "/api/events/3", record="farm")["record"] == "farm"
    assert "one of lab, farm" in problem(site.get("/api/events/3?record=bern"), 400)
    assert "given more than once" in problem(site.get("/api/runs?record=lab&record=farm"), 400)
    then = read(site, "/api/runs", at="lab:100,farm:1")
    assert then["position"] == "lab:100,farm:1"
    assert {run["record"] for run in then["runs"]} == {"lab"}
    assert then["runs"] == [{"record": "lab", **run} for run in read(site, "/api/runs", record="lab", at="100")["runs"]]
    (run, *_) = then["runs"]
    assert read(site, f"/api/runs/{run['run_id']}", at="lab:100,farm:1") == run
    assert "names no position of lab" in problem(site.get(f"/api/runs/{run['run_id']}?at=farm:1"), 400)
    assert read(site, f"/api/runs/{run['run_id']}", min_position="farm:1")["record"] == "lab"
    time = "2026-11-20T13:38:30Z"
    assert read(site, "/api/vms", at=time)["vms"]
    assert "lab:12,farm:12" in problem(site.get("/api/runs?at=100"), 400)
    assert "another set of records" in problem(site.get("/api/runs?at=lab:100"), 400)
    assert "record farm: the record ends" in problem(site.get("/api/runs?at=lab:1,farm:9999999"), 400)
    assert "another set of records" in problem(site.get("/api/runs?cursor=lab:1,bern:2"), 400)
    assert "begin with the first page" in problem(site.get("/api/costs?cursor=lab:12"), 400)
    assert "cursor is wrong for record farm" in problem(site.get("/api/vms?cursor=lab:1,farm:x"), 400)


def test_two_runs_of_two_records_are_compared(site: httpx.Client) -> None:
    """Each is found in its record."""
    of = {run["record"]: run["run_id"] for run in read(site, "/api/runs", limit=500)["runs"]}
    found = read(site, "/api/compare", a=of["lab"], b=of["farm"])
    assert found["of"] == ["lab", "farm"]
    assert [run["run_id"] for run in found["runs"]] == [of["lab"], of["farm"]]


def test_health_and_metrics_name_each_record(site: httpx.Client) -> None:
    """Samples of records have a label; those of the service have not."""
    wait(lambda: site.get("/readyz").json()["status"] == "ready", seconds=60, what="both records to be read")
    assert set(site.get("/readyz").json()["records"]) == {"lab", "farm"}
    lines = site.get("/metrics").text.splitlines()
    for name in ("lab", "farm"):
        assert any(line.startswith(f'steno_record_position{{record="{name}"}} ') for line in lines)
    assert any(line.startswith("steno_http_requests_total{") and "record=" not in line for line in lines)
    families = [line for line in lines if line.startswith("# TYPE ")]
    assert len(families) == len(set(families))


def test_one_name_in_two_records_is_ambiguous(served_site: ServeSite, recorded: Recorded, tmp_path: Path) -> None:
    """Both are named, also if they record the same run; the parameter chooses."""
    records = {name: recorded(tmp_path / f"{name}.db", "success") for name in ("north", "south")}
    client = served_site(records).client
    (run,) = read(client, "/api/runs", record="north")["runs"]
    for word in (run["name"], run["run_id"], run["run_id"][:6]):
        assert "is in the records north and south" in problem(client.get(f"/api/runs/{word}"), 400)
        assert read(client, f"/api/runs/{word}", record="south")["run_id"] == run["run_id"]


def test_a_record_that_goes_away_is_named_and_the_others_go_on(
    served_site: ServeSite, recorded: Recorded, both: dict[str, Path], tmp_path: Path
) -> None:
    """Nothing is silently short: lists and sums say what they lack, and a table, which cannot, is refused."""
    away = recorded(tmp_path / "away.db", "no_capacity")
    here = served_site({"lab": both["lab"], "away": away}, project="success", budget__total="1400", **DSTACK)
    client = here.client
    (gone,) = read(client, "/api/runs", record="away")["runs"]
    away.rename(tmp_path / "elsewhere.db")

    def of(name: str) -> Any:
        return client.get("/readyz").json()["records"][name]

    wait(lambda: "restart" in str(of("away")["reasons"]), seconds=120, what="it is missed", pause=0.05)
    wait(lambda: of("lab")["status"] == "ready", seconds=120, what="the other is ready", pause=0.05)
    ready = client.get("/readyz").json()
    assert ready["records"]["lab"]["status"] == "ready"
    assert all(reason.startswith("record away: ") for reason in ready["reasons"])
    for path in ("/api/runs", "/api/vms", "/api/costs", "/api/overview", "/api/events"):
        found = read(client, path)
        trouble = {one["record"]: one["trouble"] for one in found["records"]}
        assert trouble["lab"] is None
        assert "restart the server" in trouble["away"]
        assert "away" not in found["position"]
    assert "record away: " in problem(client.get("/api/costs?format=csv"), 503)
    task = {"configuration": {"type": "task", "commands": ["true"]}}
    assert "the budget is shared" in problem(client.post("/api/runs", json=task), 503)
    assert "record away: " in problem(client.get(f"/api/runs/{gone['run_id']}"), 503)
    assert read(client, "/api/runs", record="lab")["runs"]


def test_a_submission_goes_to_the_record_of_its_source(
    served_site: ServeSite, recorded: Recorded, tmp_path: Path
) -> None:
    """Where several have it, or none, the parameter decides; a stop goes to the record of its run."""
    records = {name: recorded(tmp_path / f"{name}.db", "success") for name in ("north", "south")}
    records["farm"] = recorded(tmp_path / "farm.db", "failure")
    client = served_site(records, project="failure", **DSTACK).client
    task = {"configuration": {"type": "task", "commands": ["true"]}}
    answer = client.post("/api/runs", json=task)
    assert answer.status_code == 202, answer.text
    assert answer.headers["steno-record"] == answer.json()["record"] == "farm"
    run_id = answer.json()["run_id"]
    least = f"farm:{answer.json()['position']}"
    found = read(client, "/api/runs", min_position=least, name=answer.json()["name"])
    assert [(run["record"], run["run_id"]) for run in found["runs"]] == [("farm", run_id)]
    assert client.post(f"/api/runs/{run_id}/stop").headers["steno-record"] == "farm"
    said = problem(client.post("/api/runs", json={**task, "project": "success"}), 400)
    assert said.startswith("the records north and south have the source dstack/success")
    assert problem(client.post("/api/runs", json={**task, "project": "bern"}), 400).startswith("no record has the")
    chosen = client.post("/api/runs?record=south", json={**task, "project": "success"})
    assert chosen.json()["record"] == "south"


def test_the_budget_is_one(served_site: ServeSite, recorded: Recorded, tmp_path: Path) -> None:
    """What other records spent counts: a run that fits into its record's part alone is refused."""
    task = {"type": "task", "image": "rocm/dev-ubuntu-24.04", "commands": ["true"], "max_duration": "1h"}
    task |= {"resources": {"gpu": "MI300X:1"}}
    both = {"lab": recorded(tmp_path / "lab.db", "success"), "farm": recorded(tmp_path / "farm.db", "several")}
    parts = read(served_site(both).client, "/api/budget")["parts"]
    spent = {part["record"]: Decimal(part["spent_usd"]) for part in parts}
    for enough in (False, True):
        total = spent["lab"] + Decimal("2.40") + (spent["farm"] if enough else 0)
        here = served_site(both, project="success", budget__total=str(total), **DSTACK)
        answer = here.client.post("/api/runs", json={"configuration": task})
        if enough:
            assert answer.status_code == 202, answer.text
        else:
            said = problem(answer, 403)
            assert f"− ${spent['farm']} that other records spent or may still spend" in said
        here.stop()


def test_submissions_at_once_never_count_on_the_same_money(
    served_site: ServeSite, recorded: Recorded, tmp_path: Path
) -> None:
    """Of many at once to both records, as many are accepted as the budget bears together."""
    task = {"type": "task", "image": "rocm/dev-ubuntu-24.04", "commands": ["true"], "max_duration": "1h"}
    task |= {"resources": {"gpu": "MI300X:1"}}
    both = {name: recorded(tmp_path / f"{name}.db", "success") for name in ("lab", "farm")}
    spent = Decimal(read(served_site(both).client, "/api/budget")["spent_usd"])
    client = served_site(both, project="success", budget__total=str(spent + Decimal("4.80")), **DSTACK).client

    def submit(nth: int) -> int:
        name = ("lab", "farm")[nth % 2]
        return client.post("/api/runs", params={"record": name}, json={"configuration": task}).status_code

    with ThreadPoolExecutor(6) as threads:
        found = Counter(threads.map(submit, range(6)))
    assert found == {202: 2, 403: 4}


def test_tokens_are_those_of_the_first_record(served_site: ServeSite, recorded: Recorded, tmp_path: Path) -> None:
    """One list for the site."""
    records = {name: recorded(tmp_path / f"{name}.db", "success") for name in ("north", "south")}
    client = served_site(records).client
    token = client.post("/api/tokens", json={"role": "read", "name": "grafana"}).json()
    bearer = {"Authorization": f"Bearer {token['token']}"}
    assert client.get("/api/session", headers=bearer).json()["name"] == "grafana"
    (made_by, *_) = read(client, "/api/audit", min_position=f"north:{token['position']}")["actions"]
    assert (made_by["record"], made_by["action"]) == ("north", "created the token")


def test_one_record_is_served_as_before(served: Serve, both: dict[str, Path]) -> None:
    """Nothing of a site is in its answers or in its document."""
    here: Served = served(both["lab"])
    document = here.client.get("/openapi.json").text
    assert '"record"' not in str(here.client.get("/api/runs").json()["runs"][0].keys())
    assert "Site" not in document
    assert "steno-records" not in here.client.get("/").text
    assert here.client.get("/api/runs?record=lab").status_code == 400


def test_the_document_describes_what_is_answered(site: httpx.Client) -> None:
    """Each path of one record is there, with the record to choose where one can be chosen."""
    document = site.get("/openapi.json").json()
    runs = document["paths"]["/api/runs"]["get"]
    assert {one["name"] for one in runs["parameters"]} >= {"record", "cursor", "at"}
    shape = runs["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    properties = document["components"]["schemas"][shape]["properties"]
    assert set(read(site, "/api/runs")) <= set(properties)
    assert properties["position"]["type"] == "string"
