"""Records the output of runs: its first bytes, and the newest of the rest. Used by the holder of the provider's lease.

A thread reads an output from its beginning and skips what is in the record. Bytes of the tail that are replaced before
they are written are never written, so that an output of any size costs head and tail.
"""

import logging
import threading
from collections import deque
from functools import partial
from hashlib import sha256
from typing import Final

import msgspec

from steno.engine.providers.base import Provider, owns
from steno.engine.state.changes import Change, Moved
from steno.engine.state.run import Run
from steno.engine.state.world import World
from steno.events.clock import SECOND, Clock
from steno.events.shape.secrets import masked
from steno.events.store.output_rows import LARGEST, pack
from steno.events.store.outputs import expire
from steno.events.store.record import Record
from steno.events.types import OutputRecorded

AT_ONCE: Final = 8  # outputs of live runs read at the same time, and of ended runs; each may be a request a second
A_ROUND: Final = 2  # chunks written in one round: some 25 ms
_A_LOOK: Final = 20  # runs looked at in one round
_DAY: Final = 86_400 * SECOND  # also how far back the output of ended runs is read when this process begins
_LATE: Final = 60 * SECOND  # the age at which a chunk is written that is not full; and the pause after a failure
_REST: Final = 5 * SECOND  # between two writes of an output that goes on
_FAILURES: Final = 4  # passes over the output of an ended run that cannot be read
_log = logging.getLogger(__name__)


class OutputPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept of an output."""

    head: int  # bytes
    tail: int
    keep: int  # microseconds; 0: nothing is kept


class _Output:
    """The output of one attempt of a run. A thread fills `text`; the controller's thread takes chunks from it."""

    def __init__(self, run: Run, record: Record, policy: OutputPolicy) -> None:
        self.provider_id = run.provider_id or ""
        self.kept = deque[tuple[int, int]]()  # (position, size) of the chunks of the tail, the oldest first
        self.over = self.ended = False  # read to its end; the pass began after the run had ended
        self.failures = self.not_before = 0
        self.thread: threading.Thread | None = None  # of the current pass
        self.trouble = self.stopped = False
        self.values = sorted(record.vault.values(run.run_id), key=len, reverse=True)
        self._event = partial(OutputRecorded, run_id=run.run_id, provider=run.provider, provider_id=self.provider_id)
        self._policy = policy
        self._text, self._place, self._skipped, self._since = bytearray(), 0, 0, 0
        self._changed = threading.Condition()
        size = 0
        for stored in record.read(stream=run.subject, types={"OutputRecorded"}, backwards=True):
            event = stored.data
            if isinstance(event, OutputRecorded) and event.provider_id == self.provider_id:
                self._place, self.over = max(self._place, event.offset + event.size), self.over or event.last
                if event.offset < policy.head or size >= policy.tail:
                    break
                self.kept.appendleft((stored.position, event.size))
                size += event.size

    def begin(self, run: Run, provider: Provider, clock: Clock) -> None:
        """Start a pass in a thread: a daemon, so that an ending process does not wait for a log that hangs."""
        self.failures = self.failures if self.ended is run.terminal else 0
        self.trouble, self.ended, known = False, run.terminal, self._place + len(self._text)
        self.thread = threading.Thread(target=self._read, args=(run, provider, clock, known), daemon=True)
        self.thread.start()

    @property
    def follows(self) -> bool:
        return self.thread is not None and not self.ended and self.thread.is_alive()

    def stop(self) -> None:
        with self._changed:
            self.stopped = True
            self._changed.notify()

    def _read(self, run: Run, provider: Provider, clock: Clock, known: int) -> None:
        passed = 0
        try:
            name = run.name or ""
            live = provider.unhurried_logs(self.provider_id, name) if not self.ended else None
            for piece in provider.logs(self.provider_id, name, follow=False) if live is None else live:
                passed += len(piece)
                if passed > known:
                    self._add(piece[known - passed :], clock.now())
                if self.stopped:
                    return
        except Exception:  # noqa: BLE001 - whatever a log does, the recorder goes on
            self.trouble = True
            _log.debug("the output of a run cannot be read", exc_info=True)

    def _add(self, text: bytes, now: int) -> None:
        with self._changed:  # the head waits until it is written, the tail drops its oldest bytes
            self._changed.wait_for(
                lambda: self.stopped or self._place >= self._policy.head or len(self._text) < A_ROUND * LARGEST
            )
            self._since = self._since if self._text else now
            self._text += text
            spare = len(self._text) - self._policy.tail
            if self._place >= self._policy.head and spare >= min(LARGEST, self._policy.tail + 1):
                del self._text[:spare]
                self._place += spare
                self._skipped += spare

    def take(self, late: int, *, whole: bool) -> tuple[OutputRecorded, bytes] | None:
        """The oldest chunk and its bytes if it is full, or came before `late`; `whole`: there is no more to come."""
        with self._changed:
            head = self._policy.head - self._place
            room = min(LARGEST, head) if head > 0 else LARGEST
            if not self._text or (len(self._text) < room and self._since > late and not whole):
                return None
            window = bytes(self._text[: room + max(map(len, self.values), default=0)])
            clean, sure = masked(window, self.values)
            self._text[: len(window)] = clean
            data = clean[: min(room, len(clean) if whole else sure)]
            del self._text[: len(data)]
            self._since = late + _LATE
            chunk = self.chunk(data) if data else None
            self._changed.notify()
        return chunk

    def chunk(self, data: bytes) -> tuple[OutputRecorded, bytes]:
        """The next chunk, with these bytes."""
        digest = sha256(data).hexdigest()
        event = self._event(offset=self._place, size=len(data), sha256=digest, skipped=self._skipped)
        self._place, self._skipped = self._place + len(data), 0
        return event, data


class OutputRecorder:
    """Reads the output of one provider's runs."""

    def __init__(self, record: Record, provider: Provider, clock: Clock, policy: OutputPolicy | None) -> None:
        """`policy`: None: it does nothing."""
        self._record = record
        self._provider = provider
        self._clock = clock
        self._policy = policy
        self._open: dict[str, _Output] = {}  # by run id
        self._next: dict[str, None] | None = None  # run ids to look at, in order; None: before the first look
        self._expires_at = 0

    def note(self, changes: tuple[Change, ...]) -> None:
        """Runs that moved are looked at in one of the next rounds."""
        moved = (change.run_id for change in changes if isinstance(change, Moved) and change.transition is not None)
        if self._next is not None:
            self._next.update(dict.fromkeys(moved))

    def look(self, state: World) -> None:
        """Write what was read since the last look, and start what has to be read; never waits for the provider."""
        policy, now = self._policy, self._clock.now()
        if policy is not None and now >= self._expires_at:
            self._expires_at = now + _DAY * (expire(self._record, now - policy.keep) == 0)
        if policy is None or not policy.keep:
            return
        if self._next is None:
            runs = (*state.runs.open(), *state.runs.ended_since(now - _DAY))
            self._next = dict.fromkeys(run.run_id for run in runs)
        most = A_ROUND
        for run_id, output in tuple(self._open.items()):
            run = state.runs.get(run_id)
            if run is None or run.provider_id != output.provider_id or output.over:
                self._open.pop(run_id).stop()
            else:
                most -= self._go_on(run, output, policy, now, most)
        for run_id in tuple(self._next)[:_A_LOOK]:
            del self._next[run_id]
            run = state.runs.get(run_id)
            if run is None or run_id in self._open or not self._is_ours(run):
                continue
            if sum(output.ended is run.terminal for output in self._open.values()) >= AT_ONCE:
                self._next[run_id] = None  # behind the others
            elif not (output := _Output(run, self._record, policy)).over:
                self._open[run_id] = output
                output.begin(run, self._provider, self._clock)

    def is_due(self, run_id: str) -> bool:
        """True while the next looks write more of the output of an ended run."""
        output = self._open.get(run_id)
        if output is None:
            return self._next is not None and run_id in self._next
        return not output.over and not (output.ended and output.failures)

    def close(self) -> None:
        """Read no further; the next holder of the lease continues."""
        while self._open:
            self._open.popitem()[1].stop()
        self._next = None

    def _is_ours(self, run: Run) -> bool:
        if run.provider_id is None or run.archive is not None or run.tasks or run.is_schedule:
            return False
        followed = run.said is not None and not run.terminal  # for its reports
        return owns(self._provider, run) and run.has_begun and not followed

    def _go_on(self, run: Run, output: _Output, policy: OutputPolicy, now: int, most: int) -> int:
        """Write at most so many chunks, and begin the next pass if it is due; how many."""
        if run.terminal and output.follows:  # it may wait for long
            output.stop()
            self._open[run.run_id] = _Output(run, self._record, policy)
        elif output.thread is not None:
            return self._attend(run, output, policy, now, most)
        elif (run.terminal and not output.ended) or (output.failures and now >= output.not_before):
            output.begin(run, self._provider, self._clock)
        return 0

    def _attend(self, run: Run, output: _Output, policy: OutputPolicy, now: int, most: int) -> int:
        """Write at most so many chunks of a pass, and drop those of the tail that they replace; how many."""
        whole = output.thread is not None and not output.thread.is_alive()
        chunks = list[tuple[OutputRecorded, bytes]]()
        while len(chunks) < most and (whole or now >= output.not_before):
            if (chunk := output.take(now - _LATE, whole=whole and not output.trouble)) is None:
                break
            chunks.append(chunk)
        output.not_before = now + _REST if chunks else output.not_before
        if whole and len(chunks) < most:
            output.thread, output.not_before = None, now + (_LATE if output.trouble else _REST)
            output.failures = (output.failures + 1) * output.trouble
            output.over = output.ended and (not output.trouble or output.failures >= _FAILURES)
            if output.over and not output.trouble:
                event, data = chunks.pop() if chunks else output.chunk(b"")
                chunks.append((msgspec.structs.replace(event, last=True), data))
        sizes = [event.size for event, _ in chunks if event.offset >= policy.head]
        left, dropped = sum(size for _, size in output.kept) + sum(sizes), list[int]()
        while output.kept and left - output.kept[0][1] >= policy.tail:
            position, size = output.kept.popleft()
            left -= size
            dropped.append(position)
        if chunks:
            packed = [(event, pack(data)) for event, data in chunks]
            positions = self._record.append_output(run.subject, packed, dropped)
            output.kept += zip(positions[len(positions) - len(sizes) :], sizes, strict=True)
        return len(chunks)
