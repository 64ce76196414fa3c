"""A Docker engine for tests: that of DOCKER_HOST if it has the image, else our own (`engine.sh`), stopped by the last
process that used it.
"""

from __future__ import annotations

import fcntl
import gc
import os
import select
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

IMAGE = "steno-lab/kernel:1"
HERE = Path(__file__).parent
FOLDER = (HERE.parents[2] / ".lab").resolve() / "containers"  # runc takes no links
_NEEDS = "these tests need a Docker engine: `apt-get install docker.io tini g++ python3`, as root"
_PROGRAMS = ("dockerd", "docker", "docker-init", "/usr/bin/g++", "/usr/bin/python3")


class MortalEngine:
    """A Docker engine that a test may kill, with the image of another engine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"unix://{folder}/docker.sock"

    def start(self, image_of: str) -> None:
        """Start it, again if it was killed. `image_of`: the address of an engine that has the image."""
        subprocess.run([HERE / "engine.sh", "up", self.folder, image_of], check=True, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        pid = int((self.folder / "dockerd.pid").read_text())
        ended = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        select.select([ended], [], [])
        os.close(ended)
        # Its containerd died with it, but the next engine takes a dead process that nobody waited for as running.
        (self.folder / "exec" / "containerd" / "containerd.pid").unlink()

    def remove(self) -> None:
        subprocess.run([HERE / "engine.sh", "down", self.folder], check=True, stdin=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def mortal(engine: str) -> Iterator[MortalEngine]:
    """An engine of its own for one test, started."""
    _expect_means()
    made = MortalEngine(Path(tempfile.mkdtemp(prefix="steno-engine-")))
    made.start(engine)
    yield made
    made.start(engine)
    made.remove()


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """The engine's address; it has the image."""
    given = os.environ.get("DOCKER_HOST", "")
    if given and _has_image(given):
        yield given
        return
    _expect_means()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "users").open("w") as users, (FOLDER / "changing").open("w") as changing:
        fcntl.flock(changing, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        subprocess.run([HERE / "engine.sh", "up", FOLDER], check=True, stdin=subprocess.DEVNULL)
        fcntl.flock(changing, fcntl.LOCK_UN)
        yield f"unix://{FOLDER}/docker.sock"
        fcntl.flock(changing, fcntl.LOCK_EX)
        with suppress(BlockingIOError):  # another process uses it
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            subprocess.run([HERE / "engine.sh", "down", FOLDER], check=True, stdin=subprocess.DEVNULL)


def _expect_means() -> None:
    """Skip or fail where no engine can be started."""
    if os.geteuid() != 0 or not all(map(shutil.which, _PROGRAMS)):
        pytest.fail(_NEEDS) if os.environ.get("STENO_REQUIRE_LAB") == "1" else pytest.skip(_NEEDS)


def _has_image(url: str) -> bool:
    from steno.engine.listener.sandbox import ContainerLimits, Containers

    sandbox = Containers(ContainerLimits(image=IMAGE), url=url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the SDK leaks the socket of an engine that is not there
        well = not sandbox.health().problems
        sandbox.close()
        gc.collect()
    return well
