"""`--open`: the dashboard in a browser, and what is said where there is none. Nothing waits for it."""

from __future__ import annotations

import signal
import stat
from typing import TYPE_CHECKING

import pytest
from stenotest.waiting import LIMIT_S, wait

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Process, Starts


@pytest.fixture
def browser(tmp_path: Path) -> Callable[[str], Path]:
    """`browser("exit 0")`: a command that writes down its arguments and then does that."""

    def made(then: str) -> Path:
        path = tmp_path / "browser"
        path.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/shown"\n{then}\n', encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return made


def goes_on(process: Process) -> None:
    """It serves, and ends as it always does."""
    assert process.get("/healthz").status_code == 200
    process.signal(signal.SIGTERM)
    assert process.ended() == 0
    assert process.err == []


def warnings(process: Process) -> list[str]:
    """The warnings; with `local`, root is always told who may do what."""
    return [line for line in process.out if " WARNING " in line and "no token is needed" not in line]


@pytest.mark.parametrize("command", ["serve", "up"])
def test_open_shows_the_dashboard(
    command: str, started: Starts, town: Path, browser: Callable[[str], Path], tmp_path: Path
) -> None:
    """The browser is given the address at which this machine reaches it, once."""
    process = started(command, "--record", town, "--open", BROWSER=str(browser("exit 0")))
    arguments = tmp_path / "shown"
    wait(lambda: arguments.exists() and arguments.read_text().endswith("\n"))
    assert arguments.read_text() == f"{process.url}\n"
    assert warnings(process) == []
    goes_on(process)


def test_without_open_no_browser_is_started(
    started: Starts, town: Path, browser: Callable[[str], Path], tmp_path: Path
) -> None:
    """Whatever BROWSER says; one would have been given the address before it ends."""
    process = started("serve", "--record", town, BROWSER=str(browser("exit 0")))
    goes_on(process)
    assert not (tmp_path / "shown").exists()


@pytest.mark.parametrize("command", ["serve", "up"])
@pytest.mark.parametrize("variables", [{}, {"BROWSER": "/nowhere/browser"}, {"TERM": "dumb"}])
def test_where_no_browser_is_the_address_is_said(
    command: str, variables: dict[str, str], started: Starts, town: Path
) -> None:
    """In one line, and it goes on."""
    process = started(command, "--record", town, "--open", **variables)
    wait(lambda: bool(warnings(process)))
    (line,) = warnings(process)
    assert line.endswith(f" WARNING no browser could be started; open {process.url} yourself")
    goes_on(process)


def test_a_browser_that_fails_is_none(started: Starts, town: Path, browser: Callable[[str], Path]) -> None:
    """It says so by its exit code."""
    process = started("serve", "--record", town, "--open", BROWSER=str(browser("exit 1")))
    wait(lambda: bool(warnings(process)))
    goes_on(process)


@pytest.mark.parametrize("command", ["serve", "up"])
def test_nothing_waits_for_a_browser_that_stays(
    command: str, started: Starts, town: Path, browser: Callable[[str], Path], tmp_path: Path
) -> None:
    """The started process itself may be the browser: recording and serving go on, and so does SIGTERM."""
    stays = browser('while [ ! -e "$0.over" ]; do sleep 0.1; done')
    try:
        process = started(command, "--record", town, "--open", BROWSER=str(stays))
        wait((tmp_path / "shown").exists)
        if command == "up":
            wait(lambda: any(" recording " in line for line in process.out))
        assert process.get("/healthz").status_code == 200
        process.signal(signal.SIGTERM)
        assert process.process.wait(LIMIT_S) == 0
    finally:
        stays.with_name("browser.over").touch()
    assert process.ended() == 0
    assert process.err == []
