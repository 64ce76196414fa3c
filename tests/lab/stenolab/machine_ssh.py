"""The sshd of a machine and that of the container on it, as dstack has them: real ones, on addresses of this host."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stenolab.waiting import wait

CONTAINER_PORT = 10022
NEEDS = "needs sshd and root: apt-get install openssh-server"


def lacking() -> str | None:
    """What is missing to start them; None: nothing."""
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
        self._ip = ip

    @classmethod
    @contextmanager
    def running(cls, ip: str) -> Iterator[MachineSsh]:
        with tempfile.TemporaryDirectory(prefix="steno-sshd-") as folder:
            server = cls(Path(folder), ip)
            Path("/run/sshd").mkdir(exist_ok=True)
            daemon = shutil.which("sshd", path=f"/usr/sbin:{os.environ['PATH']}")
            assert daemon is not None
            process = subprocess.Popen([daemon, "-D", "-f", server.config, "-E", server._log])
            try:
                wait(server._takes, seconds=60, what="sshd", pause=0.05)
                yield server
            finally:
                process.terminate()
                process.wait()

    def let_in(self, public_key: str) -> None:
        """As dstack's agent writes the run's `ssh_key_pub` on the machine and into the container."""
        self._keys.write_text(public_key + "\n")

    @property
    def logins(self) -> int:
        return self._log.read_text().count("Accepted publickey")

    def _takes(self) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex((self._ip, 22)) == 0
