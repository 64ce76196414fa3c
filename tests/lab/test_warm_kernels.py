"""Kernels on a machine that stays warm behind a genuine dstack server: its task is the listener, the way is ssh."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from stenolab.lab import Lab
from stenolab.machine_ssh import MachineSsh, lacking
from stenolab.plugin import StenoAt
from stenolab.waiting import wait
from stenotest.kernels import ADDITION, told

pytestmark = [pytest.mark.slow, pytest.mark.skipif(lacking() is not None, reason=str(lacking()))]

IP = "127.0.9.1"
SOCKET = Path("/var/run/docker.sock")
PATIENCE = 240.0
WARM_S = 10.0  # from the request to the verdict


@pytest.fixture
def machine_ssh() -> Iterator[MachineSsh]:
    with MachineSsh.running(IP) as server:
        yield server


@pytest.fixture
def machine_image(dstack_22: Lab, engine: str) -> Iterator[None]:
    """What dstack's image for Docker has: `start-dockerd`, and a Python with Docker's SDK."""
    folder = dstack_22.folder / "state" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    given = engine.removeprefix("unix://")
    for name, line in (("start-dockerd", f"ln -sfn {given} {SOCKET}"), ("python3", f'exec {sys.executable} "$@"')):
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    yield
    for name in ("start-dockerd", "python3"):
        (folder / name).unlink()
    with suppress(FileNotFoundError):
        SOCKET.unlink()


@pytest.mark.usefixtures("machine_image")
def test_the_second_kernel_finds_the_machine_warm(
    dstack_22: Lab, steno_at: StenoAt, machine_ssh: MachineSsh, record_property: Callable[..., None]
) -> None:
    """Through the provider, its machine, a tunnel with keys, a container and back; then the machine is given back."""
    dstack_22.cloud.rule("kernels-", ip=IP)
    more = {
        "STENO_KERNEL_WARM": "on",
        "STENO_KERNEL_IMAGE": "steno-lab/kernel:1",
        "AMD_CONTAINER_MEMORY_LIMIT": "1GB",
    }
    steno = steno_at(dstack_22, dstack_22.project(), **more)
    up = steno.up()
    url = wait(lambda: re.search(r"serving (http://\S+)", up.out), seconds=PATIENCE, what="the service")[1]
    name = steno(
        "kernel", "submit", _file(steno.work), "--problem", "vector-add", "--gpu", "MI300X", "--checker"
    ).out.strip()

    def kept() -> dict[str, Any] | None:
        return next((run for one, run in steno.world().runs.items() if one.startswith("kernels-mi300x-")), None)

    steno.until(kept, what="the machine to be asked for")
    public = steno.home / ".dstack" / "ssh" / "id_rsa.pub"
    wait(public.exists, seconds=PATIENCE, what="the key that goes with the task")
    machine_ssh.let_in(public.read_text().strip())
    assert steno.wait(name, "succeeded")["start"] == "cold"
    took = []
    for _ in range(3):
        began = time.monotonic()
        last = told(url, gpu_type="MI300X", language="hip")[-1]
        took.append(time.monotonic() - began)
        assert (last["status"], last["vm_state"]) == ("CHECKED", "WARM_REUSE")
    record_property("median_seconds", statistics.median(took))
    assert statistics.median(took) < WARM_S
    assert machine_ssh.logins >= 2, "of the machine, and of the container on it"
    machine = kept()
    assert machine is not None
    vms = steno.json("vms")["vms"]
    steno("vms", "stop", next(vm["vm_id"] for vm in vms if vm["source"].startswith("kernels/")))
    assert steno.wait(machine["name"], "succeeded")["exit_status"] == 0
    steno("verify")
    up.kill()


def _file(folder: Path) -> Path:
    path = folder / "add.hip"
    path.write_text(ADDITION)
    return path


def test_the_tunnel_says_why_it_cannot_be(machine_ssh: MachineSsh, tmp_path: Path) -> None:
    """A key that nobody let in is one sentence, and no process is left."""
    from engine.errors import ProviderUnreachable
    from engine.providers.dstack import ssh

    key = tmp_path / "ssh" / "id_rsa"
    assert ssh.public_key(key).startswith("ssh-rsa ")
    assert ssh.public_key(key) == ssh.public_key(key)
    where = {"hostname": IP, "username": "root", "ssh_port": 22, "dockerized": True}
    run = {"jobs": [{"job_submissions": [{"job_provisioning_data": where}]}]}
    with pytest.raises(ProviderUnreachable, match="Permission denied"):
        ssh.tunnel(run, 8000, key)
    machine_ssh.let_in(ssh.public_key(key))
    way = ssh.tunnel(run, 8000, key)
    assert way.open
    way.close()
    assert not way.open
    left = subprocess.run(["pgrep", "-f", str(key)], capture_output=True, text=True, check=False).stdout
    assert left == ""
