"""Reads while the read models are rebuilt."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stenotest import steno_process
from stenotest.records import read_models_file


def test_reads_go_on_while_the_read_models_are_rebuilt(served: Callable[..., Any], town: Path) -> None:
    """`steno rebuild` puts another file in place: every read in between is answered, and with the same bytes."""
    client = served(town).client
    path = f"/api/runs/{client.get('/api/runs').json()['runs'][0]['run_id']}"
    right = client.get(path).content
    over = threading.Event()

    def rebuild() -> None:
        try:
            for _ in range(2):
                steno_process.run(
                    ["rebuild", "--record", str(town)],
                    env={"PATH": os.environ["PATH"], "HOME": str(town.parent), "LANG": "C.UTF-8"},
                    cwd=town.parent,
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
            time.sleep(0.005)  # the processor is the rebuild's
    finally:
        thread.join()
    assert read_models_file(town).resolve() != file
    for _ in range(20):
        answer = client.get(path)
        assert (answer.status_code, answer.content) == (200, right)
