"""A command that is forked does what a command that is started does."""

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from stenotest import steno_process

SOME = (
    ["no-such-command"],
    ["submit", "--wait", "--name", "once", "--", "echo $PWD $HOME é"],
    ["import", "-"],
)
COMMANDS = (["--version"], ["ps"], ["show", "nobody"], *SOME[:2], ["logs", "once"], SOME[2])


def environment(home: Path) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "STENO_PROVIDER": "local",
        "STENO_RECORD": str(home / "r.db"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("commands", [SOME, pytest.param(COMMANDS, marks=pytest.mark.long)], ids=["some", "all"])
def test_both_print_the_same_and_end_alike(tmp_path, monkeypatch, commands):
    """Output, errors and exit codes, of commands that succeed, fail and do not exist."""
    outcomes = []
    for fork in ("1", "0"):
        monkeypatch.setenv("STENO_TEST_FORK", fork)
        home = tmp_path / fork
        env = environment(home)
        for words in commands:
            done = steno_process.run(words, env=env, cwd=home, typed="no trace\n")
            problem = done.stderr.replace(str(home), "~") if done.returncode else ""  # else the states that it saw
            outcomes.append((words, done.returncode, done.stdout.count("\n"), problem))
        assert done.returncode != 0
        assert steno_process.run(["logs", "once"], env=env, cwd=home).stdout == f"{home} {home} é\n"
    assert outcomes[: len(commands)] == outcomes[len(commands) :]


@pytest.mark.slow
def test_it_is_a_process_that_can_be_ended_and_killed(tmp_path):
    """A recorder leaves in order on SIGTERM; SIGKILL is reported as by any process."""
    for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        options = {"env": environment(tmp_path), "cwd": tmp_path, "stderr": subprocess.DEVNULL}
        with steno_process.Popen(["record"], stdout=subprocess.PIPE, **options) as process:
            assert process.poll() is None
            assert process.stdout.readline()
            process.send_signal(number)
            assert process.wait(600) == code
            assert process.poll() == code


@pytest.mark.slow
def test_many_threads_may_start_commands_at_once(tmp_path):
    """Each gets the answer of its own command."""
    env = environment(tmp_path)
    with ThreadPoolExecutor(8) as users:
        answers = users.map(lambda n: steno_process.run([f"no-such-{n}"], env=env, cwd=tmp_path).stderr, range(24))
        for number, answer in enumerate(answers):
            assert f"no-such-{number}'" in answer


@pytest.mark.slow
def test_a_program_changes_the_steno_that_it_calls_and_no_other(tmp_path, monkeypatch):
    """Forked as by `python -c`: its arguments, its functions, its exit code."""
    program = "import sys\nfrom steno.cli import main as module\ncode = int(sys.argv[1])\n"
    program += "def main(): sys.exit(code)\nmodule.main = main\nmodule.main()\n"
    options = {"env": environment(tmp_path), "cwd": tmp_path}
    for fork in ("1", "0"):
        monkeypatch.setenv("STENO_TEST_FORK", fork)
        assert steno_process.run(["7"], program=program, **options).returncode == 7
        assert steno_process.run(["--version"], **options).returncode == 0
