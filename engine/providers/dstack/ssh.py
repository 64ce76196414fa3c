"""The way into a task: through the machine's sshd to that of the container, as dstack's own client goes."""

import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

from steno.engine.errors import NotConfigured, ProviderUnreachable
from steno.engine.providers.base import Entrance, Way
from steno.engine.providers.dstack.lenient import at, objects

CONTAINER_PORT: Final = 10022  # of the sshd that dstack's runner starts in each container
_PATIENCE: Final = 20.0  # seconds until the tunnel must stand
_OPTIONS: Final = (
    # machines and containers are new, so their host keys are unknown; dstack's client does not check them either
    "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
    "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "ConnectTimeout=10",
    "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3",
)  # fmt: skip


class Tunnel(Way):
    """An `ssh -L` of its own."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        super().__init__("127.0.0.1", port)
        self._process = process

    @property
    def open(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate()


def public_key(private: Path) -> str:
    """The public half of a key; both are made if there is none. NotConfigured: it cannot be made or read."""
    public = private.with_name(private.name + ".pub")
    try:
        if not private.exists():
            private.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            command = ["ssh-keygen", "-q", "-t", "rsa", "-b", "3072", "-N", "", "-C", "steno", "-f", str(private)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        return public.read_text("ascii").strip()
    except (OSError, subprocess.CalledProcessError, UnicodeDecodeError) as error:
        raise NotConfigured(f"there is no usable ssh key {private} (dstack.ssh_key): {error}") from None


def tunnel(run: dict[str, object], port: int, key: Path) -> Tunnel:
    """A tunnel to a port of the run's first job. ProviderUnreachable: it cannot be reached, or not yet."""
    ssh = shutil.which("ssh")
    if ssh is None:
        raise NotConfigured("there is no ssh on this machine: apt-get install openssh-client")
    submissions = [row for job in objects(run.get("jobs"))[:1] for row in objects(job.get("job_submissions"))]
    submission = submissions[-1] if submissions else None
    where = at(submission, "job_provisioning_data")
    host, user, own = at(where, "hostname"), at(where, "username"), at(where, "ssh_port")
    if not isinstance(host, str) or not isinstance(user, str):
        raise ProviderUnreachable("the task has no machine with an address yet", sent=False)
    hops = [*_hops(at(where, "ssh_proxy")), (host, user, own if isinstance(own, int) else 22)]
    if at(where, "dockerized"):
        inside = at(submission, "job_runtime_data", "ports", str(CONTAINER_PORT))
        hops.append(("localhost", "root", inside if isinstance(inside, int) else CONTAINER_PORT))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        mine = free.getsockname()[1]
    base = [ssh, "-i", str(key), *_OPTIONS]
    forward = ["-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{mine}:127.0.0.1:{port}"]
    # `cat` ends with its input, so the tunnel ends with us however we end
    command = [*_command(base, hops[:-1], hops[-1], forward), "exec cat >/dev/null"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < until:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", mine)) == 0:
                return Tunnel(process, mine)
        time.sleep(0.02)
    process.kill()
    lines = (process.communicate()[1] or "").strip().splitlines()
    raise ProviderUnreachable(f"no ssh to the task at {user}@{host}: {lines[0] if lines else 'no answer'}", sent=False)


def entrance(run: dict[str, object], name: str, port: int | None, server: str) -> Entrance:
    """By dstack's own client, which forwards the ports that the task names and makes `name` known to ssh; of a service,
    the address that the server or its gateway answers at.
    """
    url, attach = at(run, "service", "url"), f"dstack attach {shlex.quote(name)}"
    if isinstance(url, str):
        return Entrance(address=urljoin(server, url), inside=f"ssh {name}")
    named = [app for job in objects(run.get("jobs"))[:1] for app in objects(at(job, "job_spec", "app_specs"))]
    mapped = port is not None and any(app.get("port") == port for app in named)
    forward = [] if port is None or mapped else [f"ssh -N -L {port}:127.0.0.1:{port} {name}"]
    return Entrance(
        address=None if port is None else f"http://127.0.0.1:{port}",
        commands=(f"{attach} -p {port}:{port}" if mapped else attach, *forward),
        inside=f"ssh {name}",
    )


def _hops(proxy: object) -> list[tuple[str, str, int]]:
    """The host before the machine, of fleets reached through one."""
    host, user, port = at(proxy, "hostname"), at(proxy, "username"), at(proxy, "port")
    if not isinstance(host, str) or not isinstance(user, str):
        return []
    return [(host, user, port if isinstance(port, int) else 22)]


def _command(
    base: list[str],
    before: list[tuple[str, str, int]],
    last: tuple[str, str, int],
    options: Sequence[str] = (),
) -> list[str]:
    """`ssh` to the last host, each through the one before; `options` for the last alone."""
    host, user, port = last
    command = [*base, *options, "-p", str(port)]
    if before:
        through = shlex.join(_command(base, before[:-1], before[-1]))
        command += ["-o", f"ProxyCommand={through.replace('%', '%%')} -W %h:%p"]
    return [*command, f"{user}@{host}"]
