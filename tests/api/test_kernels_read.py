"""Kernels' results over HTTP: the leaderboards and one kernel, as the command line prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stenotest import prefork
from stenotest.kernel_record import ToldTime, kernel_record

import projections.models.judged_kernel

if TYPE_CHECKING:
    from conftest import Serve, Served

LEADERBOARD = "/api/kernels/leaderboard"
KERNELS = (
    ToldTime(name="first", at=0, median=0.9),
    ToldTime(name="second", at=600, median=0.5, submitter="grace", host="gpu-2"),
    ToldTime(name="third", at=1200, median=0.7),
    ToldTime(name="other-gpu", at=1800, median=0.4, gpu="H100"),
    ToldTime(name="half", at=2400, median=0.3, dtype="float16"),
    ToldTime(name="cheat", at=3000, end="CHEATING_SUSPECTED", message="it gave the result of the call before"),
    ToldTime(name="same", at=3600, result={"digests": ["0"] * 17}),
    ToldTime(name="odd", at=4200, result={"median_ms": 0.1}),
    ToldTime(name="broken", at=4800, end="COMPILE_ERROR"),
)


@pytest.fixture
def here(served: Serve, tmp_path: Path) -> Served:
    """The service of a record with these kernels."""
    return served(kernel_record(tmp_path / "kernels.db", KERNELS))


def told(here: Served, path: str = LEADERBOARD, **parameters: Any) -> dict[str, Any]:
    answer = here.client.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def printed(here: Served, *words: str) -> dict[str, Any]:
    """What the genuine command prints of the same record."""
    home = here.record.parent
    done = prefork.run(
        ["kernel", *words, "--json", "--record", str(here.record)], cwd=home, env={"HOME": str(home)}, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def names(board: dict[str, Any]) -> list[str]:
    return [place["kernel"]["name"] for place in board["places"]]


def test_the_boards_are_those_of_the_command_line(here: Served) -> None:
    """One board a problem, GPU and dtype, the best first; cheats and unproven times are on none."""
    found = told(here)
    position = found.pop("position")
    assert position == told(here, "/api/record")["position"]
    assert found == printed(here, "leaderboard")
    assert {(one["gpu"], one["dtype"]): names(one) for one in found["boards"]} == {
        ("H100", "float32"): ["other-gpu"],
        ("MI300X", "float16"): ["half"],
        ("MI300X", "float32"): ["second", "third", "first"],
    }
    assert [one["name"] for one in found["suspected"]] == ["same", "cheat"]
    assert [one["name"] for one in found["unproven"]] == ["odd"]
    assert "calls with different inputs gave the same result" in found["suspected"][0]["why"][0]
    (board,) = told(here, gpu="MI300X", dtype="float32", problem="vector-add")["boards"]
    assert [one["name"] for one in board["history"]] == ["first", "second", "third"]
    short = told(here, limit=1)
    assert [(len(one["places"]), one["more"]) for one in short["boards"]] == [(1, 0), (1, 0), (1, 2)]
    assert (len(short["suspected"]), short["more_suspected"], short["more_unproven"]) == (1, 1, 0)
    assert told(here, problem="nosuch")["boards"] == []


@pytest.mark.parametrize("name", ["second", "cheat", "broken"])
def test_one_kernel_is_that_of_the_command_line(here: Served, name: str) -> None:
    """By name or id, with its statuses and what today's rules say; without the key of its frames."""
    found = told(here, f"/api/kernels/{name}")
    assert found.pop("position") > 0
    assert found == printed(here, "show", name)
    assert told(here, f"/api/kernels/{found['run_id']}")["statuses"] == found["statuses"]
    assert found["statuses"][-1]["final"] is True
    assert "key" not in found["statuses"][-1]


def test_a_moment_past_has_the_kernels_of_then(here: Served) -> None:
    """Of one that has no final status yet the verdict is null; what is asked for now is not changed by it."""
    now = told(here)
    end = told(here, "/api/kernels/second")["statuses"][-1]["position"]
    (board,) = told(here, at=end)["boards"]
    assert names(board) == ["second", "first"]
    (board,) = told(here, at=end - 1)["boards"]
    assert names(board) == ["first"]
    assert told(here, "/api/kernels/second", at=end - 1)["judged"] is None
    assert told(here) == now


@pytest.mark.parametrize(
    ("path", "query", "status", "said"),
    [
        (LEADERBOARD, "limit=0", 400, "a whole number from 1 to 500"),
        (LEADERBOARD, "gpu=GTX", 400, "one of MI300X"),
        (LEADERBOARD, "dtype=int4", 400, "one of float32"),
        (LEADERBOARD, "sort=best", 400, "unknown parameter sort"),
        (LEADERBOARD, "problem=" + "x" * 201, 400, "at most 200 characters"),
        (LEADERBOARD, "at=99999999", 400, "beyond"),
        ("/api/kernels/nobody", "", 404, "there is no run 'nobody'"),
        ("/api/kernels/second", "at=1", 404, "there is no run 'second'"),
    ],
)
def test_what_is_wrong_is_a_problem(here: Served, path: str, query: str, status: int, said: str) -> None:
    """That names the parameter."""
    answer = here.client.get(f"{path}?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert said in answer.json()["detail"]
    if status == 400:
        assert answer.json()["field"] == query.partition("=")[0]


def test_a_run_that_is_no_kernel_is_not_found(served: Serve, town: Path) -> None:
    """With the command that shows it."""
    here = served(town)
    answer = here.client.get("/api/kernels/ok-run")
    assert (answer.status_code, "is not a kernel" in answer.json()["detail"]) == (404, True)
    assert told(here)["boards"] == []


def test_a_kernel_is_judged_again_only_after_it_has_changed(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second answer is made of what is kept; one kernel more is one judgement more."""
    judged: list[str] = []
    real = projections.models.judged_kernel.facts_of

    def counted(record: Any, run: Any, **more: Any) -> Any:
        judged.append(run.name)
        return real(record, run, **more)

    monkeypatch.setattr(projections.models.judged_kernel, "facts_of", counted)
    first = told(here)
    assert sorted(judged) == sorted(one.name for one in KERNELS)
    judged.clear()
    assert told(here) == first
    assert judged == []
    kernel_record(here.record, [ToldTime(name="newest", at=9000, median=0.1)])
    later = told(here, min_position=first["position"] + 1)
    while later["position"] < told(here, "/api/record")["position"]:
        later = told(here)
    assert names(later["boards"][-1])[0] == "newest"
    assert {"newest"} <= set(judged) <= {"newest", "broken"}, "the run before changes too: its machine became idle"
