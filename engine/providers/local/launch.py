"""Starts the supervisor of a run apart from this process: it survives us and our terminal."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from engine.errors import ProviderError
from engine.providers.local.store import ClaimedRun
from engine.providers.local.task import LocalTask

_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from engine.providers.local.supervisor import main; main()"
_IMPORT_FOLDER = str(Path(__file__).parents[3])
_TIMEOUT = 30  # seconds; a start takes tens of milliseconds


def launch(folder: Path, gate: Path, taken: ClaimedRun, task: LocalTask, output_limit: int) -> None:
    """Start a supervisor that holds the locks; returns when `started.json` is durable and the command was tried.

    It starts a machine to be kept too, so that both exist or neither; a run that waits for its machine is only
    announced. The plan has the secrets, so it goes through a pipe: never a file, an argument or the environment.

    Raises ProviderError if it did not start; the same submission may be made again.
    """
    machine = taken.accepted.machine
    plan = {
        **msgspec.to_builtins(task),
        "output_limit": output_limit,
        "boot": machine.boot if taken.machine is None and machine is not None else 0,
        "machine": None if taken.machine is None else str(taken.machine),
        "busy": taken.locks.get("busy"),
        "life": taken.locks.get("life"),
        "gate": str(gate),
    }
    complaints = os.open(folder / "supervisor.err", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            # isolated and without site: the user's PYTHON* or .pth files cannot change or slow it
            [sys.executable, "-I", "-S", "-c", _PROGRAM, _IMPORT_FOLDER, str(folder), str(taken.locks["run"])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            cwd="/",
            env={name: value for name in ("LD_LIBRARY_PATH",) if (value := os.environ.get(name))},
            start_new_session=True,
            pass_fds=tuple(taken.locks.values()),
        )
        try:
            said, _ = process.communicate(json.dumps(plan).encode(), timeout=_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise ProviderError(
                f"the supervisor of {folder.name} does not answer; see {folder / 'supervisor.err'}"
            ) from None
    except OSError as error:
        raise ProviderError(f"cannot start a process on this machine: {error.strerror}") from None
    finally:
        os.close(complaints)
    # if the supervisor died after announcing, the next poll reports the run's end
    if said != b"started" and not (folder / "started.json").exists():
        why = (folder / "supervisor.err").read_text(errors="replace").strip().splitlines()
        raise ProviderError(f"the supervisor of {folder.name} did not start: {why[-1] if why else 'no reason given'}")
