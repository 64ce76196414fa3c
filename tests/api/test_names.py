"""Every route and every command finds the same run, or machine, by any word that a person has for it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from steno.cli.program import steno
from steno.cli.wiring.app import App
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.events.clock import SystemClock
from steno.events.store.record import Record

if TYPE_CHECKING:
    from conftest import Serve, Served

TRACES = Path(__file__).parent.parent / "traces" / "dstack-0.22.5"
Words = dict[str, list[str]]
"""id → the words that name it."""
COMMANDS = {
    "runs": (("show",), ("timeline",), ("explain",), ("stop",), ("logs",), ("export", "--trace", "-")),
    "vms": (("vms",), ("explain",), ("vms", "stop"), ("vms", "gone", "--at", "5m")),
}


@pytest.fixture(scope="module")
def here(served_on: Serve, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A service over runs of a genuine server: some have the same name, and share a machine's name."""
    path = tmp_path_factory.mktemp("names") / "record.db"
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        for name in ("name_reuse", "warm_reuse", "several"):
            trace = open_trace(TRACES / f"{name}.jsonl.zst")
            record.append_polls([poll for _, poll in trace if poll is not None])
    server = {"dstack__url": "http://127.0.0.1:1", "dstack__token": "none", "provider": "dstack"}
    return served_on(path, project="main", api__submit_rate="off", **server)


def words_of(here: Served, kind: str, key: str) -> Words:
    """The words that name each run or machine; the service lists the newest first."""
    listed = {kind: here.client.get(f"/api/{kind}?limit=200").json()[kind] for kind in ("runs", "vms")}
    both = [(item.get("run_id") or item["vm_id"], item["provider_id"]) for item in (*listed["runs"], *listed["vms"])]
    every = [value for ids in both for value in set(ids)]
    by_id: Words = {}
    names: set[str] = set()
    for thing in listed[kind]:
        ids = (thing[key], thing["provider_id"])
        by_id[thing[key]] = [*ids, *(value[:13] for value in ids), *(shortest(value, every) for value in ids)]
        if thing["name"] not in names:
            by_id[thing[key]].append(thing["name"])
            names.add(thing["name"])
    return by_id


def shortest(value: str, every: list[str]) -> str:
    """The shortest beginning that no other id has."""
    return next(
        value[:n] for n in range(1, 99) if all(other == value or not other.startswith(value[:n]) for other in every)
    )


def runs(here: Served) -> Words:
    return words_of(here, "runs", "run_id")


def vms(here: Served) -> Words:
    """All have ended: the newest of a name is the one seen last."""
    return words_of(here, "vms", "vm_id")


def routes(here: Served, kind: str) -> Iterator[tuple[str, str]]:
    """(method, path) of every route that names one run or one machine, as the service describes itself."""
    for path, methods in here.client.get("/openapi.json").json()["paths"].items():
        if "{id}" in path and f"/{kind}/" in path:
            yield from ((method, path) for method in methods)


def timeless(text: str) -> str:
    """Without how long ago a source answered last, which grows between two questions, and how that breaks the lines."""
    return re.sub(r"last answer .+? ago", "last answer long ago", " ".join(text.split()))


def answer(here: Served, method: str, path: str) -> Any:
    """The answer of a route; of a stream its first message."""
    if not path.endswith("/stream"):
        body = {"json": {}} if method == "post" else {}
        response = here.client.request(method, path, **body)
        return response.status_code, timeless(response.text)
    with here.client.stream(method, f"{path}?after=0" if "/amd/" not in path else path) as response:
        if response.status_code != 200:
            return response.status_code, response.read()
        return 200, next(line for line in response.iter_lines() if line.startswith("data: "))


EVERY = pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
"""Without `long` of each ninth."""


@EVERY
@pytest.mark.parametrize("kind", ["runs", "vms"])
def test_every_route_finds_the_same_by_any_word(here: Served, kind: str, every: int) -> None:
    """The routes are those that the OpenAPI document lists, so a new one is among them."""
    things = (runs if kind == "runs" else vms)(here)
    all_routes = list(routes(here, kind))
    assert len(things) >= 4
    assert {path.rsplit("}", 1)[1] for _, path in all_routes} >= (
        {"", "/stop", "/stream", "/logs"} if kind == "runs" else {"", "/stop"}
    )
    for thing, words in list(things.items())[::every]:
        for method, path in all_routes:
            whole = answer(here, method, path.replace("{id}", thing))
            assert whole[0] != 404 or "/amd/" in path
            for word in words:
                assert answer(here, method, path.replace("{id}", word)) == whole, (method, path, word)


@EVERY
@pytest.mark.parametrize("kind", ["runs", "vms"])
def test_every_command_finds_the_same_by_any_word(here: Served, kind: str, every: int) -> None:
    """Also where it then fails, because no server answers: for the same run."""
    settings = {
        "STENO_RECORD": str(here.record), "HOME": str(here.record.parent), "NO_COLOR": "1", "STENO_PROVIDER": "dstack",
        "STENO_DSTACK_URL": "http://127.0.0.1:1", "STENO_DSTACK_TOKEN": "none", "STENO_PROJECT": "main",
    }  # fmt: skip
    for thing, words in list((runs if kind == "runs" else vms)(here).items())[::every]:
        for command in COMMANDS[kind]:
            outcomes = []
            for word in (thing, *words):
                done = CliRunner(env=settings).invoke(steno, [*command, word], obj=App())
                outcomes.append((done.exit_code, timeless(done.stdout), str(done.exception)))
            assert "there is no" not in outcomes[0][2]
            assert outcomes[0][0] != 2, outcomes[0]
            assert set(outcomes) == {outcomes[0]}, (command, words)


@pytest.mark.parametrize("kind", ["runs", "vms"])
def test_a_beginning_of_several_ids_names_the_candidates(here: Served, kind: str) -> None:
    """On every route and in every command, in one line."""
    things = (runs if kind == "runs" else vms)(here)
    ids = {thing: words[:2] for thing, words in things.items()}
    beginnings = Counter(letter for both in ids.values() for letter in {name[0] for name in both})
    ((word, _),) = beginnings.most_common(1)
    named = [thing[:13] for thing, both in ids.items() if any(name.startswith(word) for name in both)]
    assert len(named) > 1
    for method, path in routes(here, kind):
        status, text = answer(here, method, path.replace("{id}", word))
        assert status == 404, path
        detail = json.loads(text)["detail"]
        assert sum(name in detail for name in named) >= min(len(named), 5), detail
    for command in COMMANDS[kind]:
        done = CliRunner(env={"STENO_RECORD": str(here.record)}).invoke(steno, [*command, word], obj=App())
        assert "begins the ids of several" in str(done.exception), command
