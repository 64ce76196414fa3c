"""Output on a terminal: pager, progress, following, and text that would steer it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from stenotest import steno_process
from stenotest.command_line import Background, Steno, refused
from stenotest.dstack_history import DstackHistory, single
from stenotest.every_event import record_of_every_event
from stenotest.gated_run import holding
from stenotest.terminal import Shown, on_terminal
from stenotest.waiting import wait

from steno.events import types

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
    screen = on_terminal([command], cwd=home, env=variables, streams=("stdin", "stdout"))
    assert screen.code == 0
    header, *lines = [line.removeprefix("paged:") for line in screen.terminal.splitlines() if line.startswith("paged:")]
    assert header.split()[0] == "POSITION"
    assert lines == piped
    assert screen.terminal.count("\n") == len(piped) + 1


def test_watch_alone_prints_every_run_until_it_is_interrupted(steno: Steno, background: Background, gate: Path) -> None:
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


def test_open_without_a_browser_prints_the_address(steno: Steno, background: Background) -> None:
    """And says that nothing was opened."""
    service = background("up", out=subprocess.PIPE)
    assert service.stdout is not None
    url = next(line for line in service.stdout if "serving" in line).split("serving ")[1].split()[0]
    done = steno("open", STENO_API_PORT=url.rsplit(":", 1)[1], BROWSER="/nowhere/browser", PATH="/nowhere")
    assert (done.returncode, done.stdout) == (0, f"{url}\n")
    assert "no browser here" in done.stderr


def test_an_event_of_every_type_is_printed_as_json(steno: Steno, place: str) -> None:
    """A law over all types, with all fields and with none that can be left out."""
    record_of_every_event(place)
    done = steno("events", "--json")
    assert done.returncode == 0, done.stderr
    assert {json.loads(line)["type"] for line in done.stdout.splitlines()} == types.NAMES
    rows = steno("sql", "select data from events", "--json")
    assert rows.returncode == 0, rows.stderr
    answer = [json.loads(row["data"]) for row in map(json.loads, rows.stdout.splitlines())]
    assert len(answer) == len(done.stdout.splitlines())


@pytest.mark.parametrize("command", ["events", "polls"])
def test_following_begins_now_or_with_the_last_rows(
    steno: Steno, background: Background, tmp_path: Path, command: str
) -> None:
    """Alone it prints nothing that was there before; with -n the newest rows first."""
    steno("submit", "--wait", "-q", "--", "true")
    before = json.loads(steno(command, "-n", "1", "--json").stdout)["position"]
    new, last = tmp_path / "new", tmp_path / "last"
    with new.open("w") as out, last.open("w") as other:
        background(command, "-f", "--json", out=out)
        background(command, "-n", "1", "-f", "--json", out=other)
        wait(last.read_text)

        def said() -> bool:
            steno("submit", "--wait", "-q", "--", "true")
            return bool(new.read_text()) and last.read_text().count("\n") > 1

        wait(said)
    first = [json.loads(path.read_text().splitlines()[0])["position"] for path in (new, last)]
    assert first[0] > before
    assert first[1] == before


def test_following_has_no_end(steno: Steno) -> None:
    steno("submit", "--wait", "-q", "--", "true")
    assert "leave --to out" in refused(steno("polls", "-f", "--to", "1h"), 2)


STEERING = (
    "\x1b]52;c;aGVsbG8=\x07",  # writes into the clipboard
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x1b[2J\x1b[H",  # clears the screen
    "\x1b[6n\x1b[c",  # makes the terminal type an answer
    "\x1bP$q\x1b\\",
    "\x9b2J",
    "\x08\x08\x7f",
    "a\u202eb",
)


def test_a_run_does_not_steer_the_terminal(tmp_path: Path) -> None:
    """Its output is anybody's. A file gets it unchanged."""
    output = "\x1b[31mred\x1b[0m\r\n\ttab " + " ".join(STEERING) + "\n"
    script = tmp_path / "says.py"
    script.write_bytes(b"import sys\nsys.stdout.buffer.write(%r)\n" % output.encode())
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    steno = [sys.executable, "-m", "steno.cli.main"]

    def call(*words: str) -> bytes:
        return subprocess.run([*steno, *words], env=environment, cwd=tmp_path, capture_output=True, check=True).stdout

    call("submit", "--wait", "--name", "says", "--", f"{sys.executable} {script}")
    assert call("logs", "says") == output.encode()

    code, text, _ = on_terminal(["logs", "says"], cwd=tmp_path, env=environment, streams=("stdout",))
    assert code == 0
    assert "\x1b[31mred\x1b[0m\r" in text
    assert "\ttab" in text
    assert "\\x1b]52;c;aGVsbG8=\\x07" in text
    assert [control for control in STEERING if control in text] == []
    assert not {"\x07", "\x08", "\x7f", "\x9b", "\u202e"} & set(text)
    assert text.count("\x1b") == 2


def test_a_providers_texts_stay_on_their_line(tmp_path: Path) -> None:
    """Names, users and words of a provider neither begin a line of ours nor colour it."""
    hostile = "u\x1b[31m\x1b]0;pwn\x07\r\nfake line\x1b[2K"
    item = single("esc", "failed", "failed", reason="job_failed", job_reason=hostile)
    item["user"] = item["run_spec"]["configuration"]["image"] = hostile
    item["run_spec"]["run_name"] = f"esc{hostile}"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    trace = DstackHistory().listed(item).write(tmp_path / "trace.jsonl")
    assert on_terminal(["import", str(trace)], cwd=tmp_path, env=environment).code == 0
    ps = on_terminal(["ps", "--all", "--json"], cwd=tmp_path, env=environment, streams=("stdout",))
    run_id = json.loads(ps.terminal)["runs"][0]["run_id"]
    for words in (["ps", "--all"], ["ps", "--all", "--wide"], ["show", run_id], ["timeline", run_id], ["incidents"]):
        code, text, _ = on_terminal(words, cwd=tmp_path, env=environment)
        assert code == 0, text
        assert [control for control in ("\x07", "u\x1b[31m", "\x1b[2K") if control in text] == [], words
        assert [line for line in text.splitlines() if line.startswith(("fake", "\x1b[2Kfake"))] == [], words


TRACE = Path(__file__).parents[1] / "traces" / "dstack-0.22.5" / "several.jsonl.zst"
AT_ONCE = """
import sys
from steno.cli.wiring import output
from steno.engine.replay import replay
from steno.events.store import verify
output.PATIENCE = 0
replay._STEP = verify._CHUNK = 50
from steno.cli.main import main
main()
"""
"""Steno that shows progress of short work too."""


def impatient(words: Sequence[str], **options: Any) -> Any:
    return steno_process.Popen(words, program=AT_ONCE, **options)


def shown(words: Sequence[object], home: Path, environment: Mapping[str, str]) -> Shown:
    """Its output where only standard error is a terminal."""
    return on_terminal([*map(str, words)], cwd=home, env=environment, streams=("stderr",), start=impatient)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("import", TRACE), "importing"),
        pytest.param(("replay", TRACE), "replaying under the rules in force", marks=pytest.mark.long),
        (("replay",), "replaying under the rules in force"),
        pytest.param(("replay", "--diff", "2025-12-sdk"), "replaying under 2025-12-sdk", marks=pytest.mark.long),
        (("export", "--trace", "all.jsonl"), "exporting"),
        (("verify",), "verifying"),
    ],
    ids=lambda value: " ".join(map(str, value)).replace(str(TRACE), "TRACE") if isinstance(value, tuple) else value,
)
@pytest.mark.usefixtures("record_file")
def test_long_reading_shows_progress_on_a_terminal(
    steno: Steno, home: Path, environment: dict[str, str], words: tuple[object, ...], what: str
) -> None:
    """A bar that grows and is gone at the end; the answer on standard output is the one without a terminal."""
    if words[0] != "import":
        assert steno("import", TRACE).returncode == 0
    environment["COLUMNS"] = "100"
    screen = shown(words, home, environment)
    bars = [part for part in screen.terminal.split("\r") if part.startswith(what)]
    shares = [int(bar.rstrip("%").split()[-1]) for bar in bars]
    assert len(shares) > 2
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] <= 100
    assert screen.terminal.rstrip("\n").endswith("\r\x1b[K")
    assert what not in screen.out

    (home / "record.db").rename(home / "of-the-terminal.db")
    if words[0] != "import":
        assert steno("import", TRACE).returncode == 0
    again = steno(*words)
    assert (again.returncode, again.stderr) == (screen.code, "")
    assert words[0] == "verify" or again.stdout == screen.out
