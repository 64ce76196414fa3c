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

from cli.program import steno
from cli.wiring.app import App
from engine.providers.readings import READINGS
from engine.replay.trace import open_trace
from events.clock import SystemClock
from events.store.record import Record

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
    """What names each run or machine; the service lists the newest first."""
    listed = {kind: here.client.get(f"/api/{kind}?limit=200").json()[kind] for kind in ("runs", "vms")}
    both = [(one.get("run_id") or one["vm_id"], one["provider_id"]) for one in (*listed["runs"], *listed["vms"])]
    every = [value for ids in both for value in set(ids)]
    found: Words = {}
    names: set[str] = set()
    for one in listed[kind]:
        ids = (one[key], one["provider_id"])
        found[one[key]] = [*ids, *(value[:13] for value in ids), *(shortest(value, every) for value in ids)]
        if one["name"] not in names:
            found[one[key]].append(one["name"])
            names.add(one["name"])
    return found


def shortest(value: str, every: list[str]) -> str:
    """The shortest beginning that no other id has."""
    return next(value[:n] for n in range(1, 99) if all(one == value or not one.startswith(value[:n]) for one in every))


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
    """What a route says; of a stream its first message."""
    if not path.endswith("/stream"):
        body = {"json": {}} if method == "post" else {}
        found = here.client.request(method, path, **body)
        return found.status_code, timeless(found.text)
    with here.client.stream(method, f"{path}?after=0" if "/amd/" not in path else path) as found:
        if found.status_code != 200:
            return found.status_code, found.read()
        return 200, next(line for line in found.iter_lines() if line.startswith("data: "))


@pytest.mark.parametrize("kind", ["runs", "vms"])
def test_every_route_finds_the_same_by_any_word(here: Served, kind: str) -> None:
    """The routes are those that the OpenAPI document lists, so a new one is among them."""
    things = (runs if kind == "runs" else vms)(here)
    asked = list(routes(here, kind))
    assert len(things) >= 4
    assert {path.rsplit("}", 1)[1] for _, path in asked} >= (
        {"", "/stop", "/stream", "/logs"} if kind == "runs" else {"", "/stop"}
    )
    for thing, words in things.items():
        for method, path in asked:
            whole = answer(here, method, path.replace("{id}", thing))
            assert whole[0] != 404 or "/amd/" in path
            for word in words:
                assert answer(here, method, path.replace("{id}", word)) == whole, (method, path, word)


@pytest.mark.parametrize("kind", ["runs", "vms"])
def test_every_command_finds_the_same_by_any_word(here: Served, kind: str) -> None:
    """Also where it then fails, because no server answers: for the same run."""
    settings = {
        "STENO_RECORD": str(here.record), "HOME": str(here.record.parent), "NO_COLOR": "1", "STENO_PROVIDER": "dstack",
        "STENO_DSTACK_URL": "http://127.0.0.1:1", "STENO_DSTACK_TOKEN": "none", "STENO_PROJECT": "main",
    }  # fmt: skip
    for thing, words in (runs if kind == "runs" else vms)(here).items():
        for command in COMMANDS[kind]:
            said = []
            for word in (thing, *words):
                done = CliRunner(env=settings).invoke(steno, [*command, word], obj=App())
                said.append((done.exit_code, timeless(done.stdout), str(done.exception)))
            assert "there is no" not in said[0][2]
            assert said[0][0] != 2, said[0]
            assert set(said) == {said[0]}, (command, words)


@pytest.mark.parametrize("kind", ["runs", "vms"])
def test_a_beginning_of_several_ids_names_the_candidates(here: Served, kind: str) -> None:
    """On every route and in every command, in one line."""
    things = (runs if kind == "runs" else vms)(here)
    ids = {thing: words[:2] for thing, words in things.items()}
    beginnings = Counter(letter for both in ids.values() for letter in {one[0] for one in both})
    ((word, _),) = beginnings.most_common(1)
    named = [thing[:13] for thing, both in ids.items() if any(one.startswith(word) for one in both)]
    assert len(named) > 1
    for method, path in routes(here, kind):
        status, text = answer(here, method, path.replace("{id}", word))
        assert status == 404, path
        detail = json.loads(text)["detail"]
        assert sum(one in detail for one in named) >= min(len(named), 5), detail
    for command in COMMANDS[kind]:
        done = CliRunner(env={"STENO_RECORD": str(here.record)}).invoke(steno, [*command, word], obj=App())
        assert "begins the ids of several" in str(done.exception), command
