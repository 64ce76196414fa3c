"""Records what tasks report: every frame is one event, once, whatever is killed when. Used by the holder of the
provider's lease. A frame's id is its attempt and its number in the output, so that frames read again after a crash are
not written again.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final

from steno.engine.fold.run_step import heard
from steno.engine.kernel.machine.framing import MARK
from steno.engine.live.journal import Journal
from steno.engine.providers.base import Provider, owns
from steno.engine.state.kernel_mark import read_frame
from steno.engine.state.run import Run, Said
from steno.engine.state.world import World
from steno.events import types
from steno.events.clock import SECOND, Clock, backoff, foreign_run_id
from steno.events.errors import IdConflict
from steno.events.store.record import Batch

MAX_LINE: Final = 256 * 1024  # bytes of a line; a longer line is not a frame
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
_log = logging.getLogger(__name__)


def frames_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The judge's frames in one output, each as soon as its line is complete; a solution's lines are behind a bar."""
    begun, too_long = b"", False
    for piece in pieces:
        *whole, begun = (begun + piece).split(b"\n")
        for line in whole:
            text = line.strip(b"\r")
            if not too_long and len(text) <= MAX_LINE and text.startswith(_MARK):
                text = text[len(_MARK) :].strip()
                if read_frame(text) is not None:
                    yield text
            too_long = False
        if too_long or len(begun) > MAX_LINE:
            begun, too_long = b"", True


class _Output:
    """The output of one run, which is read from its beginning in a thread, in passes until there is nothing more."""

    def __init__(self, provider_id: str) -> None:
        self.provider_id = provider_id
        self.passes = 0  # since the run ended
        self.failures = 0
        self.not_before = 0
        self.written = 0  # the number of the newest frame handed to the record
        self.found = SimpleQueue[tuple[int, bytes]]()  # (number in the output, frame), of this pass
        self.thread: threading.Thread | None = None  # of this pass
        self.stopped = False  # the thread ends with the next piece
        self.trouble = False  # the output could not be read to its end

    def begin(self, logs: Callable[[], Iterator[bytes]], heard: Said, wake: Callable[[], None]) -> None:
        """Start a pass. `logs`: the output, piece by piece; `said`: what is in the record already; that much of the
        output is read and not given again. `wake` is called for each frame and at the end, in that thread.
        """
        # A daemon: an ending process does not wait for a log that hangs; the next process reads the rest.
        self.trouble, args = False, (logs, heard, wake)
        self.thread = threading.Thread(target=self._read, args=args, name="steno-task-output", daemon=True)
        self.thread.start()

    def frames(self) -> list[tuple[int, bytes]]:
        """The frames read since the last call, at most `A_ROUND`."""
        frames: list[tuple[int, bytes]] = []
        with suppress(Empty):
            while len(frames) < A_ROUND:
                frames.append(self.found.get_nowait())
        return frames

    def _read(self, logs: Callable[[], Iterator[bytes]], known: Said, wake: Callable[[], None]) -> None:
        now = Said(mark=known.mark)
        try:
            for seq, frame in enumerate(frames_of(self._pieces(logs())), 1):
                now = heard(now, seq, frame, last=False, position=0, at=0)
                if seq > known.frames:
                    self.found.put((seq, frame))
                    wake()
                if now.ended or seq >= MOST_FRAMES:
                    return
        except Exception:  # noqa: BLE001 - whatever a log does, the recorder goes on
            self.trouble = True
            _log.debug("the output of a task cannot be read", exc_info=True)
        wake()

    def _pieces(self, logs: Iterator[bytes]) -> Iterator[bytes]:
        size = 0
        for piece in logs:
            size += len(piece)
            yield piece
            if self.stopped or size > MOST_BYTES:
                return


class Reports:
    """Reads the output of one provider's reporting runs."""

    def __init__(self, journal: Journal, provider: Provider, clock: Clock, wake: Callable[[], None]) -> None:
        """`wake`: called in other threads when there is something to record."""
        self._journal = journal
        self._wake = wake
        self._provider = provider
        self._clock = clock
        self._open: dict[str, _Output] = {}  # by run id
        self._awaited: set[str] = set()  # run ids of reporting runs without an output yet
        self._looked = False

    @property
    def busy(self) -> bool:
        return bool(self._open)

    @property
    def has_news(self) -> bool:
        return any(not output.found.empty() for output in self._open.values())

    def look(self, state: World) -> None:
        """Record what was read since the last look, and start what has to be read; never waits for the provider."""
        runs = state.runs.open()
        if not self._looked:
            runs += state.runs.ended(lambda brief: brief.speaks)
        self._awaited.update(run.run_id for run in runs if run.run_id not in self._open and run.said is not None)
        self._looked = True
        for run_id in tuple(self._awaited):
            run = state.runs.get(run_id)
            if run is not None and self._is_ours(run):
                self._open[run_id] = _Output(run.provider_id or "")
            if run is None or run.terminal or run_id in self._open:
                self._awaited.discard(run_id)
        for run_id, output in tuple(self._open.items()):
            run = state.runs.get(run_id)
            if run is None or run.said is None or _is_settled(run, run.said, output):
                output.stopped = True
                del self._open[run_id]
            elif output.thread is not None:
                self._attend(run, run.said, output, over=not output.thread.is_alive())
            elif (
                self._clock.now() >= output.not_before
                and sum(other.thread is not None for other in self._open.values()) < AT_ONCE
            ):
                logs = partial(self._provider.logs, output.provider_id, run.name or "", follow=not run.terminal)
                output.begin(logs, run.said, self._wake)

    def close(self) -> None:
        """Read no further; the next holder of the lease continues."""
        for output in self._open.values():
            output.stopped = True
        self._open.clear()
        self._awaited.clear()
        self._looked = False

    def _is_ours(self, run: Run) -> bool:
        """True if its output has to be read (further): it has begun, and its final status was not read."""
        if run.said is None or run.said.over or run.said.ended or run.provider_id is None:
            return False
        return owns(self._provider, run) and run.has_begun

    def _attend(self, run: Run, known: Said, output: _Output, *, over: bool) -> None:
        """`over`: the pass is, and has read everything."""
        frames = output.frames()
        self._write(run, output, frames)
        if not over or len(frames) == A_ROUND:
            return
        output.thread = None
        if known.ended:
            return
        now = self._clock.now()
        output.failures = output.failures + 1 if output.trouble else 0
        output.passes += run.terminal
        if not run.terminal:
            # The provider says it has ended and the record not yet, or the log could not be read: retry later.
            output.not_before = now + backoff(output.failures + 1, first=SECOND, most=_SLOW)
        elif output.passes > _PASSES if output.trouble else output.passes >= _LOOKED_TWICE:
            self._write(run, output, [(max(output.written, known.frames) + 1, None)])
        else:
            output.not_before = now + backoff(output.passes, first=2 * SECOND, most=_LAST)

    def _write(self, run: Run, output: _Output, frames: Sequence[tuple[int, bytes | None]]) -> None:
        """Append an event for each frame, with an id that is the same for every reader. `frames`: each with its number;
        None: no more of the output is read.
        """
        batches, ids = [], f"task/{run.provider}/{output.provider_id}"
        about = {"run_id": run.run_id, "provider": run.provider, "provider_id": output.provider_id}
        for seq, frame in frames:
            fact = types.TaskReported(**about, seq=seq, frame=frame or b"", last=frame is None)
            output.written = max(output.written, seq)
            batches.append(Batch(stream=f"run/{run.run_id}", events=(fact,), ids=(foreign_run_id(ids, str(seq)),)))
        record = self._journal.record
        try:
            if batches:
                record.append_many(batches)  # not waited for: what a power cut loses is read again
        except IdConflict:  # an earlier pass read another beginning: the first one stands
            for batch in batches:
                with suppress(IdConflict):
                    record.append_many([batch])


def _is_settled(run: Run, known: Said, output: _Output) -> bool:
    """True if nothing is left to read: the output is complete, or belongs to an earlier attempt."""
    over = output.thread is None or not output.thread.is_alive()
    return known.over or output.provider_id != run.provider_id or (known.ended and over)
