"""The listener as a machine starts it: sent in a variable, unpacked, told to stop. No container engine is needed."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import msgspec
import pytest
from stenotest.waiting import LIMIT_S

from steno.engine.kernel.kept_machine import LISTENER, _files, packed, program_of

TOKEN = "t" * 40
OPTIONS = {"name": "sent", "token": TOKEN, "image": "none", "memory": 1 << 30, "cpus": 1.0}


def sent(folder: Path, **options: object) -> subprocess.Popen[str]:
    """A listener that has no container engine; `folder` is its temporary folder."""
    files = (*_files(), ("listener.json", msgspec.json.encode(OPTIONS | options)))
    return subprocess.Popen(
        [sys.executable, "-c", program_of("steno.engine.listener", LISTENER)],
        env={
            "PATH": "/usr/bin:/bin",
            "TMPDIR": str(folder),
            "PYTHONPATH": str(folder.parent),  # of what a test puts there
            "DOCKER_HOST": f"unix://{folder}/nowhere.sock",
            LISTENER: packed(files),
        },
        stdout=subprocess.PIPE,
        text=True,
    )


def handles_sigterm(process: subprocess.Popen[str]) -> bool:
    """True if it has a handler of its own by now."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (caught,) = re.findall(r"SigCgt:\s+([0-9a-f]+)", status)
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def test_a_stopped_listener_answers_any_json_and_leaves_no_folder(tmp_path: Path) -> None:
    """JSON that is nested too deep gets its 400, and the connection goes on for the next."""
    with sent(tmp_path) as process:
        assert process.stdout is not None
        url = next(matched[1] for line in process.stdout if (matched := re.search(r"listening at (\S+)", line)))
        assert list(tmp_path.iterdir())
        try:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            with httpx.Client(base_url=url, headers=headers, timeout=LIMIT_S, trust_env=False) as client:
                for body in (b"[" * 50_000 + b"]" * 50_000, b'{"job":' * 50_000 + b"1" + b"}" * 50_000):
                    assert client.post("/execute", content=body).status_code == 400
        finally:
            process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("waits", [0.01, 600.0], ids=["gives up", "is stopped while it waits"])
def test_a_listener_that_never_listened_leaves_no_folder(tmp_path: Path, waits: float) -> None:
    """It gives up without a container engine, or is told to stop before there is one."""
    with sent(tmp_path, waits=waits) as process:
        assert process.stdout is not None
        if waits > 1:
            while not handles_sigterm(process) and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert list(tmp_path.iterdir()) == []


def test_a_listener_without_numpy_ends_at_once_and_says_so(tmp_path: Path) -> None:
    """It would wait for a container engine; numpy does not come by waiting."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['numpy'] = None\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    with sent(folder, waits=36_000.0) as process:
        assert process.stdout is not None
        (line,) = process.stdout.read().splitlines()
    assert re.fullmatch(r"numpy is not installed for \S+python\S*: `apt-get install python3-numpy`, or .*", line)
    assert process.returncode == 1
    assert list(folder.iterdir()) == []
