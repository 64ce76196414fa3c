"""An OpenSSH server on loopback with keys of its own, and `ssh` as its user has it set up."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stenotest.waiting import wait

ALIAS = "login-node"


@contextmanager
def serving(configuration: Path, log: Path, address: tuple[str, int]) -> Iterator[None]:
    """An sshd that takes connections at that address."""
    Path("/run/sshd").mkdir(exist_ok=True)
    daemon = shutil.which("sshd", path=f"/usr/sbin:{os.environ['PATH']}")
    assert daemon is not None
    process = subprocess.Popen([daemon, "-D", "-f", configuration, "-E", log])

    def is_up() -> bool:
        with socket.socket() as client:
            return client.connect_ex(address) == 0

    try:
        wait(is_up, what="sshd", pause=0.05)
        yield
    finally:
        process.terminate()
        process.wait()


class SshServer:
    """A server; `path()` has an `ssh` that knows it under the name `login-node`, and nothing of the user's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = ALIAS
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        for name in ("host", "other-host", "mine", "stranger"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        self.mine, self.stranger = folder / "mine", folder / "stranger"
        shutil.copy(folder / "mine.pub", folder / "authorized_keys")
        self.log = folder / "log"
        lines = (
            f"Port {self.port}", "ListenAddress 127.0.0.1", f"HostKey {folder}/host", f"PidFile {folder}/pid",
            f"AuthorizedKeysFile {folder}/authorized_keys", "PasswordAuthentication yes", "UsePAM no",
            "PermitRootLogin yes", "StrictModes no", "LogLevel VERBOSE", "PermitUserEnvironment no",
        )  # fmt: skip
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")

    @classmethod
    @contextmanager
    def running(cls, **environment: str) -> Iterator[SshServer]:
        """A server that takes connections; `environment` is what its sessions have."""
        with tempfile.TemporaryDirectory(prefix="steno-sshd-") as folder:
            server = cls(Path(folder))
            with (server.folder / "sshd_config").open("a") as file:
                for name, value in environment.items():
                    file.write(f'SetEnv {name}="{value}"\n')
            with serving(server.folder / "sshd_config", server.log, ("127.0.0.1", server.port)):
                yield server

    @property
    def logins(self) -> int:
        """Connections that were let in."""
        return self.log.read_text().count("Accepted publickey")

    def path(self, *, key: Path | None = None, known: str | None = "host", answers: bool = True) -> str:
        """A `PATH` whose ssh has a configuration of its own.

        Args:
            key: what it shows; None: the right key.
            known: whose host key it expects: `host`, or `other-host` as if that had changed; None: no known host.
            answers: else the name leads to a port where nobody listens.
        """
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        hosts = folder / "known_hosts"
        public = "" if known is None else (self.folder / f"{known}.pub").read_text()
        hosts.write_text(f"[127.0.0.1]:{self.port} {public}" if public else "")
        lines = (
            f"Host {ALIAS}", "HostName 127.0.0.1", f"Port {self.port if answers else 1}", "User root",
            f"IdentityFile {key or self.mine}", "IdentitiesOnly yes", f"UserKnownHostsFile {hosts}",
            "GlobalKnownHostsFile /dev/null", "StrictHostKeyChecking ask",
        )  # fmt: skip
        (folder / "config").write_text("\n".join(lines) + "\n")
        real = shutil.which("ssh")
        (folder / "ssh").write_text(f'#!/bin/sh\nexec {real} -F {folder}/config "$@"\n')
        (folder / "ssh").chmod(0o755)
        return f"{folder}:{os.environ['PATH']}"
