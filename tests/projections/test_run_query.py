"""Finding runs: the SQL finds what a plain look at every run finds, in the same order, now and in the past."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steno.projections.read_models.run_query import (
    SORTS,
    RowPlace,
    RunQuery,
    UnknownValue,
    check_known,
    filter_values,
    find,
)
from steno.projections.read_models.schema import RunRow, VmRow
from steno.projections.read_models.store import ProjectionStore

TEXTS = st.sampled_from(
    ["", "a", "A", "%", "_", "a%b", ".*[", "[a]", "a?b", "ab", "Ä", "b\nc", "'", "\\", "x" * 10_000, "\udcff"]
)
SOME = st.sampled_from([None, "a", "b"])


@st.composite
def rows(draw: st.DrawFn) -> list[RunRow]:
    """Runs that differ in what filters look at; many values are equal."""
    return [
        RunRow(
            run_id=f"{number:04}-run",
            provider="local",
            provider_id=None,
            name=draw(st.sampled_from([None, "a", "ab", "a%b", "Ä", "z" * 250])),
            state=draw(st.sampled_from(["failed", "running"])),
            ended=draw(st.booleans()),
            sort_at=draw(st.integers(0, 3)),
            cost=draw(st.none() | st.integers(0, 2)),
            user=draw(SOME),
            reason=draw(SOME),
            project=draw(SOME),
            source=draw(st.sampled_from(["a", "b"])),
            gpu=draw(st.sampled_from(["\n", "\nnone\n", "\nmi300x\nmi300x:2\n", "\nh100\nh100:1\nmi300x\nmi300x:1\n"])),
            vm_id=draw(st.sampled_from([None, "aaaa-1", "aaaa-2", "bbbb-1"])),
            took=draw(st.none() | st.integers(0, 2)),
            words=draw(TEXTS.filter(lambda text: text != "\udcff")).lower(),
            archive=draw(SOME),
            hidden=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 12)))
    ]


MACHINES = [VmRow("aaaa-1", "p-1", "one"), VmRow("aaaa-2", "p-2", "one"), VmRow("bbbb-1", "p-3", "two")]
queries = st.builds(
    RunQuery,
    state=st.sampled_from([None, "failed", "lost"]),
    reason=SOME,
    user=SOME,
    project=SOME,
    gpu=st.sampled_from([None, "none", "MI300X", "mi300x:2", "H100", "h"]),
    machine=st.sampled_from([None, "one", "aaaa-1", "aaaa", "aaa", "p-3", "nobody", "%"]),
    source=SOME,
    name=st.sampled_from([None, "a", "ab"]),
    search=TEXTS,
    since=st.none() | st.integers(0, 4),
    until=st.none() | st.integers(0, 4),
    open_or_since=st.none() | st.integers(0, 4),
    hidden=st.booleans(),
    sort=st.sampled_from(SORTS),
    turned=st.booleans(),
)


def matches(query: RunQuery, row: RunRow) -> bool:
    """The meaning of a condition, in Python."""
    equal = ("state", "reason", "user", "project", "source", "name")
    named = {
        machine.vm_id
        for machine in MACHINES
        if query.machine in (machine.name, machine.vm_id, machine.provider_id)
        or (query.machine is not None and len(query.machine) >= 4 and machine.vm_id.startswith(query.machine))
    }
    return (
        all(getattr(query, name) in (None, getattr(row, name)) for name in equal)
        and (query.gpu is None or query.gpu.lower() in row.gpu.strip("\n").split("\n"))
        and (query.machine is None or row.vm_id in named)
        and query.search.strip().lower().replace("\0", "\ufffd").encode("utf-8", "replace").decode() in row.words
        and (query.since is None or row.sort_at >= query.since)
        and (query.until is None or row.sort_at <= query.until)
        and (
            query.open_or_since is None or (not row.ended and row.archive is None) or row.sort_at >= query.open_or_since
        )
        and (query.hidden or not row.hidden)
    )


def expected(query: RunQuery, rows: list[RunRow]) -> list[str]:
    """The runs of a query in its order."""
    keys: dict[str, Any] = {
        "time": lambda row: row.sort_at,
        "name": lambda row: (row.name or "")[:200],
        "duration": lambda row: -1 if row.took is None else row.took,
        "cost": lambda row: -1 if row.cost is None else row.cost,
    }
    there = [(keys[query.sort](row), place, row.run_id) for place, row in enumerate(rows) if matches(query, row)]
    return [run_id for _, _, run_id in sorted(there, reverse=(query.sort == "name") == query.turned)]


def pages(store: ProjectionStore, query: RunQuery, size: int) -> Iterator[str]:
    """All runs of a query, page by page."""
    behind: RowPlace | None = None
    while page := find(store, query, size, behind):
        yield from (run_id for run_id, _ in page)
        behind = page[-1][1]


def stored(rows: list[RunRow]) -> ProjectionStore:
    """A store in memory with these runs."""
    store = ProjectionStore.create(None)
    store.runs.put(rows)
    store.vms.put(MACHINES)
    return store


@given(run_rows=rows(), query=queries, size=st.integers(1, 4))
@example(run_rows=[], query=RunQuery(search=".*["), size=1)
@example(run_rows=[], query=RunQuery(search="\U0001f600*" * 100_000), size=1)
@example(run_rows=[RunRow("1-run", "local", None, None, words="a\ufffdb\nc")], query=RunQuery(search="a\0b"), size=1)
def test_the_sql_finds_what_a_look_at_every_run_finds(run_rows: list[RunRow], query: RunQuery, size: int) -> None:
    """Whatever the conditions, the order and the size of pages."""
    with stored(run_rows) as store:
        assert list(pages(store, query, size)) == expected(query, run_rows)


@settings(max_examples=30, deadline=None)
@given(query=queries)
@example(query=RunQuery(search="\udcff"))
def test_a_query_of_another_list_has_another_checksum(query: RunQuery) -> None:
    """A cursor is bound to what it was given for; how a search is written does not matter."""
    assert query.checksum() != msgspec.structs.replace(query, user="somebody else").checksum()
    assert query.checksum() != msgspec.structs.replace(query, turned=not query.turned).checksum()


def test_an_unknown_value_is_an_error_that_names_the_known_ones() -> None:
    """Also of machines; never before the first run, and never for a value that is only rare."""
    with stored([]) as empty:
        check_known(empty, RunQuery(user="nobody", machine="nothing"))
    row = RunRow("r", "p", None, "n", user="ann", project="p", source="s", gpu="\nmi300x\nmi300x:2\n", vm_id="aaaa-1")
    with stored([row]) as store:
        check_known(store, RunQuery(user="ann", project="p", source="s", gpu="mi300x:9", machine="two", state="lost"))
        for gpu in ("amd:MI300X", "AMD Instinct MI300X VF", "amd:mi300x:2"):
            check_known(store, RunQuery(gpu=gpu))
            assert [run_id for run_id, _ in find(store, RunQuery(gpu=gpu), 9)] == ["r"]
        for wrong, message in (
            ({"user": "bob"}, "unknown user 'bob'; known: ann"),
            ({"gpu": "H100"}, "unknown gpu 'H100'; known: MI300X"),
            ({"machine": "three"}, "unknown machine 'three'; known: two, one"),
            ({"source": "x" * 100}, f"unknown source '{'x' * 60}…'; known: s"),
        ):
            with pytest.raises(UnknownValue, match="unknown") as caught:
                check_known(store, RunQuery(**wrong))  # type: ignore[arg-type]
            assert str(caught.value) == message


def test_the_known_values_are_those_of_all_runs() -> None:
    """Each once, in alphabetical order."""
    rows = [RunRow(f"r{user}", "p", None, None, user=user, source="s", gpu="\nnone\n") for user in ("b", "a", None)]
    with stored(rows) as store:
        known = filter_values(store)
    assert (known.users, known.sources, known.gpus, known.projects) == (("a", "b"), ("s",), ("none",), ())
    assert "failed" in known.states
