"""Kernels on a machine that stays warm behind a genuine dstack server: its task is the listener, the way is ssh."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from stenolab.lab import Lab
from stenolab.machine_ssh import IP, KERNELS, MachineSsh
from stenolab.plugin import StenoAt
from stenotest.kernels import ADDITION, told
from stenotest.waiting import wait

pytestmark = pytest.mark.slow


@pytest.mark.ci
@pytest.mark.usefixtures("machine_image")
def test_the_second_kernel_finds_the_machine_warm(dstack_22: Lab, steno_at: StenoAt, machine_ssh: MachineSsh) -> None:
    """Through the provider, its machine, a tunnel with keys, a container and back; then the machine is given back."""
    steno = steno_at(dstack_22, dstack_22.project(), **KERNELS)
    up = steno.up()
    url = wait(lambda: re.search(r"serving (http://\S+)", up.out), what="the service")[1]
    name = steno(
        "kernel", "submit", _file(steno.work), "--problem", "vector-add", "--gpu", "MI300X", "--checker"
    ).out.strip()

    def kept() -> dict[str, Any] | None:
        """Not a run that dstack lost: after two of its minutes, seconds here, a busy machine is unreachable."""
        runs = steno.world().runs.items()
        lost = ("failed", "unreachable")
        kernel_runs = (run for name, run in runs if name.startswith("kernels-mi300x-"))
        return next((run for run in kernel_runs if (run["state"], run["reason"]) != lost), None)

    steno.until(kept, what="the machine to be asked for")
    public = steno.home / ".dstack" / "ssh" / "id_rsa.pub"
    wait(public.exists, what="the key that goes with the task")
    machine_ssh.let_in(public.read_text().strip())
    assert steno.wait(name, "succeeded")["start"] == "cold"
    for _ in range(3):
        last = told(url, gpu_type="MI300X", language="hip")[-1]
        assert (last["status"], last["vm_state"]) == ("CHECKED", "WARM_REUSE")
    assert machine_ssh.logins >= 2, "of the machine, and of the container on it"
    machine = kept()
    assert machine is not None
    live = (vm for vm in steno.json("vms")["vms"] if vm["state"] != "terminated")  # those of a lost one are there too
    steno("vms", "stop", next(vm["vm_id"] for vm in live if vm["source"].startswith("kernels/")))
    assert steno.wait(machine["name"], "succeeded")["exit_status"] == 0
    steno("verify")
    up.kill()


@pytest.mark.long
def test_a_machine_that_gets_no_numpy_tells_the_kernel_so(
    dstack_22: Lab, steno_at: StenoAt, machine_image: Path
) -> None:
    """Its listener ends at once, and what it said last is in the kernel's own words."""
    (machine_image / "sitecustomize.py").write_text("import sys\nsys.modules['numpy'] = None\n")
    (machine_image / "python3").write_text(f'#!/bin/sh\nPYTHONPATH={machine_image} exec {sys.executable} "$@"\n')
    (machine_image / "apt-get").write_text("#!/bin/sh\necho installing\n")  # which does not help
    (machine_image / "apt-get").chmod(0o755)
    steno = steno_at(dstack_22, dstack_22.project(), **KERNELS)
    steno.up()
    words = ("--problem", "vector-add", "--gpu", "MI300X", "--checker")
    name = steno("kernel", "submit", _file(steno.work), *words).out.strip()
    why = steno.until(
        lambda: text if "numpy" in (text := " ".join(steno("show", name).out.split())) else None,
        what="the reason of the machine",
    )
    assert re.search(r"kernels-mi300x-\S+ did not keep its machine \(exit nonzero: numpy is not installed", why), why


def _file(folder: Path) -> Path:
    path = folder / "add.hip"
    path.write_text(ADDITION)
    return path


def test_the_tunnel_says_why_it_cannot_be(machine_ssh: MachineSsh, tmp_path: Path) -> None:
    """A key that nobody let in is one sentence, and no process is left."""
    from steno.engine.errors import ProviderUnreachable
    from steno.engine.providers.dstack import ssh

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
