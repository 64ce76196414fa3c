"""The hot read: one run from its stored bytes, without the router, through rebuilds, and never older than a write."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from stenotest.records import read_models_file

from cli.wiring.app import App
from cli.wiring.http_service import assembled
from engine.providers.registry import load_settings
from projections.api.hot import HotReads


async def router(scope: Any, receive: Any, send: Any) -> None:
    """Stands where the router does, and is seen to be asked."""
    await send({"type": "http.response.start", "status": 418, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_a_run_by_its_id_is_answered_without_the_router_and_nothing_else_is(town: Path) -> None:
    """The router is asked until the file is open, and for names, parameters, other methods and longer paths."""
    app, nobody = App(), town.parent / "nobody"
    app.settings = load_settings(
        flags={"record": str(town)}, environ={}, cwd=nobody, home=nobody, config=nobody, data=nobody
    )
    service = assembled(app, town)

    async def asked() -> None:
        service.projector.start()
        transport = httpx.ASGITransport(HotReads(service, router))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            with service.pool.now() as look:
                rows = [(run.run_id, run.name, look.view.row(run.run_id).object) for run in look.view.runs()]
            path = f"/api/runs/{rows[0][0]}"
            async with asyncio.timeout(120):
                while (await client.get(path)).status_code == 418:
                    await asyncio.sleep(0.01)
            for run_id, _, stored in (*rows, *rows):
                answer = await client.get(f"/api/runs/{run_id}")
                assert (answer.status_code, answer.content) == (200, stored)
                again = await client.get(f"/api/runs/{run_id}", headers={"If-None-Match": answer.headers["etag"]})
                assert (again.status_code, again.content) == (304, b"")
                head = await client.head(f"/api/runs/{run_id}")
                assert (head.status_code, head.content) == (200, b"")
                assert head.headers == answer.headers
                await asyncio.sleep(0.005)  # over several snapshots
            for other in (f"/api/runs/{rows[0][1]}", f"{path}?at=1", f"{path}/timeline", "/api/runs/", "/api/runs"):
                assert (await client.get(other)).status_code == 418
            assert (await client.post(path)).status_code == 418

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
