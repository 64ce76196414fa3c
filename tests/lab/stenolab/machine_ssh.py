"""Machines for kernels, as dstack has them: the sshd of a machine and that of the container on it, both real and
on addresses of this host, and what the image for `docker: true` has.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from stenolab.docker import IMAGE
from stenolab.lab import Lab
from stenolab.sshd import serving

IP = "127.0.9.1"
SOCKET = Path("/var/run/docker.sock")
CONTAINER_PORT = 10022
KERNELS: Mapping[str, str] = {"STENO_KERNEL_IMAGE": IMAGE, "AMD_CONTAINER_MEMORY_LIMIT": "1GB"}
"""Settings of whoever sends kernels to such machines."""
NEEDS = "needs sshd and root: apt-get install openssh-server"


def lacking() -> str | None:
    """The software that is missing to start them; None: nothing is."""
    daemon = shutil.which("sshd", path=f"/usr/sbin:{os.environ['PATH']}")
    return None if daemon is not None and os.geteuid() == 0 else NEEDS


class MachineSsh:
    """`ip`: of the machine. `let_in` says whose key opens both; nobody's at first."""

    def __init__(self, folder: Path, ip: str) -> None:
        self._keys = folder / "authorized_keys"
        self._keys.touch()
        self._log = folder / "log"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "host"], check=True)
        lines = (
            f"ListenAddress {ip}:22", f"ListenAddress 127.0.0.1:{CONTAINER_PORT}", f"HostKey {folder}/host",
            f"PidFile {folder}/pid", f"AuthorizedKeysFile {self._keys}", "PasswordAuthentication no", "UsePAM no",
            "PermitRootLogin yes", "StrictModes no", "LogLevel VERBOSE", "AllowTcpForwarding yes",
        )  # fmt: skip
        self.config = folder / "sshd_config"
        self.config.write_text("\n".join(lines) + "\n")

    @classmethod
    @contextmanager
    def running(cls, ip: str) -> Iterator[MachineSsh]:
        with tempfile.TemporaryDirectory(prefix="steno-sshd-") as folder:
            server = cls(Path(folder), ip)
            with serving(server.config, server._log, (ip, 22)):
                yield server

    def let_in(self, public_key: str) -> None:
        """As dstack's agent writes the run's `ssh_key_pub` on the machine and into the container."""
        self._keys.write_text(public_key + "\n")

    @property
    def logins(self) -> int:
        return self._log.read_text().count("Accepted publickey")


@pytest.fixture
def machine_ssh(dstack_22: Lab) -> Iterator[MachineSsh]:
    """The way into the machines of kernels."""
    if (why := lacking()) is not None:
        pytest.fail(why) if os.environ.get("STENO_REQUIRE_LAB") == "1" else pytest.skip(why)
    dstack_22.cloud.rule("kernels-", ip=IP)
    with MachineSsh.running(IP) as server:
        yield server


@pytest.fixture
def machine_image(dstack_22: Lab, engine: str) -> Iterator[Path]:
    """The folder with what dstack's image for Docker has: `start-dockerd`, a Python with numpy and Docker's SDK."""
    folder = dstack_22.folder / "state" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    given = engine.removeprefix("unix://")
    for name, line in (("start-dockerd", f"ln -sfn {given} {SOCKET}"), ("python3", f'exec {sys.executable} "$@"')):
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    yield folder
    shutil.rmtree(folder)
    with suppress(FileNotFoundError):
        SOCKET.unlink()
