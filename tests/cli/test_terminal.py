"""What a terminal gets: lists go through a pager below a header, what follows does not; changes come as they happen."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from stenotest.command_line import Steno
from stenotest.gate import holding
from stenotest.terminal import on_terminal

PAGER = "sed s/^/paged:/"


@pytest.mark.parametrize("command", ["events", "polls"])
def test_a_list_goes_through_the_pager_on_a_terminal_only(
    steno: Steno, home: Path, environment: dict[str, str], command: str
) -> None:
    """Below a header, each line that a pipe gets, once."""
    assert steno("submit", "--wait", "-q", "--", "true").returncode == 0
    piped = steno(command, PAGER=PAGER).stdout.splitlines()
    assert len(piped) > 1
    variables = environment | {"PAGER": PAGER, "NO_COLOR": "1"}
    found = on_terminal([command], cwd=home, env=variables, streams=("stdin", "stdout"))
    assert found.code == 0
    header, *lines = [line.removeprefix("paged:") for line in found.terminal.splitlines() if line.startswith("paged:")]
    assert header.split()[0] == "POSITION"
    assert lines == piped
    assert found.terminal.count("\n") == len(piped) + 1


def test_watch_alone_prints_every_run_until_it_is_interrupted(
    steno: Steno, background: Callable[..., "subprocess.Popen[str]"], gate: Path
) -> None:
    """First what is open, then each change; a run that had ended before is not shown."""
    assert steno("submit", "--wait", "-q", "--name", "before", "--", "true").returncode == 0
    assert steno("submit", "--name", "slow", "--", holding(gate)).returncode == 0
    process = background("watch", "--json", out=subprocess.PIPE)
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert (first["name"], first["exit_status"]) == ("slow", None)
    gate.touch()
    seen = [first]
    while seen[-1]["state"] != "succeeded":
        seen.append(json.loads(process.stdout.readline()))
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert {run["name"] for run in seen} == {"slow"}
    assert process.stdout.read() == ""


def test_open_without_a_browser_prints_the_address(
    steno: Steno, background: Callable[..., "subprocess.Popen[str]"]
) -> None:
    """And says that nothing was opened."""
    service = background("up", out=subprocess.PIPE)
    assert service.stdout is not None
    url = next(line for line in service.stdout if "serving" in line).split("serving ")[1].split()[0]
    done = steno("open", STENO_API_PORT=url.rsplit(":", 1)[1], BROWSER="/nowhere/browser", PATH="/nowhere")
    assert (done.returncode, done.stdout) == (0, f"{url}\n")
    assert "no browser here" in done.stderr
