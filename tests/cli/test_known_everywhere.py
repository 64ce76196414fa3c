"""Each command and each read of the API that shows a moment also takes by when that is known, or says why not."""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from stenotest.in_process import InProcess

from steno.cli.program import steno
from steno.cli.wiring.app import App
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.events.clock import SystemClock
from steno.events.errors import RecordNotFound
from steno.events.store.record import Record
from steno.projections import frames
from steno.projections.app import PARTS
from steno.projections.client import requests
from steno.projections.frames import source

TRACE = Path(__file__).parent.parent / "traces" / "dstack-0.22.5" / "several.jsonl.zst"
AT, EARLY, WAITING = 939, 3, 120
"""Positions of that record behind which more is learnt: of an end, of the first runs, of a run that waits."""
REASONS = {
    "cases": "a case is what one poll showed: recorded and judged at once",
    "vms gone": "its --at is when the machine ended, an order and not a read",
}
READS: dict[str, tuple[int, tuple[object, ...]]] = {
    "budget list": (AT, ()),
    "changes": (AT, ("--since", "2020-01-01")),
    "compare": (AT, ("RUN", "RUN")),
    "costs": (AT, ()),
    "estimate": (AT, ()),
    "explain": (AT, ("RUN",)),
    "export": (AT, ("--format", "csv", "-o", "OUT", "runs", "machines", "costs")),
    "incidents": (WAITING, ()),
    "metrics": (AT, ()),
    "ps": (AT, ("--all",)),
    "report": (AT, ("--month", "2026-11")),
    "show": (AT, ("RUN",)),
    "sources list": (EARLY, ()),
    "sql": (AT, ("select * from runs join costs using (run_id) order by all",)),
    "timeline": (134, ("RUN",)),
    "vms list": (AT, ()),
    "waste": (AT, ("--since", "2026-11-01")),
}
"""Each command that takes --known: a moment of which more was learnt later, and the words that show it."""


def commands(group: click.Command, ctx: click.Context, path: str = "") -> Iterator[tuple[str, set[str]]]:
    """(command, its options) of all."""
    if not isinstance(group, click.Group):
        yield path, {word for parameter in group.params for word in parameter.opts}
        return
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        yield from commands(command, click.Context(command, parent=ctx), f"{path} {name}".strip())


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> tuple[InProcess, InProcess, int]:
    """(a record, a record of the same polls that ends earlier, the last position of that)."""
    polls = [poll for _, poll in open_trace(TRACE) if poll is not None]
    made: list[InProcess] = []
    heads: list[int] = []
    for end in (len(polls), len(polls) - 40):
        home = tmp_path_factory.mktemp("home")
        with Record.open(home / "record.db", write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as to:
            to.append_polls(polls[:end])
            heads.append(to.head().position)
        made.append(InProcess(home))
    return made[0], made[1], heads[1]


def test_every_moment_has_both_times_or_a_reason() -> None:
    """All commands, all operations of the API, the requests of its client, and the tables for notebooks."""
    options = dict(commands(steno, click.Context(steno, obj=App())))
    there = {name for name, words in options.items() if "--at" in words}
    assert {name for name, words in options.items() if "--known" in words} == there - REASONS.keys() == READS.keys()
    assert there >= REASONS.keys()
    operations = [operation for part in PARTS for operation in part.OPERATIONS]
    reads = {
        f"{each.method} {each.path}": {parameter["name"] for parameter in each.parameters or ()} for each in operations
    }
    functions = [each for each in (*vars(requests).values(), frames.frame, source.opened) if inspect.isfunction(each)]
    of_python = {each.__qualname__: set(inspect.signature(each).parameters) for each in functions}
    for taken, some in ((reads, {"GET /api/runs", "GET /api/incidents"}), (of_python, {"run", "costs", "frame"})):
        both = {name for name, names in taken.items() if "at" in names}
        assert both == {name for name, names in taken.items() if "known" in names} > some


@pytest.mark.parametrize("command", READS)
def test_an_answer_sees_what_was_known_then_and_nothing_behind(
    records: tuple[InProcess, InProcess, int], command: str, tmp_path: Path
) -> None:
    """Known at the moment itself it is that of --at alone; known later, that of a record which ends there."""
    whole, cut, end = records
    at, words = READS[command]

    def answer(here: InProcess, *moment: object) -> object:
        filled = [{"RUN": "m-2", "OUT": tmp_path}.get(str(word), word) for word in words]
        done = here(*command.removesuffix(" list").split(), *filled, *moment, "--json")
        assert done.exit_code == 0, done.output
        value = done.stdout
        rows = json.loads(value) if command != "sql" else [json.loads(line) for line in value.splitlines()]
        if isinstance(rows, dict):
            rows.pop("learnt", None)  # what differs from the other of both times
        return rows, [path.read_text() for path in sorted(tmp_path.glob("*.csv"))]

    then, late = answer(whole, "--at", at), answer(whole, "--at", at, "--known", end)
    assert answer(whole, "--at", at, "--known", at) == then
    assert answer(cut, "--at", at, "--known", "now") == late
    assert (late != then) is (command != "metrics")  # which has no phases of money, and of runs only those that ended


@pytest.mark.parametrize(("command", "reason"), REASONS.items())
def test_where_it_means_nothing_it_is_no_option(
    records: tuple[InProcess, InProcess, int], command: str, reason: str
) -> None:
    done = records[0](*command.split(), "--at", AT, "--known", "now")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "No such option '--known'" in done.stderr, reason


def test_an_estimate_without_a_record_takes_no_moment(tmp_path: Path) -> None:
    """It is made of assumptions then; --known alone is not ignored."""
    here = InProcess(tmp_path)
    assert here("estimate").exit_code == 0
    assert isinstance(here("estimate", "--known", "now").exception, RecordNotFound)
