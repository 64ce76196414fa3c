"""The output of runs is evidence: its head and its tail are in the record, once, whatever is killed or printed."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from stenotest.records import StandingClock, temporary_record

from steno.engine.control.output_recorder import OutputPolicy, OutputRecorder
from steno.engine.errors import ProviderUnreachable
from steno.engine.state.run import Run
from steno.engine.state.states import State
from steno.events.clock import SECOND
from steno.events.store.outputs import chunks

DAY = 86_400 * SECOND
POSITIONS = {"first_position": 1, "first_at": 0, "last_position": 1, "last_at": 0}


class Printer:
    """A provider whose run prints pieces."""

    name, project = "local", "p"

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces, self.passes, self.fails = pieces, 0, 0

    def logs(self, provider_id: str, name: str, *, follow: bool):
        self.passes += 1
        yield from self.pieces
        if self.fails:
            self.fails -= 1
            raise ProviderUnreachable("it does not answer")


class Runs(dict):
    def open(self):
        return [run for run in self.values() if not run.terminal]

    def ended_since(self, moment):
        return [run for run in self.values() if run.terminal]


def run_of(run_id="a", state=State.SUCCEEDED, provider_id="p-1"):
    return Run(run_id=run_id, provider="local", project="p", provider_id=provider_id, state=state, **POSITIONS)


class Desk:
    """A record, a provider that prints, and the recorder between them."""

    def __init__(self, folder, pieces, *, head=1 << 20, tail=1 << 20, keep=90 * DAY):
        self.record = temporary_record(folder)
        self.clock = StandingClock()
        self.printer, self.policy = Printer(pieces), OutputPolicy(head=head, tail=tail, keep=keep)
        self.state = SimpleNamespace(runs=Runs(a=run_of()))
        self.restart()

    def restart(self):
        self.recorder = OutputRecorder(self.record, self.printer, self.clock, self.policy)

    def look(self):
        for output in self.recorder._open.values():
            if output.thread is not None and output.thread.is_alive():
                output.thread.join(0.01)
        self.recorder.look(self.state)
        self.clock.sleep(60 * SECOND)

    def finish(self, run_id="a"):
        deadline = time.monotonic() + 300
        while not (read := list(chunks(self.record, run_id))) or not read[-1].event.last:
            assert time.monotonic() < deadline
            self.look()
        return read


@pytest.fixture
def desk(tmp_path):
    made = []

    def at(*pieces, **policy):
        made.append(Desk(tmp_path, list(pieces), **policy))
        return made[-1]

    yield at
    for each in made:
        each.recorder.close()
        each.record.close()


def test_x(desk):
    d = desk(b"hello\n", b"world")
    print(d.finish())
