"""A cluster behind ssh: one connection for all, no question to anybody, and one clear line for each trouble."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from stenolab.slurm import Cluster
from stenolab.sshd import SshServer
from stenolab.steno import Steno

from steno.engine.errors import ProviderUnreachable
from steno.engine.providers.slurm.settings import Site
from steno.engine.providers.slurm.shell import Shell

JOB = ("--partition", "gpu-a6000", "--gpu", "a6000:1", "--memory", "500M")
UNREACHABLE = 3


@pytest.fixture(scope="module")
def login_node(slurm_cluster: Cluster) -> Iterator[SshServer]:
    """A login node of the cluster."""
    with SshServer.running(**slurm_cluster.environment) as server:
        yield server


@pytest.fixture
def far(on_slurm: Steno, login_node: SshServer) -> Steno:
    """Our command on a machine that reaches the cluster by ssh only."""
    on_slurm.more = {**on_slurm.more, "STENO_SLURM_HOST": login_node.host, "PATH": login_node.path()}
    return on_slurm


@pytest.mark.ci
def test_a_run_over_one_connection(far: Steno, login_node: SshServer) -> None:
    """Submit, polls of three questions at once, verdict and output: one login for each of our processes."""
    before = login_node.logins
    run = far("submit", "--wait", "--json", "--name", "far", *JOB, "--", "echo there; exit 3", code=None).json()
    assert (run["state"], run["reason"], run["exit_status"]) == ("failed", "exit_nonzero", 3)
    assert login_node.logins == before + 1
    assert far("logs", "far").out == "there\n"


def test_doctor_says_that_ssh_works(far: Steno) -> None:
    checks = {check["name"]: check for check in far("doctor", "--json").json()["checks"]}
    assert "without a password" in checks["ssh"]["said"]
    assert checks["controller"]["state"] == checks["accounting"]["state"] == checks["folder"]["state"] == "ok"


TROUBLES: dict[str, tuple[dict[str, Any], str]] = {
    "host unknown": ({"known": None}, "the host key of login-node is not known here: `ssh login-node` once"),
    "key refused": ({"key": "stranger"}, "login-node refuses our key (root@127.0.0.1: Permission denied"),
    "host key changed": ({"known": "other-host"}, "the host key of login-node has changed"),
    "nobody listens": ({"answers": False}, "ssh to login-node failed: ssh: connect to host 127.0.0.1 port 1: "),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_trouble_is_one_line(far: Steno, login_node: SshServer, trouble: str) -> None:
    """And exit code 3; nothing waits for an answer of a person."""
    options, message = TROUBLES[trouble]
    more = {**options, "key": login_node.stranger} if "key" in options else options
    for command in (("submit", "--name", "never", *JOB, "--", "true"), ("slurm", "gpus"), ("doctor",)):
        done = far(*command, code=UNREACHABLE, PATH=login_node.path(**more))
        assert message in done.out + done.err
        if command[0] != "doctor":
            assert [line for line in done.err.splitlines() if "No price" not in line][-1].count(message) == 1


def test_slurm_not_installed_there(far: Steno) -> None:
    """The login node is a machine without Slurm's commands."""
    with SshServer.running(PATH="/nowhere:/bin.empty") as bare:
        done = far("slurm", "gpus", code=UNREACHABLE, PATH=bare.path())
    assert len(done.err.splitlines()) == 1
    assert "on login-node" in done.err


def test_ssh_not_installed_here(far: Steno) -> None:
    assert far("slurm", "gpus", code=UNREACHABLE, PATH="/nowhere").err.count("there is no ssh on this machine") == 1


def test_a_thread_left_over_opens_no_connection(login_node: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples and output are read in threads, which an ending process does not wait for."""
    monkeypatch.setenv("PATH", login_node.path())
    shell, before = Shell(Site(cluster="lab", host=login_node.host)), login_node.logins
    assert shell.ask("true").status == 0
    shell.close()
    with pytest.raises(ProviderUnreachable, match="was closed"):
        shell.ask("true")
    shell.close()
    assert login_node.logins == before + 1


def test_many_commands_at_once_share_the_connection(login_node: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs and polls are read in threads; OpenSSH lets ten sessions share a connection."""
    monkeypatch.setenv("PATH", login_node.path())
    shell, before = Shell(Site(cluster="lab", host=login_node.host)), login_node.logins
    with ThreadPoolExecutor(24) as threads:
        assert {done.status for done in threads.map(lambda _: shell.ask("sleep", "1"), range(24))} == {0}
    shell.close()
    assert login_node.logins == before + 1
