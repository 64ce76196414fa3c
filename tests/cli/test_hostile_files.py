"""Files beside a record, read models and answers of a hostile server: readers tell the truth or refuse."""

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stenotest.command_line import Steno
from stenotest.dstack_history import job, run_item, submission
from stenotest.in_process import InProcess
from stenotest.machines import machine_item

from steno.cli.wiring.app import App
from steno.cli.wiring.errors import code_of, exit_code_of
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import world_of
from steno.engine.runtime.controllers import watching
from steno.engine.state.states import VmState
from steno.engine.state.world import World
from steno.events.clock import SystemClock
from steno.events.store.record import Record
from steno.projections.read_models.store import ProjectionStore, connected
from steno.projections.read_models.world_table import encode

TRACE = Path(__file__).parent.parent / "traces" / "dstack-0.22.5" / "failure.jsonl.zst"


def flipped(file: Path) -> None:
    """Change a byte of every page, the schema's among them."""
    content = bytearray(file.read_bytes())
    for place in range(2000, len(content), 4096):
        content[place] ^= 0xFF
    file.write_bytes(content)


def replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Something else stands where the file was."""

    def change(file: Path) -> None:
        file.unlink()
        make(file)

    return change


def dropped(file: Path) -> None:
    """A table is missing."""
    with sqlite3.connect(file) as database:
        database.execute("DROP TABLE runs")
    database.close()


CHANGES: dict[str, Callable[[Path], object]] = {
    "garbage": lambda file: file.write_bytes(b"x" * 5000),
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: os.truncate(file, 20_000),
    "a byte of every page flipped": flipped,
    "a table dropped": dropped,
    "a folder": replaced(Path.mkdir),
    "a link to a file of another": replaced(lambda file: file.symlink_to(file.parent / "victim")),
    "a link to itself": replaced(lambda file: file.symlink_to(file)),
    "a device": replaced(lambda file: file.symlink_to("/dev/zero")),
}


@pytest.mark.ci
@pytest.mark.parametrize("through", ["the file", "the link"])
@pytest.mark.parametrize("change", CHANGES)
def test_damaged_read_models_are_built_again(tmp_path: Path, change: str, through: str) -> None:
    """Unreadable read models are not used: the answer is the record's, and no file of anybody else is touched."""
    (tmp_path / "victim").write_bytes(b"not ours")
    call = InProcess(tmp_path)
    call.page("import", TRACE)
    truth = call("ps", "--all", "--json").stdout
    assert '"failed"' in truth
    link = tmp_path / "record.db.projections"
    if through == "the file":
        CHANGES[change](link.resolve())
    elif change.startswith("a link") or change in ("a folder", "a device"):
        CHANGES[change](link)
    else:
        link.unlink()
        link.write_bytes(b"x")
    answer = call("ps", "--all", "--json")
    assert (answer.exit_code, answer.stdout) == (0, truth), answer.exception
    assert (tmp_path / "victim").read_bytes() == b"not ours"


@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder"])
@pytest.mark.parametrize("words", [("ps",), ("verify",), ("import", str(TRACE))])
def test_what_is_no_file_is_no_record(tmp_path: Path, kind: str, words: tuple[str, ...]) -> None:
    """A pipe was waited for."""
    record = tmp_path / "record.db"
    if kind == "a pipe":
        os.mkfifo(record)
    elif kind == "a device":
        record.symlink_to("/dev/zero")
    else:
        record.mkdir()
    done = InProcess(tmp_path)(*words)
    assert code_of(done.exception) in (5, 7, 8), done.exception


ODD = {
    "a huge number": "9" * 400,
    "a number beyond 64 bits": str(2**64),
    "a number beyond floats": "1e400",
    "the largest float": "1e308",
    "below zero": "-1e308",
    "a list": "[]",
    "an object": "{}",
    "the year 1": '"0001-01-01T00:00:00+23:59"',
    "the year 9999": '"9999-12-31T23:59:59-23:59"',
    "escapes": r'"\u001b]0;owned\u0007\u001b[2J\u009b2J\r\u202e\u0000\u007f"',
    "more rows": r'"a\nsteno: all is well\nb"',
    "longer than a screen": '"' + "x" * 3000 + '"',
}
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def variants(value: Any) -> Iterator[str]:
    """The JSON text of an item with each value in turn replaced by each odd one, and an id of its own."""
    for number, text in enumerate(_parts(value)):
        if json.dumps(value["id"]) in text:
            yield text.replace(json.dumps(value["id"]), json.dumps(f"{value['id']}/{number}"), 1)


def _parts(value: Any) -> Iterator[str]:
    yield from ODD.values()
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        for odd in _parts(part):
            changed = dict(value) if isinstance(value, dict) else list(value)
            changed[key] = "the odd one"
            yield json.dumps(changed).replace('"the odd one"', odd)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> InProcess:
    """`page("ps")`: a command about a record of some hundred odd runs and machines."""
    home = tmp_path_factory.mktemp("home")
    ended = submission("done", exit_status=0, hostname="10.0.0.1", price=1.99)
    runs = list(variants(run_item("odd", "done", job(ended), reason="all_jobs_done", cost=0.5)))[::5]
    machines = list(variants(machine_item("fleet-0", "idle", created=1.5)))[::5]
    trace = home / "odd.jsonl"
    with trace.open("w") as file:
        for path, rows in (("/api/runs/list", runs), ("/api/instances/list", machines)):
            for first in range(0, len(rows), 50):
                head = {"t": f"2026-01-01T00:00:{first // 50:02d}Z", "path": path, "status": 200, "ms": 5}
                head["req"] = {"project_name": "main"} if "runs" in path else {"project_names": ["main"]}
                file.write(json.dumps(head)[:-1] + f',"body":[{",".join(rows[first : first + 50])}]}}\n')
    call = InProcess(home, COLUMNS="120", FORCE_COLOR="1", NO_COLOR="")
    assert len(runs) + len(machines) > 150
    call.page("import", trace)
    return call


READERS = ("ps --all", "vms --all", "costs --by run", "costs --by vm", "costs --by user", "budget", "polls", "replay")


@pytest.mark.parametrize("command", READERS)
def test_every_reader_answers_and_prints_nothing_a_terminal_obeys(page: InProcess, command: str) -> None:
    """No value that a server sends ends a command, moves the cursor, sets a title or adds a row of its own."""
    for words in (command.split(), [*command.split(), "--json"]):
        done = page(*words)
        assert done.exit_code == 0, (done.output[-300:], done.exception)
        assert not OBEYED.search(re.sub("\x1b\\[[0-9]{1,2}m", "", done.output.replace("\r\n", "\n")))
    assert not any(line.startswith("steno: all is well") for line in page(*command.split()).output.splitlines())


def test_every_page_of_a_run_and_of_a_machine_answers(page: InProcess) -> None:
    """Also of those whose times, exit statuses, prices and names cannot be what they say."""
    runs = page.json("ps", "--all")["runs"]
    machines = page.json("vms", "--all")["vms"]
    assert len(runs) > 50
    calls = [(command, run["run_id"]) for run in runs[::11] for command in ("show", "timeline", "explain")]
    calls += [("explain", machine["vm_id"]) for machine in machines[::11]]
    for words in calls:
        done = page(*words)
        assert done.exit_code == 0, (words, done.output[-300:], done.exception)
        assert not OBEYED.search(re.sub("\x1b\\[[0-9]{1,2}m", "", done.output))


def test_an_argument_that_is_not_utf_8_is_a_mistake_of_usage(page: InProcess) -> None:
    """The shell hands over any bytes; no run has such a name."""
    assert exit_code_of(page("show", "\udcff").exception) == 2


LONG_AGO = 1


@contextmanager
def decided_from(record: Path) -> Iterator[tuple[World, World]]:
    """The world that a recorder of this record starts with, and the world the record gives."""
    app = App()
    app.set_flag("record", str(record))
    with (
        Record.open(record, write=True, shapes=READINGS.shape, clock=SystemClock()) as opened,
        closing(app.provider("local", opened.store)) as provider,
        watching(app, opened, provider) as controller,
    ):
        yield controller.world.state, world_of(opened).state


def lie(projections: Path) -> None:
    """Write into the read models that every machine has idled since 1970 and every run is another's."""
    idle = {"state": VmState.IDLE, "idle_from": LONG_AGO, "idle_since": LONG_AGO, "occupancies": ()}
    with ProjectionStore(connected(str(projections))) as store, store.writing():
        for vm in list(store.vms.all()):
            false = msgspec.structs.replace(vm.decoded, provider_id="other", **idle)
            store.vms.put([msgspec.structs.replace(vm, folded=encode(false))])
        for run in list(store.runs.all()):
            false_run = msgspec.structs.replace(run.decoded, provider_id="another")
            store.runs.put([msgspec.structs.replace(run, folded=encode(false_run))])


@pytest.mark.parametrize("file", ["false", "none", "garbage"])
def test_a_recorder_starts_from_the_record_whatever_the_read_models_say(
    steno: Steno, record_file: Path, file: str
) -> None:
    """A false state there could end a busy machine."""
    assert steno("submit", "--wait", "--name", "one", "--", "true", STENO_LOCAL_PRICE="1.99").returncode == 0
    assert steno("ps").returncode == 0
    projections = Path(f"{record_file}.projections")
    assert projections.exists()
    match file:
        case "false":
            lie(projections)
        case "none":
            projections.resolve().unlink()
        case _:
            projections.resolve().write_bytes(b"not a database" * 1000)
    with decided_from(record_file) as (begun, truth):
        assert begun.vms
        assert (begun.vms, begun.runs, begun.by_provider) == (truth.vms, truth.runs, truth.by_provider)
