"""A service asks root to choose before it runs commands for whoever is on the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from steno.engine.errors import NotConfigured

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve


def test_root_must_name_who_may_use_a_service_that_runs_commands(
    served: Serve, town: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user of the machine could run commands as root; in a container of one's own that is meant."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(NotConfigured, match=r"STENO_API_LOOPBACK=open .*STENO_API_LOOPBACK=token"):
        served(town, api__loopback=None)
    assert served(town, api__loopback="open").client.get("/api/session").json()["via"] == "loopback"
    assert served(town, api__loopback=None, provider="dstack").client.get("/healthz").status_code == 200
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert served(town, api__loopback=None).client.get("/api/session").json()["via"] == "loopback"
