"""The controller decides from its own fold: what the read models' file says changes no decision."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
from stenotest.command_line import Steno

from cli.wiring.app import App
from cli.wiring.recorder import watching
from engine.fold.world_codec import WorldState
from engine.providers.readings import READINGS
from engine.replay.record import world_of
from engine.states import VmState
from events.clock import SystemClock
from events.store.record import Record
from projections.store.world_table import decode_run, decode_vm, encode

LONG_AGO = 1


@contextmanager
def decided_from(record: Path) -> Iterator[tuple[WorldState, WorldState]]:
    """The world that a recorder of this record starts with, and the world the record gives."""
    app = App()
    app.set_flag("record", str(record))
    with (
        Record.open(record, write=True, shapes=READINGS.shape, clock=SystemClock()) as opened,
        closing(app.provider("local", opened.store)) as provider,
        watching(app, opened, provider) as recorder,
    ):
        yield recorder.world.state, world_of(opened).state


def lie(projections: Path) -> None:
    """Write into the read models that every machine has idled since 1970 and every run is another's."""
    with closing(sqlite3.connect(projections)) as connection, connection:
        for vm_id, folded in connection.execute("SELECT vm_id, folded FROM vms").fetchall():
            vm = decode_vm(folded)
            false = msgspec.structs.replace(
                vm, state=VmState.IDLE, idle_from=LONG_AGO, idle_since=LONG_AGO, occupancies=(), provider_id="other"
            )
            connection.execute("UPDATE vms SET folded = ? WHERE vm_id = ?", (encode(false), vm_id))
        for run_id, folded in connection.execute("SELECT run_id, folded FROM runs").fetchall():
            false_run = msgspec.structs.replace(decode_run(folded), provider_id="another")
            connection.execute("UPDATE runs SET folded = ? WHERE run_id = ?", (encode(false_run), run_id))


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
