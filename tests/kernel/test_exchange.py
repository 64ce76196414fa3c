"""The folder of a program: how its files may change, and how long they hold the judge up."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from steno.engine.kernel.machine import exchange
from steno.engine.kernel.machine.cells import Cell
from steno.engine.kernel.machine.exchange import CellExchange, OutputChanged
from steno.engine.kernel.machine.local_cells import LocalCells


class Stopped(Exception):
    """The judge is to stop."""


@pytest.fixture
def files(tmp_path: Path) -> Iterator[CellExchange]:
    made = CellExchange(tmp_path / "files")
    yield made
    made.close()


def test_a_program_that_writes_for_ever_does_not_hold_the_judge_up(
    files: CellExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it gets a case it runs: its FIFO may never be empty."""
    with monkeypatch.context() as changed:
        changed.setattr(exchange.os, "read", lambda _, size: b"d" * size)
        files.order(3)
    with (files.folder / "channel").open("rb", buffering=0) as channel:
        assert channel.read(8) == (3).to_bytes(8, "little")


@pytest.mark.parametrize("looks", [1, 2, 7, 8])
def test_the_judge_looks_whether_it_is_to_stop_while_it_makes_files(files: CellExchange, looks: int) -> None:
    """Small and large, of which some pages are given back first."""
    files.resize(100 << 20, 100 << 20, lambda: None)
    left = [looks]

    def check() -> None:
        left[0] -= 1
        if not left[0]:
            raise Stopped

    with pytest.raises(Stopped):
        files.resize(100 << 20, 100 << 20, check)
    left[0] = looks
    with pytest.raises(Stopped):
        files.resize(1, 1 << 30, check) if looks > 1 else files.poison(check)


@pytest.mark.parametrize("size", [0, 1, 5_000, (64 << 20) + 1])
def test_files_have_the_size_that_was_asked_for(files: CellExchange, size: int) -> None:
    """Whatever they had, and new inputs are zeros: nothing is left of those of another case."""
    for before in (0, 1, 40 << 20):
        files.resize(before, before, lambda: None)
        files.write_input(0, b"x" * min(before, 9))
        files.resize(size, size, lambda: None)
        assert {(files.folder / name).stat().st_size for name in ("in", "out")} == {max(1, size)}
        assert not files.read_input(0, 9).strip(b"\0")


@pytest.mark.parametrize("changed", [63, 65])
def test_outputs_of_another_size_are_refused(files: CellExchange, changed: int) -> None:
    files.resize(64, 64, lambda: None)
    assert files.read_output(0, 64) == bytes(64)
    os.truncate(files.folder / "out", changed)
    with pytest.raises(OutputChanged):
        files.read_output(0, 8)
    with pytest.raises(OutputChanged):
        files.poison(lambda: None)


def test_a_cell_whose_end_is_not_known_is_given_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its engine is away, and it is ended again by whoever opened it: twice, the pool counted a program below none, and
    kept one container ready instead of four.
    """
    cells, returned = LocalCells(tmp_path), list[Cell]()
    cell = cells.open(b"#!/bin/sh\n", ())
    with monkeypatch.context() as away:

        def no_status(_: float) -> int:
            raise ConnectionError

        away.setattr(cell, "status", no_status)
        away.setattr(cells, "give_back", returned.append)
        for _ in range(2):
            with pytest.raises(ConnectionError):
                cell.end()
    cell.close()
    assert returned == [cell]
