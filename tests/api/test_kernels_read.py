"""Kernels' results over HTTP: the leaderboards and one kernel, as the command line prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stenotest import steno_process
from stenotest.kernel_record import ToldTime, kernel_record

import steno.projections.answers.judged_kernel

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
    ToldTime(name="same", at=3600, result={"batches": []}),
    ToldTime(name="odd", at=4200, result={"median_ms": 0.1}),
    ToldTime(name="broken", at=4800, end="COMPILE_ERROR"),
)


@pytest.fixture(scope="module")
def here(served_on: Serve, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """The service of a record with these kernels; no test changes it."""
    return served_on(kernel_record(tmp_path_factory.mktemp("kernels") / "kernels.db", KERNELS))


def told(here: Served, path: str = LEADERBOARD, **parameters: Any) -> dict[str, Any]:
    answer = here.client.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def printed(here: Served, *words: str) -> dict[str, Any]:
    """The output of the genuine command for the same record."""
    home = here.record.parent
    done = steno_process.run(
        ["kernel", *words, "--json", "--record", str(here.record)], cwd=home, env={"HOME": str(home)}, check=True
    )
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def names(board: dict[str, Any]) -> list[str]:
    return [place["kernel"]["name"] for place in board["places"]]


def test_the_boards_are_those_of_the_command_line(here: Served) -> None:
    """A board for each problem, GPU and dtype, the best first; cheats and unproven times are on none."""
    leaderboard = told(here)
    position = leaderboard.pop("position")
    assert position == told(here, "/api/record")["position"]
    assert leaderboard == printed(here, "leaderboard")
    assert {(part["gpu"], part["dtype"]): names(part) for part in leaderboard["boards"]} == {
        ("H100", "float32"): ["other-gpu"],
        ("MI300X", "float16"): ["half"],
        ("MI300X", "float32"): ["second", "third", "first"],
    }
    assert [kernel["name"] for kernel in leaderboard["suspected"]] == ["cheat"]
    assert [kernel["name"] for kernel in leaderboard["unproven"]] == ["odd", "same"]
    assert "0 batches were timed" in leaderboard["unproven"][1]["why"][0]
    (board,) = told(here, gpu="MI300X", dtype="float32", problem="vector-add")["boards"]
    assert [kernel["name"] for kernel in board["history"]] == ["first", "second", "third"]
    short = told(here, limit=1)
    assert [(len(part["places"]), part["more"]) for part in short["boards"]] == [(1, 0), (1, 0), (1, 2)]
    assert (len(short["suspected"]), short["more_suspected"], short["more_unproven"]) == (1, 0, 1)
    assert told(here, problem="nosuch")["boards"] == []


@pytest.mark.parametrize("name", ["second", "cheat", "broken"])
def test_one_kernel_is_that_of_the_command_line(here: Served, name: str) -> None:
    """By name or id, with its statuses and what today's rules say; without the key of its frames."""
    kernel = told(here, f"/api/kernels/{name}")
    assert kernel.pop("position") > 0
    assert kernel == printed(here, "show", name)
    assert told(here, f"/api/kernels/{kernel['run_id']}")["statuses"] == kernel["statuses"]
    assert kernel["statuses"][-1]["final"] is True
    assert "key" not in kernel["statuses"][-1]


def test_a_moment_past_has_the_kernels_of_then(here: Served) -> None:
    """The verdict of a kernel without a final status is null; its request is unchanged."""
    now = told(here)
    end = told(here, "/api/kernels/second")["statuses"][-1]["position"]
    (board,) = told(here, at=end)["boards"]
    assert names(board) == ["second", "first"]
    (board,) = told(here, at=end - 1)["boards"]
    assert names(board) == ["first"]
    assert told(here, "/api/kernels/second", at=end - 1)["judged"] is None
    assert told(here) == now


@pytest.mark.parametrize(
    ("path", "query", "status", "why"),
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
def test_what_is_wrong_is_a_problem(here: Served, path: str, query: str, status: int, why: str) -> None:
    """That names the parameter."""
    answer = here.client.get(f"{path}?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert why in answer.json()["detail"]
    if status == 400:
        assert answer.json()["field"] == query.partition("=")[0]


def test_a_run_that_is_no_kernel_is_not_found(towned: Served) -> None:
    """With the command that shows it."""
    answer = towned.client.get("/api/kernels/ok-run")
    assert (answer.status_code, "is not a kernel" in answer.json()["detail"]) == (404, True)
    assert told(towned)["boards"] == []


def test_a_kernel_is_judged_again_only_after_it_has_changed(
    served: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second answer is made of what is kept; one kernel more is one judgement more."""
    here = served(kernel_record(tmp_path / "kernels.db", KERNELS))
    judged: list[str] = []
    real = steno.projections.answers.judged_kernel.facts_of

    def counted(record: Any, run: Any, **more: Any) -> Any:
        judged.append(run.name)
        return real(record, run, **more)

    monkeypatch.setattr(steno.projections.answers.judged_kernel, "facts_of", counted)
    first = told(here)
    assert sorted(judged) == sorted(kernel.name for kernel in KERNELS)
    judged.clear()
    assert told(here) == first
    assert judged == []
    kernel_record(here.record, [ToldTime(name="newest", at=9000, median=0.1)])
    later = told(here, min_position=first["position"] + 1)
    while later["position"] < told(here, "/api/record")["position"]:
        later = told(here)
    assert names(later["boards"][-1])[0] == "newest"
    assert {"newest"} <= set(judged) <= {"newest", "broken"}, "the run before changes too: its machine became idle"
