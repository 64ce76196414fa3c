"""Runs the server: `python -m stenolab.server PORT CLOUD_PORT PACE PATIENCE`, the rest from the environment."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Any

from stenolab.child import leave_with_parent
from stenolab.server import offline, pace, tunnel


def main(port: int, cloud_port: int, *, pauses: float, patience: float) -> None:
    """Serves on loopback until SIGTERM, or until the parent leaves."""
    leave_with_parent(lambda: None)
    os.environ.update(DSTACK_SERVER_HOST="127.0.0.1", DSTACK_SERVER_PORT=str(port))
    listener = tunnel.bind(port)
    offline.install(f"http://127.0.0.1:{cloud_port}")
    tunnel.install(cloud_port)
    pace.install(pace=pauses, patience=patience)
    # After all of the above: the application reads what they replace when it is imported.
    uvicorn: Any = importlib.import_module("uvicorn")
    app = importlib.import_module("dstack._internal.server.main").app
    # What was imported stays: to look through it again and again takes a tenth of the server's time.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), pauses=float(sys.argv[3]), patience=float(sys.argv[4]))
