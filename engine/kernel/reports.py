"""Records what tasks report: every frame is one event, once, whatever is killed when. Used by the holder of the
provider's lease. A frame's id is its attempt and its number in the output, so that frames read again after a crash are
not written again.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final

from engine.fold.lazy_things import some_of
from engine.fold.run import Run, Said
from engine.fold.run_turn import heard
from engine.fold.world_codec import WorldState
from engine.kernel.machine.frames import MARK
from engine.kernel_mark import is_genuine, read_frame, read_mark
from engine.live.journal import Journal
from engine.providers.base import Provider
from engine.states import State
from events import types
from events.clock import SECOND, Clock, backoff, foreign_run_id
from events.errors import IdConflict

MAX_LINE: Final = 256 * 1024  # bytes of one line; a longer one is no frame
MOST_FRAMES: Final = 2_000
MOST_BYTES: Final = 64 * 1024 * 1024  # of one output; the rest is not read
AT_ONCE: Final = 16  # outputs read at the same time
A_ROUND: Final = 200  # frames of one run written in one round
_PASSES: Final = 4
"""Passes over the output of a run that has ended and could not be read; after one more it is given up."""
_LAST: Final = 16 * SECOND  # the longest pause between these passes; the first is two seconds
_LOOKED_TWICE: Final = 2  # passes over an output without a final status: its last lines may come late
_SLOW: Final = 15 * SECOND  # the longest pause between two passes over the output of a live run
_MARK: Final = MARK.encode()
_GOES: Final = frozenset({State.RUNNING, State.FINISHING})
_log = logging.getLogger(__name__)


def frames_of(pieces: Iterable[bytes], key_hash: str) -> Iterator[bytes]:
    """The genuine frames of one output, each as soon as its line is complete."""
    begun, too_long = b"", False
    for piece in pieces:
        *whole, begun = (begun + piece).split(b"\n")
        for line in whole:
            text = line.strip(b"\r")
            if not too_long and len(text) <= MAX_LINE and text.startswith(_MARK):
                text = text[len(_MARK) :].strip()
                frame = read_frame(text)
                if frame is not None and is_genuine(frame, key_hash):
                    yield text
            too_long = False
        if too_long or len(begun) > MAX_LINE:
            begun, too_long = b"", True


class OutputReader:
    """One pass over an output, from its beginning, in a thread. `logs`: the output, piece by piece; `said`: what is in
    the record already; that much of the output is read and not given again. `wake` is called for each frame and at the
    end, in that thread.
    """

    def __init__(
        self, logs: Callable[[], Iterator[bytes]], said: Said, key_hash: str, wake: Callable[[], None]
    ) -> None:
        self._wake = wake
        self._logs = logs
        self._said = Said(mark=said.mark)
        self._known = said.frames
        self._key_hash = key_hash
        self._found: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        self.stopped = False
        self.trouble = False  # the output could not be read to its end
        # A daemon: an ending process does not wait for a log that hangs; the next process reads the rest.
        self._thread = threading.Thread(target=self._run, name="steno-task-output", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    @property
    def has_news(self) -> bool:
        return not self._found.empty()

    def frames(self, most: int) -> list[tuple[int, bytes]]:
        """(number in the output, frame) of what was read since the last call."""
        found: list[tuple[int, bytes]] = []
        with suppress(Empty):
            while len(found) < most:
                found.append(self._found.get_nowait())
        return found

    def _run(self) -> None:
        try:
            for seq, frame in enumerate(frames_of(self._pieces(), self._key_hash), 1):
                self._said = heard(self._said, seq, frame, last=False, position=0, at=0)
                if seq > self._known:
                    self._found.put((seq, frame))
                    self._wake()
                if self._said.ended or seq >= MOST_FRAMES:
                    return
        except Exception:  # noqa: BLE001 - whatever a log does, the recorder goes on
            self.trouble = True
            _log.debug("the output of a task cannot be read", exc_info=True)
        self._wake()

    def _pieces(self) -> Iterator[bytes]:
        size = 0
        for piece in self._logs():
            size += len(piece)
            yield piece
            if self.stopped or size > MOST_BYTES:
                return


@dataclass(slots=True)
class _Open:
    provider_id: str
    reader: OutputReader | None = None
    passes: int = 0  # passes since the run ended
    failures: int = 0
    not_before: int = 0
    written: int = 0  # the number of the newest frame handed to the record

    def stop(self) -> None:
        """Read no further; the thread ends with the next piece."""
        if self.reader is not None:
            self.reader.stopped = True


class Reports:
    """Reads the output of one provider's reporting runs."""

    def __init__(
        self, journal: Journal, provider: Provider, clock: Clock, wake: Callable[[], None] = lambda: None
    ) -> None:
        """`wake`: called in other threads when there is something to record."""
        self._journal = journal
        self._wake = wake
        self._provider = provider
        self._clock = clock
        self._open: dict[str, _Open] = {}  # by run id
        self._awaited: set[str] = set()  # run ids of reporting runs without an output yet
        self._looked = False

    @property
    def busy(self) -> bool:
        return bool(self._open)

    @property
    def has_news(self) -> bool:
        return any(one.reader is not None and one.reader.has_news for one in self._open.values())

    def look(self, state: WorldState) -> None:
        """Record what was read since the last look, and start what has to be read; never waits for the provider."""
        runs = state.unsettled_runs() if self._looked else some_of(state.runs, lambda brief: brief.speaks)
        self._awaited.update(run.run_id for run in runs if run.run_id not in self._open and run.said is not None)
        self._looked = True
        for run_id in tuple(self._awaited):
            run = state.runs.get(run_id)
            if run is not None and self._is_ours(run):
                self._open[run_id] = _Open(run.provider_id or "")
            if run is None or run.terminal or run_id in self._open:
                self._awaited.discard(run_id)
        for run_id, one in tuple(self._open.items()):
            found = state.runs.get(run_id)
            if found is None or found.said is None or _is_settled(found, found.said, one):
                one.stop()
                del self._open[run_id]
            elif one.reader is None:
                self._begin(found, found.said, one)
            else:
                self._attend(found, found.said, one, one.reader)

    def close(self) -> None:
        """Read no further; the next holder of the lease continues."""
        for one in self._open.values():
            one.stop()
        self._open.clear()
        self._awaited.clear()
        self._looked = False

    def _is_ours(self, run: Run) -> bool:
        """Whether its output is to be read (further): it has begun, and its final status was not read."""
        if run.said is None or run.said.over or run.said.ended or run.provider_id is None:
            return False
        if run.provider != self._provider.name or run.project not in (None, self._provider.project):
            return False
        return run.terminal or run.state in _GOES

    def _begin(self, run: Run, said: Said, one: _Open) -> None:
        reading = sum(other.reader is not None for other in self._open.values())
        if self._clock.now() >= one.not_before and reading < AT_ONCE:
            mark = read_mark(said.mark)
            logs = partial(self._provider.logs, one.provider_id, run.name or "", follow=not run.terminal)
            one.reader = OutputReader(logs, said, "" if mark is None else mark.key_hash, self._wake)

    def _attend(self, run: Run, said: Said, one: _Open, reader: OutputReader) -> None:
        over = reader.over  # asked first: a pass that is over has read everything
        frames = reader.frames(A_ROUND)
        self._write(run, one, frames)
        if not over or len(frames) == A_ROUND:
            return
        one.reader = None
        if said.ended:
            return
        now = self._clock.now()
        one.failures = one.failures + 1 if reader.trouble else 0
        one.passes += run.terminal
        if not run.terminal:
            # The provider says it has ended and the record not yet, or the log could not be read: retry later.
            one.not_before = now + backoff(one.failures + 1, first=SECOND, most=_SLOW)
        elif one.passes > _PASSES if reader.trouble else one.passes >= _LOOKED_TWICE:
            self._write(run, one, [(max(one.written, said.frames) + 1, None)])
        else:
            one.not_before = now + backoff(one.passes, first=2 * SECOND, most=_LAST)

    def _write(self, run: Run, one: _Open, frames: Sequence[tuple[int, bytes | None]]) -> None:
        """One event each, with an id that is the same for every reader. `frames`: each with its number; None: no more
        of the output is read.
        """
        from events.store.record import Batch

        batches = []
        for seq, frame in frames:
            fact = types.TaskReported(
                run_id=run.run_id,
                provider=run.provider,
                provider_id=one.provider_id,
                seq=seq,
                frame=frame or b"",
                last=frame is None,
            )
            one.written = max(one.written, seq)
            event_id = foreign_run_id(f"task/{run.provider}/{one.provider_id}", str(seq))
            batches.append(Batch(stream=f"run/{run.run_id}", events=(fact,), ids=(event_id,)))
        record = self._journal.record
        try:
            if batches:
                record.append_many(batches)  # not waited for: what a power cut loses is read again
        except IdConflict:  # an earlier pass read another beginning: the first one stands
            for batch in batches:
                with suppress(IdConflict):
                    record.append_many([batch])


def _is_settled(run: Run, said: Said, one: _Open) -> bool:
    """Whether there is nothing more to read: all was said, or it is another attempt's turn."""
    if said.over or one.provider_id != run.provider_id:
        return True
    return said.ended and (one.reader is None or one.reader.over)
