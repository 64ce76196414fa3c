"""Runs are found over HTTP by what ran, by whom, where and when; a cursor belongs to its filters."""

from typing import Any

import httpx
import pytest

SAME = ("state", "reason")


def runs(client: httpx.Client, **query: object) -> list[dict[str, Any]]:
    """All that a query finds."""
    answer = client.get("/api/runs", params={"limit": 500} | query)
    assert answer.status_code == 200, answer.text
    listed: list[dict[str, Any]] = answer.json()["runs"]
    return listed


def test_a_run_says_what_it_executes(reader: httpx.Client) -> None:
    """A run and every row of a list: command, image, GPU asked and got, for whom; the same in both."""
    listed = runs(reader)
    for run in listed:
        assert reader.get(f"/api/runs/{run['run_id']}").json() == run
        assert reader.get(f"/api/runs/{run['name']}").json()["ran"]["type"] == "task"
        assert list(run)[-1] == "ran"
    (ok_run,) = runs(reader, name="ok-run")
    assert ok_run["ran"] == {
        "type": "task",
        "command": "echo hello\nsleep 8\necho bye",
        "image": "rocm/dev-ubuntu-24.04",
        "gpu_asked": "MI300X:1",
        "gpu_got": "MI300X:1",
        "project": ok_run["ran"]["project"],
        "source": f"dstack/{ok_run['ran']['project']}",
        "user": "admin",
        "submitter": None,
    }


def test_a_run_asked_for_here_says_what_it_will_execute(client: httpx.Client) -> None:
    """Before any poll shows it."""
    task = {"type": "task", "commands": ["python train.py", "x" * 2000], "image": "a/b", "resources": {"gpu": "H100:2"}}
    made = client.post("/api/runs", json={"configuration": task}).json()
    ran = client.get(f"/api/runs/{made['run_id']}", params={"min_position": made["position"]}).json()["ran"]
    assert (ran["image"], ran["gpu_asked"], ran["gpu_got"]) == ("a/b", "H100:2", None)
    assert ran["command"].startswith("python train.py\nxxx")
    assert (len(ran["command"]), ran["command"][-1]) == (1000, "…")
    assert [run["run_id"] for run in runs(client, search="TRAIN.py", gpu="h100")] == [made["run_id"]]


def test_each_filter_finds_what_a_look_at_all_runs_finds(reader: httpx.Client) -> None:
    """By state, reason, user, project, GPU, machine, source and time, alone and together."""
    whole = runs(reader)
    assert len({run["state"] for run in whole}) > 1
    for name in SAME:
        for value in {run[name] for run in whole} - {None}:
            assert runs(reader, **{name: value}) == [run for run in whole if run[name] == value]
    for name, key in (("project", "project"), ("source", "source"), ("user", "user")):
        for value in {run["ran"][key] for run in whole}:
            assert runs(reader, **{name: value}) == [run for run in whole if run["ran"][key] == value]
    assert runs(reader, gpu="mi300x") == [
        run for run in whole if (run["ran"]["gpu_got"] or run["ran"]["gpu_asked"]).startswith("MI300X")
    ]
    for vm in reader.get("/api/vms").json()["vms"]:
        there = [run for run in whole if run["vm_id"] == vm["vm_id"]]
        assert runs(reader, machine=vm["vm_id"]) == runs(reader, machine=vm["vm_id"][:8]) == there
        assert [run for run in runs(reader, machine=vm["name"]) if run["vm_id"] == vm["vm_id"]] == there
    middle = whole[len(whole) // 2]["submitted_at"]
    assert runs(reader, since=middle) == [run for run in whole if run["submitted_at"] >= middle]
    assert runs(reader, until=middle) == [run for run in whole if run["submitted_at"] <= middle]
    assert runs(reader, state="failed", search="exit", sort="name", order="oldest") == sorted(
        (run for run in whole if run["state"] == "failed" and "exit" in (run["ran"]["command"] + run["name"])),
        key=lambda run: run["name"],
        reverse=True,
    )


@pytest.mark.parametrize("search", ["", " ", ".*[", "%", "_", "\\", "'", "\x00", "é", "x" * 2000])
def test_any_text_can_be_searched_for(reader: httpx.Client, search: str) -> None:
    """Nothing in it is special, and nothing finds everything."""
    matches = runs(reader, search=search)
    assert matches == [run for run in runs(reader) if search.strip() in f"{run['name']}{run['ran']['command']}"]


def test_a_search_that_is_too_long_says_so(reader: httpx.Client) -> None:
    """An address of 10 KB is too long; below that the parameter says what it takes."""
    assert reader.get("/api/runs", params={"search": "x" * 10_000}).status_code == 414
    answer = reader.get("/api/runs", params={"search": "x" * 3000})
    assert (answer.status_code, answer.json()["field"]) == (400, "search")
    assert "at most 2000 characters" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["user", "project", "gpu", "machine", "source", "state", "reason"])
def test_an_unknown_value_is_a_problem_that_names_the_known_ones(reader: httpx.Client, name: str) -> None:
    """With the field; in the past it may have come later, so there it finds nothing."""
    answer = reader.get("/api/runs", params={name: "no-such"})
    assert (answer.status_code, answer.json()["field"]) == (400, name)
    known = reader.get("/api/filters").json().get(f"{name}s") or [reader.get("/api/vms").json()["vms"][0]["name"]]
    assert any(value in answer.json()["detail"] for value in known)
    if name not in SAME:
        assert runs(reader, at=5, **{name: "no-such"}) == []


@pytest.mark.parametrize("when", [{"since": "2999-01-01T00:00:00Z"}, {"until": "2001-01-01T00:00:00Z"}])
def test_a_time_without_runs_finds_none(reader: httpx.Client, when: dict[str, str]) -> None:
    """In the future, and before the record."""
    assert runs(reader, **when) == []


@pytest.mark.parametrize("sort", ["time", "name", "duration", "cost"])
def test_pages_of_a_sorted_list_are_the_list(reader: httpx.Client, sort: str) -> None:
    """In every order; and a cursor of one list is refused by another."""
    whole = runs(reader, sort=sort, search="o")
    assert len(whole) > 3
    listed, cursor = [], None
    while True:
        query = {"limit": 2, "sort": sort, "search": "o"} | ({} if cursor is None else {"cursor": cursor})
        page = reader.get("/api/runs", params=query).json()
        listed += page["runs"]
        cursor, before = page["next"], cursor
        if cursor is None:
            break
    assert listed == whole
    other = reader.get("/api/runs", params={"limit": 2, "sort": sort, "cursor": before})
    assert (other.status_code, other.json()["field"]) == (400, "cursor")
    assert "same filters" in other.json()["detail"]
    for key in ("9" * 19, "zz", "f", ""):  # forged: the checksum is public
        forged = f"{key}.1.{before.rpartition('.')[2]}"
        answer = reader.get("/api/runs", params={"limit": 2, "sort": sort, "search": "o", "cursor": forged})
        assert answer.status_code in (200, 400)


def test_the_past_is_filtered_as_the_present(reader: httpx.Client) -> None:
    """At every tenth position: a filter finds what a look at all runs of that moment finds."""
    head = reader.get("/api/record").json()["position"]
    for at in range(1, head, max(1, head // 10)):
        whole = runs(reader, at=at)
        assert runs(reader, at=at, search="ok", state="running") == [
            run for run in whole if run["state"] == "running" and "ok" in run["name"] + run["ran"]["command"]
        ]
        assert reader.get("/api/filters", params={"at": at}).status_code == 200
