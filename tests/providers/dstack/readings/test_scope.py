"""Polls are routed by path and request alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.providers.registry import READINGS


def scope(path: str, **req: Any) -> Any:
    return READINGS.scope(path, json.dumps(req).encode())


def test_a_list_names_its_project_and_filter() -> None:
    """Project from the request, page and limit too."""
    asks = scope("/api/runs/list", project_name="p", only_active=True, limit=50, prev_run_id="x")
    assert (asks.source, asks.endpoint, asks.only_active, asks.filtered) == ("dstack/p", "runs/list", True, True)
    assert (asks.limit, asks.page_after) == (50, "x")


@pytest.mark.parametrize(
    ("path", "req", "source", "endpoint"),
    [
        ("/api/project/p/runs/get", {"run_name": "a"}, "dstack/p", "runs/get"),
        ("/api/project/p/fleets/list", {}, "dstack/p", "fleets/list"),
        ("/api/instances/list", {"project_names": ["p"]}, "dstack/p", "instances/list"),
        ("/api/instances/list", {"project_names": ["p", "q"]}, "dstack", "instances/list"),
        ("/api/runs/list", {}, "dstack", "runs/list"),
        ("/api/events/list", {"within_projects": ["u"]}, "dstack", "events/list"),
        ("/api/project/p/logs/poll", {}, "dstack/p", "other"),
        ("/nothing/we/know", {}, "dstack", "other"),
        ("/local/runs/list", {"project_name": "local"}, "local/local", "runs/list"),
        ("slurm:squeue -h", {}, "slurm", "other"),
    ],
)
def test_each_path_has_its_source_and_endpoint(path: str, req: dict[str, Any], source: str, endpoint: str) -> None:
    """`dstack/<project>`, or the provider alone where no one project is named."""
    assert (READINGS.source(path, json.dumps(req).encode()), scope(path, **req).endpoint) == (source, endpoint)


@pytest.mark.parametrize(
    ("req", "filtered"),
    [({}, False), ({"only_active": False}, False), ({"username": "u"}, True), ({"repo_id": "r"}, True)],
)
def test_only_an_unfiltered_list_can_show_an_absence(req: dict[str, Any], filtered: bool) -> None:
    """Anything that narrows beside the project is a filter."""
    assert scope("/api/runs/list", **req).filtered is filtered


@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
def test_a_request_of_any_bytes_has_a_scope(req: bytes) -> None:
    """Never raises."""
    assert READINGS.scope("/api/runs/list", req).endpoint == "runs/list"


@pytest.mark.parametrize(
    ("path", "status", "body", "counts"),
    [
        ("/api/runs/list", 200, [], True),
        ("/api/runs/list", 200, [{"id": "a"}], True),
        ("/api/runs/list", 200, [{"odd": 1}], True),
        ("/api/runs/list", 200, {"detail": "x"}, False),
        ("/api/runs/list", 200, "<html>", False),
        ("/api/runs/list", 200, [1], False),
        ("/api/runs/list", 204, [], True),
        ("/api/runs/list", 500, "Internal Server Error", False),
        ("/api/runs/list", 401, {"detail": "Not authenticated"}, False),
        ("/api/project/p/runs/get", 200, {"id": "a"}, True),
        ("/api/project/p/runs/get", 200, [], False),
        ("/api/project/p/runs/get", 400, {"detail": [{"code": "resource_not_exists", "msg": ""}]}, True),
        ("/api/project/p/runs/get", 400, {"detail": {"code": "resource_not_exists"}}, True),
        ("/api/project/p/runs/get", 400, {"detail": "resource_not_exists"}, True),
        ("/api/project/p/runs/get", 400, {"detail": [{"code": "other", "msg": "resource_not_exists?"}]}, False),
        ("/api/project/p/runs/get", 500, {"detail": [{"code": "resource_not_exists"}]}, False),
        ("/api/project/p/logs/poll", 200, "anything", True),
        ("/api/runs/list", None, None, False),
    ],
)
def test_an_answer_is_a_2xx_of_its_shape_or_resource_not_exists(
    path: str, status: int | None, body: Any, counts: bool
) -> None:
    """Everything else is a failure of the source, an HTML page with status 200 included."""
    text = None if body is None else json.dumps(body).encode()
    assert READINGS.answered(path, b"{}", status, text) is counts


def test_the_list_of_machines_has_pages_of_its_own() -> None:
    """A thousand by default, behind `prev_id`; what narrows it shows no absence; this host's are asked alike."""
    asks = scope("/api/instances/list", project_names=["p"], prev_id="x", prev_created_at="2026-01-01")
    assert (asks.limit, asks.page_after, asks.filtered) == (1000, "x", False)
    assert scope("/api/instances/list", project_names=["p"], limit=100).limit == 100
    assert scope("/api/instances/list", project_names=["p"], fleet_ids=["f"]).filtered
    local = scope("/local/instances/list", project_names=["here"], limit=100)
    assert (local.source, local.project, local.endpoint) == ("local/here", "here", "instances/list")


@pytest.mark.parametrize("path", ["/api/instances/list", "/local/instances/list"])
def test_a_list_of_machines_is_a_list_of_objects(path: str) -> None:
    """As a list of runs."""
    assert READINGS.answered(path, b"{}", 200, b'[{"id": "a"}]')
    assert not READINGS.answered(path, b"{}", 200, b'{"id": "a"}')
