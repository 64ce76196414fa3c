"""A Docker engine for the sandbox: that of DOCKER_HOST, else our own (`engine.sh`), stopped after the tests."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.listener.sandbox import ContainerLimits, Containers

IMAGE = "steno-lab/kernel:1"
HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / ".lab" / "containers"
_NEEDS = "these tests need a Docker engine: `apt-get install docker.io tini mmdebstrap`, as root"
_PROGRAMS = ("dockerd", "docker", "docker-init", "mmdebstrap")

Make = Callable[..., Containers]


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """The engine's address; it has the image."""
    given = os.environ.get("DOCKER_HOST", "")
    if given and _has_image(given):
        yield given
        return
    if os.geteuid() != 0 or not all(map(shutil.which, _PROGRAMS)):
        pytest.fail(_NEEDS) if os.environ.get("STENO_REQUIRE_LAB") == "1" else pytest.skip(_NEEDS)
    began = not (FOLDER / "dockerd.pid").exists()
    subprocess.run([HERE / "engine.sh", "up", FOLDER], check=True, stdin=subprocess.DEVNULL)
    yield f"unix://{FOLDER}/docker.sock"
    if began:
        subprocess.run([HERE / "engine.sh", "down", FOLDER], check=True, stdin=subprocess.DEVNULL)


def _has_image(url: str) -> bool:
    sandbox = Containers(ContainerLimits(image=IMAGE), url=url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the SDK leaks the socket of an engine that is not there
        well = not sandbox.health().problems
        sandbox.close()
        gc.collect()
    return well


@pytest.fixture(scope="session")
def make(engine: str) -> Iterator[Make]:
    """`make(kind, size=, **limits)`: a sandbox of small limits; all are closed in the end."""
    made: list[Containers] = []

    def make(kind: type[Containers] = Containers, *, size: int = 0, name: str = "tests", **limits: Any) -> Containers:
        small = {"image": IMAGE, "memory": 1 << 30, "tmp": 256 << 20, "pids": 128}
        made.append(kind(ContainerLimits(**(small | limits)), url=engine, size=size, name=name))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def cells(make: Make) -> Containers:
    """What most tests use: small limits, one container ahead of need."""
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
