"""`steno serve` as a process: it is ready, it answers, it ends in order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Serve


def test_the_service_answers(served: Serve, town: Path) -> None:
    """A first look."""
    here = served(town)
    answer = here.client.get("/api/session")
    assert answer.json() == {"name": "loopback", "role": "admin", "via": "loopback"}
    assert here.client.get("/api/runs").status_code == 200
