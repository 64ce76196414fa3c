"""The shapes of dstack's answers, held against the recordings."""

import json
from pathlib import Path
from typing import Any

import pytest
from stenotest.dstack_history import run_item

from steno.engine.providers.dstack.reading import FLEET_SECRETS, RUN_SECRETS
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace

TRACES = Path(__file__).parents[3] / "traces"


def leaves(value: Any, at: str = "") -> list[tuple[str, Any]]:
    """Every value of an item with its path as shapes write it."""
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in leaves(inner, f"{at}.{key}" if at else key)]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in leaves(inner, f"{at}[]")]
    return [(at, value)]


def under(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith((f"{root}.", f"{root}[")) for root in roots)


@pytest.mark.parametrize("version", ["dstack-0.19.37", "dstack-0.22.5"])
def test_every_value_that_looks_like_a_credential_is_declared_secret(version: str) -> None:
    """Keys named like secrets, in every answer of the recordings."""
    suspects = ("env", "password", "token", "private", "ssh_key", "identity_file", "registry_auth")
    for path in sorted((TRACES / version).glob("*.zst")):
        for _, poll in open_trace(path):
            shape = None if poll is None else READINGS.shape(poll.path, poll.req)
            if poll is None or poll.body is None or shape is None or shape.kind not in ("run", "fleet"):
                continue
            body = json.loads(poll.body)
            for item in body if isinstance(body, list) else [body]:
                for where, value in leaves(item):
                    if value is not None and set(where.replace("[]", "").split(".")) & set(suspects):
                        assert under(where, RUN_SECRETS if shape.kind == "run" else FLEET_SECRETS), where


def test_what_moves_at_every_poll_is_volatile() -> None:
    """`cost` and `last_processed_at`, wherever they stand."""
    shape = READINGS.shape("/api/runs/list", b"{}")
    assert shape is not None
    moving = {where for where, _ in leaves(run_item()) if where.rpartition(".")[2] in ("cost", "last_processed_at")}
    assert moving == set(shape.volatile)


def test_an_unknown_endpoint_has_no_shape() -> None:
    """Its body is stored whole."""
    assert READINGS.shape("/api/project/p/logs/poll", b"{}") is None
