"""A command that is forked does what one that is started does."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from stenotest import prefork

COMMANDS = (
    ["--version"],
    ["ps"],
    ["show", "nobody"],
    ["no-such-command"],
    ["submit", "--wait", "--name", "once", "--", "echo $PWD $HOME é"],
    ["logs", "once"],
    ["import", "-"],
)


def environment(home: Path) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "STENO_PROVIDER": "local",
        "STENO_RECORD": str(home / "r.db"),
    }


def started(words: list[str], **options: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.mark.slow
def test_both_say_the_same_and_end_alike(tmp_path):
    """Output, errors and exit codes, of commands that succeed, fail and do not exist."""
    said = []
    for run in (prefork.run, started):
        home = tmp_path / run.__name__
        env = environment(home)
        for words in COMMANDS:
            more = {"typed" if run is prefork.run else "input": "no trace\n"} if words[0] == "import" else {}
            done = run(words, env=env, cwd=home, **more)
            problem = done.stderr.replace(str(home), "~") if done.returncode else ""  # else the states that it saw
            said.append((words, done.returncode, done.stdout.count("\n"), problem))
        assert done.returncode != 0
        assert run(["logs", "once"], env=env, cwd=home).stdout == f"{home} {home} é\n"
    assert said[: len(COMMANDS)] == said[len(COMMANDS) :]


@pytest.mark.slow
def test_it_is_a_process_that_can_be_asked_to_end_and_killed(tmp_path):
    """A recorder leaves in order on SIGTERM; SIGKILL is told as by any process."""
    for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        env = environment(tmp_path)
        with prefork.Popen(["record"], env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as one:
            assert one.poll() is None
            assert one.stdout.readline()
            one.send_signal(number)
            assert one.wait(600) == code
            assert one.poll() == code


@pytest.mark.slow
def test_many_threads_may_ask_at_once(tmp_path):
    """Each gets the answer of its own command."""
    env = environment(tmp_path)
    with ThreadPoolExecutor(8) as users:
        found = users.map(lambda n: prefork.run([f"no-such-{n}"], env=env, cwd=tmp_path).stderr, range(24))
        for number, said in enumerate(found):
            assert f"no-such-{number}'" in said
