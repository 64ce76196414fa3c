"""Fixtures for the dstack provider: one connected to a project of a genuine server, and servers that misbehave."""

import socket
from collections.abc import Callable, Iterator

import pytest
from stenolab.faulty_server import Answers, FaultyServer
from stenolab.lab import Lab

from steno.engine.providers.dstack.provider import DstackProvider
from steno.engine.providers.dstack.settings import address
from steno.events.clock import RandomIds, SystemClock

LOADED_S = 60.0
"""For one answer, which takes a fraction of a second on a machine that is not busy."""


@pytest.fixture
def connect() -> Iterator[Callable[..., DstackProvider]]:
    """`connect(lab, project, token=…, url=…)`: a provider, closed after the test."""
    providers: list[DstackProvider] = []

    def made(
        lab: Lab | None, project: str, *, token: str | None = None, url: str | None = None, fleet_nodes: int = 4
    ) -> DstackProvider:
        where = address(url or (lab.url if lab else ""), token or (lab.token if lab else "nobody"), project)
        providers.append(
            DstackProvider(where, clock=SystemClock(), ids=RandomIds(), fleet_nodes=fleet_nodes, read_timeout=LOADED_S)
        )
        return providers[-1]

    yield made
    for provider in providers:
        provider.close()


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where connections are refused: its port is taken by a socket that never listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def bad() -> Iterator[Callable[[Answers], FaultyServer]]:
    made: list[FaultyServer] = []

    def start(answers: Answers) -> FaultyServer:
        made.append(FaultyServer(answers))
        return made[-1]

    yield start
    for server in made:
        server.close()
