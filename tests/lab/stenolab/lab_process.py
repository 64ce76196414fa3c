"""A lab that a person brought up, and the process that keeps it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from stenotest.waiting import StillWaiting, wait

from stenolab.environment import ensure
from stenolab.lab import PACE, PATIENCE, Lab
from stenolab.versions import LAB, REPOSITORY

PROJECT = "lab"
FLEET = "lab-fleet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Where a lab that is up can be found."""

    version: str
    pid: int
    url: str
    token: str
    cloud: str
    config: str  # dstack's configuration file for it

    def exports(self) -> str:
        """The variables of a shell that uses it; `eval` them."""
        variables = {"STENO_PROVIDER": "dstack", "STENO_DSTACK_CONFIG": self.config, "STENO_LAB_CLOUD": self.cloud}
        return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def up(version: str, *, real_time: bool) -> Kept:
    """The lab of that version, brought up (empty) if it is not up already.

    Args:
        real_time: dstack's own pauses, under which a cold run takes more than a minute.

    Raises:
        EnvironmentUnavailable: the server cannot be installed.
        StillWaiting: it does not come up; the keeper's log says why.
    """
    running = find(version)
    if running is not None:
        return running
    ensure(version)
    folder = _folder(version)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with (folder / "keeper.log").open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, str(LAB / "lab.py"), "keep", version, *(["--real-time"] if real_time else [])],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def is_there() -> Kept | None:
        if keeper.poll() is not None:
            raise StillWaiting(f"the lab did not come up, see {folder / 'keeper.log'}")
        return find(version)

    return wait(is_there, what=f"the lab, log {folder / 'keeper.log'}")


def down(version: str) -> bool:
    """Takes it down; false if it was not up."""
    kept = find(version)
    if kept is None:
        return False
    os.kill(kept.pid, signal.SIGTERM)
    wait(lambda: find(version) is None or None, what="the lab to go down")
    return True


def find(version: str) -> Kept | None:
    """The lab that is up."""
    try:
        kept = Kept(**json.loads(_note(version).read_text()))
        os.kill(kept.pid, 0)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return kept


def keep(version: str, *, real_time: bool) -> None:
    """Brings the lab up and holds it until SIGTERM."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    speed = 1.0 if real_time else None
    lab = Lab(version, _folder(version), pace=speed or PACE, patience=speed or PATIENCE)
    with contextlib.closing(lab):
        lab.project(PROJECT)
        lab.fleet(PROJECT, FLEET)
        kept = Kept(
            version=version,
            pid=os.getpid(),
            url=lab.url,
            token=lab.token,
            cloud=f"http://127.0.0.1:{lab.cloud.port}",
            config=str(lab.home(PROJECT) / ".dstack" / "config.yml"),
        )
        draft = _note(version).with_suffix(".draft")
        draft.write_text(json.dumps(asdict(kept)))
        draft.rename(_note(version))
        over.wait()
    _note(version).unlink()


def _folder(version: str) -> Path:
    return REPOSITORY / ".lab" / f"up-{version}"


def _note(version: str) -> Path:
    return _folder(version) / "kept.json"
