"""The output of runs is in the record: head and tail, once, whatever is printed, killed or hanging."""

import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stenotest.records import StandingClock, temporary_record

from steno.engine.control.output_recorder import OutputPolicy, OutputRecorder
from steno.engine.errors import ProviderUnreachable
from steno.engine.state.run import Run
from steno.engine.state.states import State
from steno.events.clock import SECOND, SystemClock
from steno.events.shape.secrets import masked
from steno.events.store.outputs import chunks, kept_output
from steno.events.store.record import Record

DAY = 86_400 * SECOND
POSITIONS = {"first_position": 1, "first_at": 0, "last_position": 1, "last_at": 0}
KEPT = OutputPolicy(head=100, tail=200, keep=90 * DAY)


class Printer:
    """A provider whose runs print pieces; it fails so often behind them."""

    name, project = "local", "p"

    def __init__(self, pieces, fails=0):
        self.pieces, self.fails, self.passes = pieces, fails, 0

    def logs(self, _provider_id, _name, *, follow):
        self.passes += 1
        yield from self.pieces
        if self.passes <= self.fails:
            raise ProviderUnreachable("it does not answer")


class Runs(dict):
    def open(self):
        return [run for run in self.values() if not run.terminal]

    def ended_since(self, _moment):
        return [run for run in self.values() if run.terminal]


def run_of(state=State.SUCCEEDED, **more):
    given = {"run_id": "a", "provider": "local", "project": "p", "provider_id": "p-1", "state": state}
    return Run(**{**given, **POSITIONS, **more})


class Desk:
    """A record, a provider that prints, and the recorder between them."""

    def __init__(self, record, printer, policy=KEPT, *runs):
        self.record, self.clock = record, StandingClock()
        self.recorder = OutputRecorder(record, printer, self.clock, policy)
        self.state = SimpleNamespace(runs=Runs({run.run_id: run for run in runs or [run_of()]}))

    def look(self):
        self.recorder.look(self.state)
        for output in self.recorder._open.values():
            if output.thread is not None:
                output.thread.join(0.002)
        self.clock.sleep(60 * SECOND)

    def look_until(self, done):
        end = time.monotonic() + 300
        while not done():
            assert time.monotonic() < end, "it took too long"
            self.look()

    def finish(self, run_id="a"):
        """The chunks of the whole output."""
        self.look_until(lambda: any(chunk.event.last for chunk in chunks(self.record, run_id)))
        return list(chunks(self.record, run_id))


@contextmanager
def desk(printer, policy=KEPT, *runs):
    with tempfile.TemporaryDirectory() as folder, temporary_record(Path(folder)) as record:
        made = Desk(record, printer, policy, *runs)
        yield made
        made.recorder.close()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.binary(max_size=300), max_size=12),
    st.integers(0, 400),
    st.integers(0, 400),
    st.integers(0, 2),
    st.sampled_from([State.RUNNING, State.FAILED]),
)
def test_any_pieces_leave_the_same_head_and_tail(pieces, head, tail, fails, state):
    """Law: head and tail are the output's own, the chunks and gaps cover it without overlap, and each hash is right."""
    whole = b"".join(pieces)
    with desk(Printer(pieces, fails), OutputPolicy(head=head, tail=tail, keep=DAY), run_of(state)) as here:
        if state is State.RUNNING:
            here.look_until(lambda: here.recorder._open and here.recorder._open["a"].thread is None)
            here.state.runs["a"] = run_of()
        read = here.finish()
        end = 0
        for chunk in read:
            assert chunk.offset == end + chunk.event.skipped
            end = chunk.offset + chunk.event.size
            if chunk.data is not None:
                assert whole[chunk.offset : end] == chunk.data
                assert sha256(chunk.data).hexdigest() == chunk.sha256
        assert end + 0 == len(whole) or tail == 0
        kept = {at for chunk in read if chunk.data for at in range(chunk.offset, chunk.offset + len(chunk.data))}
        assert kept >= {*range(min(head, len(whole))), *range(max(0, len(whole) - tail), len(whole))}
        assert here.record.verify().ok
        assert [chunk.event.last for chunk in read] == [False] * (len(read) - 1) + [True]


def test_an_output_of_any_size_costs_head_and_tail():
    """64 MB of one line without an end, or of equal lines: 2 MB are kept, little more was ever written."""
    size = 1 << 20
    for piece in (b"x" * size, b"y\n" * (size // 2)):
        with desk(Printer([piece] * 64), OutputPolicy(head=size, tail=size, keep=DAY)) as here:
            read = here.finish()
            assert sum(len(chunk.data or b"") for chunk in read) <= 3 * size
            assert sum(chunk.event.size + chunk.event.skipped for chunk in read) == 64 * size
            text = b"".join(kept_output(here.record, "a", "p-1"))
            assert text.count(b"bytes were not kept") == 1
            verdict = here.record.verify()
            assert (verdict.ok, verdict.outputs + verdict.dropped) == (True, len(read))


@given(st.data())
def test_a_secret_is_found_across_pieces(data):
    """Law: however the text is cut, every value is masked, nothing else is, and places stay."""
    values = data.draw(
        st.lists(st.sampled_from([b"sk-0123456789", b"abababababab", b"short", b"0123456789"]), unique=True)
    )
    values.sort(key=len, reverse=True)
    text = b"".join(data.draw(st.lists(st.sampled_from([*values, b"sk-01", b"ab", b" ", b"\n0123"]), max_size=8)))
    clean, sure = masked(text, values)
    assert len(clean) == len(text)
    assert not any(value in clean for value in values if len(value) >= 8)
    assert all(a in (b, ord("*")) for a, b in zip(clean, text, strict=True))
    for cut in range(len(text)):
        first, sure = masked(text[:cut], values)
        assert not any(
            value in first[:sure] + masked(first[sure:] + text[cut:], values)[0] for value in values if len(value) >= 8
        )


def test_values_of_the_vault_are_masked_also_when_it_forgot_them(tmp_path):
    """The vault forgets a value when the run has started; the process that read it does not."""
    with temporary_record(tmp_path) as record:
        record.vault.conceal(b'{"env":{"KEY":"sk-verysecret-1","DEBUG":"1"}}', "a")
        assert record.vault.owners() == ("a",)
        record.vault.erase("a")
        here = Desk(record, Printer([b"1: sk-very", b"secret", b"-1 sk-very", b"late\n"]))
        here.finish()
        assert b"".join(kept_output(record, "a", "p-1")) == b"1: ***************" + b" sk-verylate\n"
        here.recorder.close()


def test_a_log_that_hangs_delays_nothing_and_one_that_fails_is_tried_again():
    with desk(Printer([b"one\n"], fails=2)) as here:
        here.finish()
        assert here.recorder._provider.passes == 3
    with desk(Printer([b"one\n"], fails=9)) as here:
        here.look_until(lambda: here.recorder._next == {} and not here.recorder._open)
        assert here.recorder._provider.passes == 4
        assert (
            b"".join(kept_output(here.record, "a", "p-1")) == b"one\n"
        )  # it is not complete: the next process reads on
        assert not any(chunk.event.last for chunk in chunks(here.record, "a"))  # the next process reads on


def test_the_rest_of_the_output_of_a_run_that_ended_is_due_at_once():
    """Also behind a pass that ended before the run did: nothing waits for a clock that stands still."""
    printer = Printer([b"one\n"])
    printer.unhurried_logs = lambda *_: None
    with desk(printer, KEPT, run_of(State.RUNNING)) as here:
        here.recorder.look(here.state)
        here.recorder._open["a"].thread.join()
        here.recorder.look(here.state)
        printer.pieces.append(b"two\n")
        here.state.runs["a"] = run_of()
        assert here.recorder.is_due("a")
        for _ in range(4):
            here.recorder.look(here.state)
            if (output := here.recorder._open.get("a")) is not None and output.thread is not None:
                output.thread.join()
        assert not here.recorder.is_due("a")
        assert b"".join(kept_output(here.record, "a", "p-1")) == b"one\ntwo\n"
        assert here.clock.now() == StandingClock().now()
    with desk(Printer([b"one\n"], fails=9)) as here:
        here.look()
        here.look_until(lambda: not here.recorder.is_due("a"))
        assert here.recorder._provider.passes == 1  # what fails is tried again later, by whoever records then


def test_only_so_many_are_read_at_once_and_all_in_the_end():
    runs = [run_of(run_id=f"r{number}", provider_id=f"p{number}") for number in range(40)]
    with desk(Printer([b"hello\n"]), KEPT, *runs) as here:
        here.recorder.look(here.state)
        assert len(here.recorder._open) == 8
        for run in runs:
            here.finish(run.run_id)
            assert b"".join(kept_output(here.record, run.run_id, run.provider_id)) == b"hello\n"


def test_nothing_is_kept_where_that_is_off(tmp_path):
    """And what is there is dropped, also what is too old; verify passes."""
    with desk(Printer([b"hello\n"])) as here:
        here.finish()
        here.clock.sleep(89 * DAY)
        here.look()
        assert b"".join(kept_output(here.record, "a", "p-1"))
        here.clock.sleep(2 * DAY)
        here.look()
        assert not list(kept_output(here.record, "a", "p-1"))
        verdict = here.record.verify()
        assert (verdict.ok, verdict.outputs, verdict.dropped) == (True, 0, 1)
    with desk(Printer([b"hello\n"]), OutputPolicy(head=9, tail=9, keep=0)) as here:
        here.look()
        here.look()
        assert not here.recorder._open
        assert here.recorder._provider.passes == 0


CHILD = """
import sys, time
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from steno.engine.control import output_recorder
output_recorder.LARGEST = 5000
from test_output_record import Desk, Printer, OutputPolicy, DAY, run_of
from steno.events.store.record import Record
from steno.events.clock import SystemClock
pieces = [(b"%07d\\n" % number) for number in range(40_000)]
with Record.open(sys.argv[1], clock=SystemClock(), write=True) as record:
    here = Desk(record, Printer(pieces), OutputPolicy(head=1000, tail=100_000, keep=DAY), run_of())
    print("begun", flush=True)
    here.finish()
"""


@pytest.mark.slow
def test_a_recorder_that_is_killed_stores_nothing_twice(tmp_path):
    """The next process reads on where the record ends."""
    temporary_record(tmp_path).close()
    path = tmp_path / "record.db"
    support = [str(Path(__file__).parent), *map(str, sys.path)]
    for number in range(4):
        with subprocess.Popen([sys.executable, "-c", CHILD, path, *support], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"begun\n"
            time.sleep(number * 0.01)  # not a wait: the moment of the kill
            child.kill()
    with Record.open(path, clock=SystemClock(), write=True) as record:
        whole = b"".join(b"%07d\n" % number for number in range(40_000))
        here = Desk(record, Printer([whole]), OutputPolicy(head=1000, tail=100_000, keep=DAY))
        read = here.finish()
        here.recorder.close()
        for before, after in pairwise(read):
            assert after.offset == before.offset + before.event.size + after.event.skipped
        assert b"".join(chunk.data or b"" for chunk in read if chunk.offset >= 1000)[-100_000:] == whole[-100_000:]
        assert record.verify().ok
