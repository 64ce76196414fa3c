"""The chain of hosts to a task, as `ssh` is told it."""

import shlex

from steno.engine.providers.dstack.ssh import _command

BASE = ["ssh", "-i", "key"]
JUMP, VM, CONTAINER = ("jump", "me", 2200), ("vm", "ubuntu", 22), ("localhost", "root", 10022)


def expanded(command: list[str]) -> list[str]:
    """The proxy command of a host, as that ssh runs it."""
    option = next(word for word in command if word.startswith("ProxyCommand="))
    text = option.removeprefix("ProxyCommand=")
    marks = {"%%": "%", "%h": "HOST", "%p": "PORT"}
    done, rest = "", text
    while rest:
        pair = rest[:2]
        done, rest = (done + marks[pair], rest[2:]) if pair in marks else (done + rest[0], rest[1:])
    return shlex.split(done)


def test_a_container_is_reached_through_its_machine() -> None:
    command = _command(BASE, [VM], CONTAINER, ["-L", "1:2"])
    assert command[:5] == ["ssh", "-i", "key", "-L", "1:2"]
    assert command[-1] == "root@localhost"
    inner = expanded(command)
    assert inner == ["ssh", "-i", "key", "-p", "22", "ubuntu@vm", "-W", "HOST:PORT"]


def test_a_machine_behind_a_host_is_reached_through_both() -> None:
    """Each ssh fills in its own host and port, and leaves those of the inner commands alone."""
    middle = expanded(_command(BASE, [JUMP, VM], CONTAINER))
    assert middle[-3:] == ["ubuntu@vm", "-W", "HOST:PORT"]
    assert expanded(middle) == ["ssh", "-i", "key", "-p", "2200", "me@jump", "-W", "HOST:PORT"]


def test_a_machine_without_a_container_is_the_last_host() -> None:
    assert _command(BASE, [], VM) == ["ssh", "-i", "key", "-p", "22", "ubuntu@vm"]
