"""A run is requested in one way, whether a command line, an HTTP client or the kernels' machines want it."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from stenotest.service import isolated

from steno.cli.wiring.session import session
from steno.cli.wiring.task import described
from steno.engine.errors import Conflict, RefusedByPolicy
from steno.engine.kernel.warm_provider.kind import KIND
from steno.engine.live.journal import Journal
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.engine.providers.task import Completed
from steno.engine.runtime.warm_machines import WarmMachines
from steno.engine.state.kernel_mark import KERNELS
from steno.engine.submit.requests import submit
from steno.events import types

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve

SETTINGS = {"provider": "local", "profile": "batch", "kernel__warm": "on", "api__loopback": "open"}
TASK = {
    "type": "task",
    "name": "one",
    "commands": ["true"],
    "env": {"TOKEN": "hush", "N": "1"},
    "resources": {"cpu": "1.."},
    "max_duration": "1h",
}
OF_THE_SENDER = {"run_id", "submitter", "base"}


def requested(record: Path, provider: str = "local") -> dict[str, Any]:
    """The only request of a run in the record, with its secrets in clear, without what differs by sender."""
    with isolated(record).reading() as opened:
        (request,) = (
            stored.data
            for stored in opened.read(types={"RunRequested"})
            if isinstance(stored.data, types.RunRequested) and stored.data.provider == provider
        )
        fields = msgspec.structs.asdict(request)
        fields["configuration"] = json.loads(opened.vault.reveal(request.configuration))
    return {name: value for name, value in fields.items() if name not in OF_THE_SENDER}


def by_command_line(record: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    """As `steno submit`, which gives up at once: nothing is started."""
    monkeypatch.setattr("steno.cli.wiring.session.OUTCOME_TIMEOUT", 0)
    app = isolated(record, **SETTINGS, **settings)
    file, run_id = folder / "task.yml", app.ids.new()
    file.write_text(json.dumps(TASK))
    task = described(file=file, command=(), flags={}, settings=app.settings, run_id=run_id)
    with app.writing() as opened, session(app, opened, "local") as here, pytest.raises(Conflict, match="has not acted"):
        here.submit(task, run_id)


def by_kernels(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the recorder of the kernels, for a kernel that waits; its listener's task is ours."""
    monkeypatch.setattr("steno.engine.runtime.warm_machines.listener_task", lambda *_: dict(TASK))
    app = isolated(record, **SETTINGS)
    with app.writing() as opened:
        live = LiveWorld(READINGS, keep=True)
        live.open(opened)
        kernel = Completed(name="add", configuration={"type": "task", "commands": ["judge"]})
        about = {"provider": KERNELS, "project": KIND.project(app.settings), "submitter": "ada"}
        submit(Journal(opened), run_id=app.ids.new(), task=kernel, **about)  # type: ignore[arg-type]
        live.catch_up()
        with closing(WarmMachines(app, opened, live)) as machines:
            machines.step()


def test_all_three_ways_request_equal_runs(
    served: Serve, tmp_path: Path, empty_record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same task becomes the same event: profile, values, secrets, name and project; only who sent it differs."""
    first_record, two = tmp_path / "one.db", tmp_path / "two.db"
    by_command_line(first_record, tmp_path, monkeypatch)
    by_kernels(two, monkeypatch)
    assert served(empty_record, **SETTINGS).client.post("/api/runs", json={"configuration": TASK}).status_code == 202
    first = requested(first_record)
    assert first["configuration"]["idle_duration"] == "15m", "the profile of the settings"
    assert first["configuration"]["env"] == TASK["env"]
    assert requested(two) == first
    assert requested(empty_record) == first


def test_both_senders_are_refused_alike(
    served: Serve, tmp_path: Path, empty_record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the budget, in the same words; nothing is requested, and no secret is kept."""
    limits = {"budget__total": "0.01", "local__price": "5"}
    with pytest.raises(RefusedByPolicy) as refused:
        by_command_line(tmp_path / "one.db", tmp_path, monkeypatch, **limits)
    answer = served(empty_record, **SETTINGS, **limits).client.post("/api/runs", json={"configuration": TASK})
    assert (answer.status_code, answer.json()["detail"]) == (403, str(refused.value))
    for record in (tmp_path / "one.db", empty_record):
        with isolated(record).reading() as opened:
            assert list(opened.read(types={"RunRequested"})) == []
            assert opened.vault.owners() == ()
