"""Kernels on `local` run in containers of this host, or not at all; a setting runs one's own as the service's user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from stenotest.kernels import asked
from stenotest.service import bearer, token

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve, Served, StartSteno

SUBMIT = "/api/amd/submit"


def submitted(service: Served, headers: dict[str, str]) -> tuple[int, Any]:
    """Status and headers of the answer; a stream is left at once."""
    with service.client.stream("POST", SUBMIT, json=asked(), headers=headers) as answer:
        if answer.status_code >= 400:
            answer.read()
            return answer.status_code, answer.json()
        return answer.status_code, answer.headers


@pytest.mark.parametrize("role", ["submit", "admin"])
def test_without_an_engine_nobody_submits_a_kernel(
    served: Serve, empty_record: Path, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 with what to install: by a token, by its session, and from this machine. Nothing is in the record."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    headers = bearer(token(empty_record, role))
    service = served(empty_record)
    status, body = submitted(service, headers)
    assert status == 503
    assert "apt-get install docker.io" in body["detail"]
    login = service.client.post("/api/session", json={"token": headers["Authorization"].removeprefix("Bearer ")})
    assert login.status_code == 200
    assert submitted(service, {})[0] == 503, "a session is its token"
    service.client.cookies.clear()
    assert submitted(service, {})[0] == 503
    offered = service.client.get("/api/amd/problems").json()
    assert (offered["isolated"], offered["refused"]) == (True, body["detail"]), "the page offers what can be submitted"
    assert service.client.get("/api/runs").json()["runs"] == []


def test_who_runs_their_own_code_is_told(served: Serve, empty_record: Path) -> None:
    """By a header of the answer, by what is published beside the problems, and in the description of the API."""
    service = served(empty_record, kernel__unsafe_local="true")
    status, headers = submitted(service, {})
    assert (status, headers["steno-isolation"]) == (200, "none")
    offered = service.client.get("/api/amd/problems").json()
    assert (offered["isolated"], offered["refused"]) == (False, None)
    text = service.client.get("/openapi.json").json()["paths"][SUBMIT]["post"]["description"]
    assert "not isolated" in text


def test_a_provider_without_containers_is_refused(served: Serve, empty_record: Path) -> None:
    """Whoever asks, in one line, with nothing in the record; what is published says so before anybody asks."""
    why = "the provider slurm cannot run kernels: its tasks have no containers; use another provider"
    admin = bearer(token(empty_record, "admin"))
    service = served(empty_record, provider="slurm", kernel__unsafe_local="true")
    for headers in ({}, admin):
        status, body = submitted(service, headers)
        assert (status, body["detail"]) == (403, why)
    assert service.client.get("/api/amd/problems").json()["refused"] == why
    assert service.client.get("/api/runs").json()["runs"] == []


def test_a_setting_lets_tokens_submit(served: Serve, empty_record: Path) -> None:
    """Whoever sets it knows."""
    headers = bearer(token(empty_record, "submit"))
    service = served(empty_record, kernel__unsafe_local="true")
    assert submitted(service, headers)[0] == 200, submitted(service, headers)


@pytest.mark.parametrize(("roles", "words", "warned"), [(("read",), (), False), (("submit",), (), True)])
def test_a_service_warns_if_others_may_run_commands_here(
    steno_served: StartSteno, empty_record: Path, roles: tuple[str, ...], words: tuple[str, ...], warned: bool
) -> None:
    """At its start, once."""
    for role in roles:
        bearer(token(empty_record, role))
    process = steno_served(empty_record, *words)
    assert process.get("/healthz").status_code == 200
    warnings = [line for line in process.out if " WARNING " in line and "not isolated" in line]
    assert len(warnings) == int(warned)
