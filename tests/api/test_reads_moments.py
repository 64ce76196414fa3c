"""`?at=` and `?min_position=`: every read at any moment of the record, and reading one's own writes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.events.clock import SECOND, SystemClock, format_time
from steno.events.store.record import Record

SEVERAL = Path(__file__).parent.parent / "traces" / "dstack-0.22.5" / "several.jsonl.zst"
PATHS = ("/api/runs", "/api/vms", "/api/costs", "/api/budget")


def test_a_run_at_the_position_of_each_of_its_moves_is_in_that_state(reader: httpx.Client) -> None:
    """The past is unchanged: at a move's position the run has just moved, and knows nothing of what came after."""
    run = next(run for run in reader.get("/api/runs").json()["runs"] if len(run["transitions"]) > 3)
    for index, move in enumerate(run["transitions"]):
        there = reader.get(f"/api/runs/{run['run_id']}", params={"at": move["position"]})
        assert there.headers["steno-position"] == str(move["position"])
        assert there.json()["state"] == move["to"]
        assert there.json()["transitions"] == run["transitions"][: index + 1]
    before = reader.get(f"/api/runs/{run['run_id']}", params={"at": run["transitions"][0]["position"] - 1})
    assert before.status_code == 404


def test_a_time_is_the_last_position_that_was_there_by_then(served: Callable[..., Any], tmp_path: Path) -> None:
    """A moment of a recording shows what had been polled by then, to the microsecond."""
    path = tmp_path / "one.db"
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        record.append_polls([poll for _, poll in open_trace(SEVERAL) if poll is not None])
        polls = list(record.read(types={"PollRecorded", "PollFailed"}))
        stored = list(record.read())
    client = served(path).client
    for poll in polls[:: len(polls) // 8]:
        last = max(event.position for event in stored if event.observed_at <= poll.observed_at)
        for time in (format_time(poll.observed_at), format_time(poll.observed_at)[:-1] + "+00:00"):
            answer = client.get("/api/runs", params={"at": time})
            assert answer.headers["steno-position"] == str(last)
        before = client.get("/api/runs", params={"at": format_time(poll.observed_at - 1)})
        assert int(before.headers["steno-position"]) < poll.position


@pytest.mark.parametrize("path", PATHS)
def test_the_head_as_a_moment_is_what_is_shown_now(reader: httpx.Client, path: str) -> None:
    """`at` the head differs from now in nothing but what the present time says."""
    now = reader.get(path)
    at = reader.get(path, params={"at": now.headers["steno-position"]})
    assert at.headers["steno-position"] == now.headers["steno-position"]
    if path != "/api/budget":  # whose last 24 hours end at the moment it is seen from
        assert at.json() == now.json()


@pytest.mark.parametrize(
    "at",
    [
        "",
        "0",
        "-1",
        "1.5",
        "1e3",
        "99999999",
        "9" * 30,
        "2099-01-01T00:00:00Z",
        "2026-13-01",
        "yesterday",
        "5m",
        "2026-11-20T15:00:00+99:00",
        "0001-01-01T00:00:00+23:59:59",
        "١",
        "\x00",
        "1" * 5000,
    ],
)
def test_a_moment_that_has_not_been_is_refused_by_name(reader: httpx.Client, at: str) -> None:
    """An invalid `at`, one before position 1, beyond the head or in the future is 400 and names `at`."""
    for path in (*PATHS, "/api/runs/any/timeline"):
        answer = reader.get(path, params={"at": at})
        assert (answer.status_code, answer.json()["field"]) == (400, "at"), answer.text
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_time_before_the_record_shows_nothing_at_all(reader: httpx.Client) -> None:
    """Before the first event there is no run, no machine and no cost; that is an answer, not an error."""
    answer = reader.get("/api/runs", params={"at": "2001-01-01"})
    assert (answer.status_code, answer.json()) == (200, {"runs": [], "next": None, "position": 0})
    assert reader.get("/api/vms", params={"at": "2001-01-01"}).json()["vms"] == []
    assert reader.get("/api/costs", params={"at": "2001-01-01"}).json()["total"]["total_usd"] == "0.000000"


def test_who_wrote_reads_what_was_written(client: httpx.Client) -> None:
    """A read with the `min_position` a command answered sees what the command did, every time."""
    task = {"type": "task", "commands": ["true"]}
    for number in range(20):
        made = client.post("/api/runs", json={"name": f"mine-{number}", "configuration": task})
        assert made.status_code == 202, made.text
        position = made.json()["position"]
        assert made.headers["steno-position"] == str(position)
        seen = client.get(made.headers["location"], params={"min_position": position})
        assert (seen.status_code, seen.json()["name"]) == (200, f"mine-{number}")
        assert int(seen.headers["steno-position"]) >= position
        stopped = client.post(f"/api/runs/mine-{number}/stop").json()
        assert stopped["asked"] is True
        assert stopped["position"] > position


def test_a_position_nobody_wrote_is_a_conflict_and_is_not_waited_for(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`min_position` beyond the record was never answered to anybody: 409 at once, saying how far the record is; here
    who waits would wait for an hour.
    """
    monkeypatch.setattr("steno.projections.read_models.reader_pool.PATIENCE", 3600 * SECOND)
    head = int(client.get("/api/runs").headers["steno-position"])
    answer = client.get("/api/runs", params={"min_position": head + 1})
    assert (answer.status_code, answer.json()["field"]) == (409, "min_position")
    assert f"position {head}" in answer.json()["detail"]
    for wrong in ("-1", "x", "", "1.0", "9" * 30):
        answer = client.get("/api/runs", params={"min_position": wrong})
        assert (answer.status_code, answer.json()["field"]) == (400, "min_position")


# -- both times --------------------------------------------------------------------------------------------------------


def test_a_moment_by_what_was_learnt_of_it_later(served: Callable[..., Any], tmp_path: Path) -> None:
    """A job that Slurm says ended at 225 was polled as ended later: known then running, known now succeeded."""
    path = tmp_path / "one.db"
    trace = SEVERAL.parents[1] / "slurm-22.05" / "fanout_one_winner.jsonl.zst"
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        record.append_polls([poll for _, poll in open_trace(trace) if poll is not None])
    client = served(path).client

    def states(**params: object) -> list[str]:
        answer = client.get("/api/runs", params={"name": "fan", **params})
        assert answer.headers["steno-position"] == "225"
        return [run["state"] for run in answer.json()["runs"]]

    assert states(at=225) == states(at=225, known=225) == ["stopped", "running", "stopped"]
    assert states(at=225, known="now") == states(at=225, known=400) == ["stopped", "succeeded", "stopped"]


@pytest.mark.parametrize(
    ("params", "detail"),
    [
        ({"known": "now"}, "give `at` as well"),
        ({"at": 5, "known": 3}, "position 3 is before position 5"),
        ({"at": 5, "known": "2001-01-01"}, "the record has no event up to that time"),
        ({"at": 5, "known": "99999999"}, "is beyond it"),
        ({"at": 5, "known": "2999-01-01"}, "in the future"),
        ({"at": 5, "known": "later"}, "or `now`"),
    ],
)
def test_what_was_never_known_is_refused_by_name(reader: httpx.Client, params: dict[str, Any], detail: str) -> None:
    answer = reader.get("/api/runs", params=params)
    assert answer.status_code == 400
    assert answer.json()["field"] == "known"
    assert detail in answer.json()["detail"]
