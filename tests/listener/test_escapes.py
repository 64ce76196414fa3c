"""Attempts of a hostile program in a container, and the same attempts without a defence."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from steno.engine.kernel.machine.cells import ProgramEnd
from steno.engine.listener.sandbox import Containers

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("docker")]

WORKS = ("clone_thread", "unix_socket", "mempolicy")
"""The needs of an honest program and of a GPU's library."""

REFUSED = (
    *("tcp", "udp", "dns", "inet6", "raw", "ping", "packet", "netlink", "vsock", "alg", "socketcall"),
    *("write_root", "write_etc", "write_usr", "write_sysrq", "write_core_pattern", "write_cgroup", "write_oom"),
    *("read_kcore", "read_kmsg", "read_mem", "read_shadow", "docker_socket", "host_environment", "device", "kfd"),
    *("mount", "umount", "pivot_root", "chroot", "fsopen", "open_tree"),
    *("unshare", "unshare_net", "setns", "clone_namespace", "clone3_namespace"),
    *(
        "bpf",
        "io_setup",
        "io_submit",
        "io_uring",
        "add_key",
        "keyctl",
        "request_key",
        "ptrace",
        "process_vm",
        "kcmp",
        "pidfd_getfd",
    ),
    *("userfaultfd", "perf", "name_to_handle", "open_by_handle", "init_module", "kexec", "reboot", "swapon", "acct"),
    *("quotactl", "personality", "settime", "setuid", "setuid_program", "new_privileges", "tmp_setuid"),
    *("raise_limit", "kill_init"),
)


def weaker(**changes: Any) -> type[Containers]:
    """A sandbox without one of its defences."""

    class Weaker(Containers):
        def arguments(self, folder: Path) -> dict[str, Any]:
            return super().arguments(folder) | changes

    return Weaker


OPEN = ["no-new-privileges:true", "seccomp=unconfined"]
ROOT = "0:0"


@pytest.fixture(scope="session")
def port() -> Iterator[int]:
    """Where a server of this machine listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture(scope="session")
def attempts(probe: Callable[..., tuple[ProgramEnd, None]], port: int) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STENO_PROBE_MARK", "of the host")
        return table(probe("all", str(port)))


def table(result: tuple[ProgramEnd, None]) -> dict[str, str]:
    """The result of each attempt."""
    ended, _ = result
    assert ended.code == 0, ended
    return dict(line.split(" ", 1) for line in ended.output.splitlines())


def test_the_list_of_attempts_is_complete(attempts: dict[str, str]) -> None:
    assert set(attempts) == {*WORKS, *REFUSED}


@pytest.mark.parametrize("attempt", REFUSED)
def test_is_refused(attempts: dict[str, str], attempt: str) -> None:
    assert attempts[attempt] != "through"


@pytest.mark.parametrize("need", WORKS)
def test_is_allowed(attempts: dict[str, str], need: str) -> None:
    assert attempts[need] == "through"


@pytest.mark.parametrize(
    ("without", "through"),
    [
        (
            weaker(security_opt=OPEN),
            {"inet6", "netlink", "vsock", "ping", "socketcall", "ptrace", "process_vm", "pidfd_getfd", "unshare"},
        ),
        (weaker(security_opt=[]), {"new_privileges", "setuid_program"}),
        (weaker(read_only=False, user=ROOT), {"write_root", "write_etc", "write_usr", "read_shadow"}),
        (
            weaker(security_opt=OPEN, user=ROOT, cap_drop=[], cap_add=["SYS_ADMIN"]),
            {"mount", "umount", "raw", "packet", "device"},
        ),
        (weaker(security_opt=OPEN, network_mode="host"), {"tcp"}),
    ],
    ids=["seccomp", "no-new-privileges", "read-only", "capabilities", "network"],
)
def test_succeeds_without_its_defence(
    make: Any, probe: Any, port: int, without: type[Containers], through: set[str]
) -> None:
    result = table(probe("all", str(port), sandbox=make(without)))
    assert {name for name in through if result[name] != "through"} == set()


def test_a_program_has_as_many_processes_as_it_may(make: Any, probe: Any) -> None:
    within, _ = probe("forks", limit=120)
    beyond, _ = probe("forks", sandbox=make(weaker(pids_limit=600)), limit=120)
    assert int(within.output) < 128 < 500 < int(beyond.output)


def test_a_fork_bomb_ends_at_the_limit(probe: Any) -> None:
    ended, _ = probe("bomb", limit=1)
    assert ended.code is None
    after, _ = probe("exit", "0")
    assert after.code == 0


def test_files_and_inodes_are_bounded(probe: Any) -> None:
    files, _ = probe("files")
    inodes, _ = probe("inodes")
    assert int(files.output) < 1024
    assert int(inodes.output) < 10_000


def test_a_full_disk_is_the_programs_own(probe: Any) -> None:
    full, _ = probe("fill", "1000")
    shm, _ = probe("shm", "1000")
    assert 200 < int(full.output) < 256
    assert int(shm.output) == 64


def test_the_compiler_sees_nothing_of_the_host(cells: Containers, tmp_path: Any) -> None:
    secret = tmp_path / "secret"
    secret.write_text("int secret;\n")
    for path in ("/etc/shadow", "/etc/gshadow", str(secret)):
        ended, taken = cells.run(
            ["g++", "-c", "a.cpp", "-o", "a.o"],
            {"a.cpp": f'#include "{path}"\n'.encode()},
            limit=120,
            takes="a.o",
            cap=1 << 20,
        )
        assert ended.code != 0
        assert taken is None
        assert "No such file" in ended.output or "Permission denied" in ended.output
    embedded, _ = cells.run(["g++", "-c", "a.cpp"], {"a.cpp": f'asm(".incbin \\"{secret}\\"");'.encode()}, limit=120)
    assert "can't open" in embedded.output or "file not found" in embedded.output
    plugin, _ = cells.run(["g++", f"-fplugin={secret}", "-c", "a.cpp"], {"a.cpp": b""}, limit=120)
    assert "cannot load plugin" in plugin.output
