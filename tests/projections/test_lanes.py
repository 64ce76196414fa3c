"""Machines as lanes: each says whose polls show it, as a blind time says whose polls failed to come."""

from itertools import islice
from pathlib import Path

import msgspec
from stenotest.big import polls
from stenotest.dstack_history import START

from steno.engine.providers.registry import READINGS
from steno.events.clock import SECOND, SystemClock
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections.answers import incidents
from steno.projections.answers.overview import lanes
from steno.projections.read_models.reader_pool import Pool

ROUNDS = 300
"""Looks of each source at runs and at machines, five seconds apart."""


class Stands(SystemClock):
    """A clock that stands at the end of what was looked at."""

    def now(self) -> int:
        """Always the same."""
        return START + ROUNDS * 5 * SECOND


def two_sources(*, silent: range) -> list[Poll]:
    """Looks at two projects, in the order they were taken; the second was not asked in some of the rounds."""
    first = islice(polls(START), ROUNDS * 2)
    second = islice(polls(START, first=1000, source="dstack/other"), ROUNDS * 2)
    heard = (poll for number, poll in enumerate(second) if number // 2 not in silent)
    return sorted([*first, *heard], key=lambda poll: poll.observed_at)


def test_a_machine_names_the_source_that_was_blind_and_no_other(tmp_path: Path) -> None:
    """Two sources with machines of the same names, of which one was silent for five minutes: only its machines have
    the name that the gap has.
    """
    with Record.open(
        tmp_path / "record.db", write=True, create=True, shapes=READINGS.shape, clock=SystemClock()
    ) as record:
        record.append_polls(two_sources(silent=range(100, 160)))
    pool = Pool(tmp_path / "record.db", clock=Stands())
    with pool.now() as look:
        (gap,) = incidents.blind(look)
        _, shown_lanes = lanes(look)
        machines = [msgspec.json.decode(msgspec.json.encode(lane.vm)) for lane in shown_lanes]
        assert (gap.source, gap.kind) == ("dstack/other", "not_polled")
        assert {vm["source"] for vm in machines} == {"dstack/main", "dstack/other"}
        names = [{vm["name"] for vm in machines if vm["source"] == source} for source in ("dstack/main", gap.source)]
        assert names[0] & names[1]
        for vm in machines:
            assert vm["source"] == look.view.machine(vm["vm_id"]).source
            assert list(vm)[-1] == "source", "a key is added at the end"
    pool.close()
