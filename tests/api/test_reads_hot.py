"""The hot read: one run from its stored bytes, without the router, through rebuilds, and never older than a write."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stenotest.records import read_models_file

from cli.wiring.app import App
from cli.wiring.http_service import assembled
from engine.providers.registry import load_settings
from projections.api.hot import HotReads


def test_a_run_by_its_id_is_answered_without_the_router_and_nothing_else_is(town: Path) -> None:
    """Nothing is ready until the file is open, and for names and longer paths."""
    app, nobody = App(), town.parent / "nobody"
    app.settings = load_settings(
        flags={"record": str(town)}, environ={}, cwd=nobody, home=nobody, config=nobody, data=nobody
    )
    service = assembled(app, town)

    async def asked() -> None:
        service.projector.start()
        ready = HotReads(service).ready
        with service.pool.now() as look:
            rows = [(run.run_id, run.name, look.view.store.runs.answer_of(run.run_id)) for run in look.view.runs()]
        path = f"/api/runs/{rows[0][0]}"
        async with asyncio.timeout(120):
            while ready(path) is None:
                await asyncio.sleep(0.01)
        for run_id, _, stored in (*rows, *rows):
            found = ready(f"/api/runs/{run_id}")
            assert found is not None
            status, head, body = found.answer(None)
            assert (status, body) == (200, stored)
            tag = dict(line.split(b": ") for line in head.split(b"\r\n") if line)[b"etag"]
            status, unchanged, body = found.answer(tag)
            assert (status, body) == (304, b"")
            assert head.startswith(unchanged.removesuffix(b"\r\n"))
            await asyncio.sleep(0.005)  # over several snapshots
        for other in (f"/api/runs/{rows[0][1]}", f"{path}/timeline", "/api/runs/", "/api/runs"):
            assert ready(other) is None

    try:
        asyncio.run(asked())
    finally:
        service.closing.close()
        service.projector.stop()
        service.pool.close()


def test_reads_go_on_while_the_read_models_are_built_anew(served: Callable[..., Any], town: Path) -> None:
    """`steno rebuild` puts another file in place: every read in between is answered, and with the same bytes."""
    client = served(town).client
    path = f"/api/runs/{client.get('/api/runs').json()['runs'][0]['run_id']}"
    right = client.get(path).content
    over = threading.Event()

    def rebuild() -> None:
        try:
            for _ in range(2):
                subprocess.run(
                    [sys.executable, "-m", "cli.main", "rebuild", "--record", str(town)],
                    env={"PATH": os.environ["PATH"], "HOME": str(town.parent), "LANG": "C.UTF-8"},
                    cwd=town.parent,
                    capture_output=True,
                    check=True,
                )
        finally:
            over.set()

    file = read_models_file(town).resolve()
    thread = threading.Thread(target=rebuild)
    thread.start()
    try:
        while not over.is_set():
            answer = client.get(path)
            assert (answer.status_code, answer.content) == (200, right)
    finally:
        thread.join()
    assert read_models_file(town).resolve() != file
    for _ in range(20):
        answer = client.get(path)
        assert (answer.status_code, answer.content) == (200, right)
