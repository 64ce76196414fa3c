"""The read models that a command sees while others write on."""

from pathlib import Path

from stenotest.decided_record import DecidedRecord

from steno.cli.wiring.view import caught_up_view
from steno.engine.providers.registry import READINGS
from steno.events.clock import SystemClock
from steno.events.store.record import Record


def test_a_view_stays_at_its_position(tmp_path: Path) -> None:
    """A report failed where a machine was written between two of its statements."""
    site = DecidedRecord(tmp_path)
    site.request("train")
    site.round()
    site.start("train", "m1")
    site.wait(60)
    path = tmp_path / "record.db"
    with Record.open(path, clock=SystemClock(), shapes=READINGS.shape) as record, caught_up_view(record) as view:
        before, kinds = view.position, view.store.vms.kinds()
        site.wait(60)
        with Record.open(path, clock=SystemClock(), shapes=READINGS.shape) as other, caught_up_view(other) as later:
            assert later.position > before
        assert (view.position, view.store.vms.kinds()) == (before, kinds)
