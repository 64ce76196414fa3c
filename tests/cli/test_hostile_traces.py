"""Traces that are bombs or devices, and canary secrets: one line, little memory, and no secret anywhere."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from click.testing import CliRunner
from stenotest import steno_process

from steno.cli.program import steno
from steno.cli.wiring.app import App

pytestmark = pytest.mark.slow

GOOD = b'{"t":"2026-01-01T00:00:00Z","path":"/api/runs/list","req":{},"status":200,"ms":5,"body":[]}\n'
OPEN = GOOD[: GOOD.index(b"[]")]
LITTLE_MEMORY = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (900_000_000, 900_000_000))
from steno.cli.main import main
main()
"""
"""Bytes of address space a command may take here; without a file it takes 400 MB, most of it never touched."""


def bomb(*pieces: bytes, times: int) -> bytes:
    """The last piece many times, behind the others, packed to a few hundred kB."""
    *first, last = pieces
    pack = zstandard.ZstdCompressor().compressobj()
    return b"".join([*map(pack.compress, first), *(pack.compress(last) for _ in range(times)), pack.flush()])


BLANK = b" " * 10_000_000
BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "blanks.jsonl.zst": (lambda: bomb(GOOD, BLANK, times=150), "line 2 is longer than 64 MB"),
    "newlines.jsonl.zst": (lambda: bomb(GOOD, b"\n" * 10_000_000, times=150), "lines up to line 1000002 are blank"),
    "body.jsonl.zst": (lambda: bomb(GOOD, OPEN + b"[", b"0," * 5_000_000, times=150), "line 2 is longer than 64 MB"),
    "cut.jsonl.zst": (lambda: bomb(GOOD, BLANK, times=1)[:-10], "cannot be unpacked behind line 1"),
    "wide.jsonl": (lambda: OPEN + b"[" + b"[]," * 1_000_000 + b"[]]}\n", "it holds too many values"),
    "huge.jsonl": (lambda: GOOD.replace(b":5", b":1e308"), "its times are out of range"),
    "early.jsonl": (lambda: GOOD.replace(b"2026", b"0001").replace(b"00Z", b"00+23:59"), "out of range"),
    "zeros.jsonl": (lambda: b"\0" * 100_000, "line 1 is no"),
    "bytes.jsonl": (lambda: GOOD.replace(b"/api", b"\xff"), "line 1 is no"),
}
"""How a file is made, and the line about it."""


def called(home: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    """The genuine command with little memory."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "STENO_RECORD": str(home / "r.db")}
    return steno_process.run([*map(str, words)], program=LITTLE_MEMORY, env=env, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_one_line_and_little_memory(home: Path, name: str) -> None:
    """A few hundred kB unpack to 1.5 GB: one clear line and exit 2, in bounded memory."""
    make, line = BOMBS[name]
    (home / name).write_bytes(make())
    assert (home / name).stat().st_size < 4_000_000
    done = called(home, "replay", home / name)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", ["a sparse line", "a pipe", "a device", "a link to itself"])
def test_a_file_that_never_ends_is_not_read(home: Path, kind: str) -> None:
    """A gigabyte without a line end, a pipe that nobody writes to, /dev/zero."""
    file = home / "odd.jsonl"
    match kind:
        case "a sparse line":
            with file.open("wb") as sparse:
                sparse.truncate(1_000_000_000)
        case "a pipe":
            os.mkfifo(file)
        case "a device":
            file.symlink_to("/dev/zero")
        case _:
            file.symlink_to(file)
    done = called(home, "replay", file)
    assert done.returncode in (2, 4)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)


CANARY = re.compile(rb"canary-[a-z]+")
GIVEN = {
    "STENO_DSTACK_TOKEN": "canary-token-of-dstack",
    "STENO_DSTACK_URL": "http://127.0.0.1:1",
    "STENO_PROJECT": "main",
    "STENO_WEBHOOK": "http://127.0.0.1:1/services/canary-webhook",
    "STENO_WEBHOOK_SECRET": "canary-signing",
    "DSTACK_AMDDEVCLOUD_API_KEY": "canary-cloud",
    "INHERITED": "canary-inherited",
}
TASK = """\
type: task
name: holder
commands: ["sleep 600"]
env: {API_KEY: canary-written, OTHER: canary-other}
registry_auth: {username: me, password: canary-registry}
"""
READERS = (
    "ps --all --json", "show holder --json", "timeline holder", "explain holder", "events --json", "polls --json",
    "poll 2", "replay --json", "metrics", "notify list --json", "budget --json", "verify", "config", "config --json",
    "doctor", "doctor --provider dstack", "export holder -o holder.steno", "export holder --trace holder.jsonl",
    "notify test", "show nobody", "submit --provider dstack -f task.yml", "stop nobody",
)  # fmt: skip


def test_no_canary_is_told_written_or_listed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings' secrets, values of `env` written and inherited, registry credentials, addresses that are keys."""
    monkeypatch.chdir(home)
    surroundings: Any = GIVEN | {"HOME": str(home), "STENO_RECORD": str(home / "record.db"), "STENO_DEBUG": "1"}
    task = home.parent / "task.yml"
    task.write_text(TASK)

    def call(*words: str) -> str:
        done = CliRunner(env=surroundings).invoke(steno, list(words), obj=App())
        return done.output + repr(done.exception)

    outputs = {
        "submit": call(
            "submit", "--provider", "local", "-f", str(task), "--env", "FLAG=canary-flag", "--env", "INHERITED"
        )
    }
    assert '"name":"holder"' in call("ps", "--json")
    for words in READERS:
        outputs[words] = call(*words.replace("task.yml", str(task)).split())

    assert {
        words: CANARY.findall(text.encode()) for words, text in outputs.items() if CANARY.search(text.encode())
    } == {}
    written = {file: CANARY.findall(file.read_bytes()) for file in home.rglob("*") if file.is_file()}
    assert len(written) > 10
    assert {file.name: secrets for file, secrets in written.items() if secrets} == {}
    assert [
        file.name for file in home.glob("record.db*") if not file.is_symlink() and file.stat().st_mode & 0o077
    ] == []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            listed = line.read_bytes()
        except OSError:
            continue
        assert b"canary-" not in listed
