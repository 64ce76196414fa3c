"""A run on this machine: its exit, its output, its surroundings."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from steno.engine.providers.local.tree import descendants

DONE = ("ended", "exited", 0)


def failed(code: int) -> tuple[object, ...]:
    return ("ended", "exited", code)


@pytest.mark.parametrize(
    ("commands", "words"),
    [
        (("true",), DONE),
        (("exit 1",), failed(1)),
        (("exit 255",), failed(255)),
        (("false", "touch never"), failed(1)),
        (("no-such-command",), failed(127)),
        (("kill -9 $$",), failed(137)),
        (("kill -TERM $$",), failed(143)),
        (("exec >&- 2>&- <&-", "sleep 0.1"), DONE),
    ],
    ids=["success", "one", "255", "and", "not-found", "sigkill", "sigterm", "closed-stdio"],
)
def test_a_run_ends_as_its_command_does(machine, commands: tuple[str, ...], words: tuple[object, ...]) -> None:
    """The exit status is the shell's; a signal counts as 128 + its number; the first failing command ends the run."""
    run_id = machine.submit(*commands)
    assert machine.end(run_id) == words
    assert not (machine.base / "never").exists()


def test_output_is_delivered_while_the_run_goes_on(machine) -> None:
    """`logs -f` shows a line when it is written, and ends when the run has."""
    run_id = machine.submit("echo first", machine.gated, "echo second")
    pieces = machine.provider.logs(run_id, "", follow=True)
    assert next(pieces) == b"first\n"
    machine.open()
    assert b"".join(pieces) == b"second\n"
    assert machine.words(run_id) == DONE


def test_output_without_follow_is_what_there_is(machine) -> None:
    """Without `-f` the call does not wait for the end."""
    run_id = machine.submit("echo here", "sleep 600")
    next(machine.provider.logs(run_id, "", follow=True))
    assert machine.output(run_id, follow=False) == b"here\n"


def test_any_bytes_come_back_as_they_were_written(machine) -> None:
    """Output is bytes: zero bytes and invalid UTF-8 are not touched."""
    (machine.base / "blob").write_bytes(bytes(range(256)) * 40)
    run_id = machine.submit("cat blob")
    assert machine.output(run_id) == bytes(range(256)) * 40


def test_a_flood_of_output_is_kept_up_to_the_limit_and_the_command_does_not_block(machine) -> None:
    """Output over the limit is dropped, and a line says so; the run ends as it would have."""
    machine.provider = machine.another(output_limit=1_000_000)
    run_id = machine.submit("head -c 50000000 /dev/zero", "echo end >&2")
    assert machine.end(run_id) == DONE
    kept = machine.output(run_id)
    assert kept[:1_000_000] == bytes(1_000_000)
    assert kept[1_000_000:] == b"\n[steno: the limit of 1000000 bytes of output is reached, the rest is dropped]\n"


def test_a_big_output_is_kept_whole(machine) -> None:
    """Forty megabytes through the pipe, in order."""
    run_id = machine.submit("seq 1 5000000")
    output = machine.output(run_id)
    assert output.startswith(b"1\n2\n")
    assert output.endswith(b"4999999\n5000000\n")
    assert output.count(b"\n") == 5_000_000


def test_standard_input_is_empty(machine) -> None:
    """Nobody is there to answer: a read ends at once."""
    run_id = machine.submit("read line || echo nobody", "readlink /proc/self/fd/0")
    assert machine.output(run_id) == b"nobody\n/dev/null\n"


def test_the_command_has_no_descriptor_but_its_three(machine) -> None:
    """A run that held the lock's descriptor would look like its own supervisor."""
    run_id = machine.submit("exec ls -l /proc/self/fd")
    lines = machine.output(run_id).decode().splitlines()
    opened = [line.rpartition(" -> ")[2] for line in lines if " -> " in line]
    assert not [target for target in opened if str(machine.state) in target]
    assert len(opened) == 4  # and the folder that ls reads


def test_a_run_has_a_small_clean_environment(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """PATH and HOME are the user's; a token in the submitter's environment does not reach the task."""
    monkeypatch.setenv("DSTACK_TOKEN", "not-for-tasks")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("TMPDIR", os.fsdecode(b"/tmp/\xff"))  # an environment is bytes
    run_id = machine.submit("env", env={"GREETING": "hello world", "HOME": "/elsewhere"})
    seen = dict(line.partition("=")[::2] for line in machine.output(run_id).decode(errors="replace").splitlines())
    assert seen["PATH"] == os.environ["PATH"]
    assert seen["HOME"] == "/elsewhere"
    assert seen["TMPDIR"] == "/tmp/\ufffd"
    assert seen["GREETING"] == "hello world"
    assert seen["STENO_RUN_ID"] == run_id
    assert not {"DSTACK_TOKEN", "PYTHONPATH"} & seen.keys()


def test_signals_are_the_default_in_the_command(machine) -> None:
    """Nothing is ignored or blocked that the submitter or Python ignores or blocks."""
    run_id = machine.submit("exec grep -E '^Sig(Blk|Ign)' /proc/self/status")
    masks = [int(line.split()[1], 16) for line in machine.output(run_id).decode().splitlines()]
    classic = (1 << 31) - 1  # the C library keeps signals 32 and 33 for itself
    assert [mask & classic for mask in masks] == [0, 0]


@pytest.mark.parametrize("where", ["sub", "/"])
def test_a_run_works_in_its_folder(machine, where: str) -> None:
    """`working_dir` starts from the task file's folder."""
    (machine.base / "sub").mkdir()
    run_id = machine.submit("pwd -P", working_dir=where)
    assert machine.output(run_id).decode().strip() == str((machine.base / where).resolve())


def test_a_run_that_cannot_be_started_fails_and_says_why(machine) -> None:
    """A missing folder is the run's failure, in the provider's words, not the submitter's."""
    run_id = machine.submit("true", working_dir="missing")
    assert machine.end(run_id) == ("ended", "not_started", None)
    assert (
        machine.item(run_id)["message"]
        == f"cannot start /bin/bash in {machine.base}/missing: No such file or directory"
    )


def test_an_entrypoint_is_run_without_a_shell(machine) -> None:
    """As in dstack: `commands` are then its arguments; its program is looked for on the task's PATH."""
    run_id = machine.provider.submit(machine.submission("$HOME", "b c", entrypoint="printf '%s|'")).provider_id
    assert machine.output(run_id) == b"$HOME|b c|"


def test_what_a_command_leaves_behind_ends_with_it(machine) -> None:
    """As in a container: a process in the background does not outlive the run, whatever session it moved to."""
    run_id = machine.submit("setsid nohup sleep 600 &", "sleep 600 &", "echo started")
    assert machine.end(run_id) == DONE
    assert machine.output(run_id) == b"started\n"


def test_threads_of_one_process_can_submit_at_once(machine) -> None:
    """Nothing in the provider is for one thread only; each run has its own output and its own end."""
    submissions = [machine.submission(f"echo {number}", f"exit {number}") for number in range(8)]
    with ThreadPoolExecutor(len(submissions)) as pool:
        list(pool.map(machine.provider.submit, submissions))
    assert [machine.output(submission.run_id) for submission in submissions] == [b"%d\n" % n for n in range(8)]
    assert [machine.end(submission.run_id)[-1] for submission in submissions] == [*range(8)]


def test_the_command_is_there_when_the_submission_returns(machine) -> None:
    """Nothing is waited for in between, and no poll has to come first: 30 ms on two idle cores."""
    run_id = machine.submit("sleep 600")
    assert descendants(machine.supervisor(run_id), 0)


def test_state_is_for_its_owner_only(machine) -> None:
    """Folders 0700, files 0600, whatever the umask."""
    before = os.umask(0)
    try:
        run_id = machine.submit("true")
        machine.end(run_id)
    finally:
        os.umask(before)
    paths = [machine.state, *machine.state.rglob("*")]
    assert {(path.is_dir(), oct(path.stat().st_mode & 0o777)) for path in paths} == {(True, "0o700"), (False, "0o600")}


def test_the_state_folder_can_be_given_relative(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor works in another folder than the submitter."""
    monkeypatch.chdir(machine.state.parent)
    machine.state = Path("record.local")
    machine.provider = machine.another()
    assert machine.end(machine.submit("true")) == DONE
