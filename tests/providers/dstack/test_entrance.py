"""The way into a run for a person, by what dstack says of the run."""

from typing import Any

import pytest
from stenotest.dstack_history import job, run_item, submission

from steno.engine.providers.dstack.ssh import entrance

SERVER = "https://dstack.example.org"


def task(*ports: int) -> dict[str, Any]:
    run = run_item("notebook", "running", job(submission("running")))
    run["jobs"][0]["job_spec"]["app_specs"] = [{"port": port, "app_name": f"app-{port}"} for port in ports]
    return run


@pytest.mark.parametrize(
    ("ports", "port", "commands"),
    [
        ((8888,), 8888, ("dstack attach notebook -p 8888:8888",)),
        ((8888,), None, ("dstack attach notebook",)),
        ((), 6006, ("dstack attach notebook", "ssh -N -L 6006:127.0.0.1:6006 notebook")),
        ((8888,), 6006, ("dstack attach notebook", "ssh -N -L 6006:127.0.0.1:6006 notebook")),
    ],
)
def test_a_port_that_the_task_names_is_mapped_by_dstack_another_by_ssh(
    ports: tuple[int, ...], port: int | None, commands: tuple[str, ...]
) -> None:
    """dstack's client refuses to map a port that the task does not name."""
    way = entrance(task(*ports), "notebook", port, SERVER)
    assert way.commands == commands
    assert way.address == (None if port is None else f"http://127.0.0.1:{port}")
    assert way.inside == "ssh notebook"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("/proxy/services/main/llm/", f"{SERVER}/proxy/services/main/llm/"),
        ("https://llm.gateway.example.org", "https://llm.gateway.example.org"),
    ],
)
def test_a_service_is_reached_at_its_own_address(url: str, address: str) -> None:
    """A path belongs to the server's own proxy, a whole address to a gateway."""
    way = entrance({**task(), "service": {"url": url}}, "llm", 8000, SERVER)
    assert (way.address, way.commands) == (address, ())


def test_what_is_not_as_known_gives_dstacks_own_command() -> None:
    for odd in ({}, {"jobs": None}, {"service": {"url": None}}, {"jobs": [{"job_spec": {"app_specs": "none"}}]}):
        assert entrance(odd, "a b", None, SERVER).commands == ("dstack attach 'a b'",)
