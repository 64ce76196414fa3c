"""Sandboxes of small limits, and the probes that try to break out of them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stenolab.docker import IMAGE

from steno.engine.kernel.machine.cells import Cell
from steno.engine.listener.sandbox import ContainerLimits, Containers

HERE = Path(__file__).parent

Make = Callable[..., Containers]


@pytest.fixture(scope="session")
def make(engine: str) -> Iterator[Make]:
    """`make(kind, size=, name=, url=, **limits)`: a sandbox of small limits; all are closed in the end."""
    made: list[Containers] = []

    def make(
        kind: type[Containers] = Containers, *, size: int = 0, name: str = "tests", url: str = engine, **limits: Any
    ) -> Containers:
        small = {"image": IMAGE, "memory": 1 << 30, "tmp": 256 << 20, "pids": 128}
        made.append(kind(ContainerLimits(**(small | limits)), url=url, size=size, name=name))
        return made[-1]

    yield make
    for containers in made:
        containers.close()


@pytest.fixture(scope="session")
def cells(make: Make) -> Containers:
    """The containers of most tests: small limits, one container ahead of need."""
    return make(size=1)


@pytest.fixture(scope="session")
def probes(cells: Containers) -> bytes:
    """The program of `probes.cpp`."""
    argv = ["g++", "-O1", "-w", "-std=c++17", "-pthread", "probes.cpp", "-o", "program"]
    files = {"probes.cpp": (HERE / "probes.cpp").read_bytes()}
    ended, program = cells.run(argv, files, limit=60, takes="program", cap=16 << 20)
    assert program is not None, ended.output
    return program


@pytest.fixture(scope="session")
def probe(cells: Containers, probes: bytes) -> Callable[..., Any]:
    """`probe(*words, sandbox=, limit=, takes=, cap=)`: run a probe to its end; how it ended and the file it made."""

    def run(*words: str, sandbox: Containers = cells, limit: float = 20, takes: str = "", cap: int = 0) -> Any:
        return sandbox.run(["./probes", *words], {"probes": probes}, limit=limit, takes=takes, cap=cap)

    return run


@pytest.fixture
def opened(cells: Containers, probes: bytes) -> Iterator[Any]:
    """`opened(*words)`: a cell with a probe; it is ended with the test."""
    made: list[Cell] = []

    def open_(*words: str) -> Cell:
        made.append(cells.open(probes, words))
        return made[-1]

    yield open_
    for cell in made:
        cell.end()
