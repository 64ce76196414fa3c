"""Canary secrets given in every way: none is in any output, file or process list while the run goes on."""

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.program import steno
from cli.wiring.app import App

pytestmark = pytest.mark.slow

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

    told = {
        "submit": call(
            "submit", "--provider", "local", "-f", str(task), "--env", "FLAG=canary-flag", "--env", "INHERITED"
        )
    }
    assert '"name":"holder"' in call("ps", "--json")
    for words in READERS:
        told[words] = call(*words.replace("task.yml", str(task)).split())

    assert {words: CANARY.findall(text.encode()) for words, text in told.items() if CANARY.search(text.encode())} == {}
    written = {file: CANARY.findall(file.read_bytes()) for file in home.rglob("*") if file.is_file()}
    assert len(written) > 10
    assert {file.name: found for file, found in written.items() if found} == {}
    assert [
        file.name for file in home.glob("record.db*") if not file.is_symlink() and file.stat().st_mode & 0o077
    ] == []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            listed = line.read_bytes()
        except OSError:
            continue
        assert b"canary-" not in listed
