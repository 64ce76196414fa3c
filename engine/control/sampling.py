"""Records what the devices of runs did: each answer with new samples is one event. Used by the holder of the provider's
lease. An event's id is the run and its newest time: samples that are read again after a crash are not written again.
"""

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final, NamedTuple
from zlib import crc32

from steno.engine.live.journal import Journal
from steno.engine.providers.base import Provider, owns
from steno.engine.state.policy import HOUR, MINUTE
from steno.engine.state.run import Run
from steno.engine.state.samples import Sample, pack, unpack
from steno.engine.state.world import World
from steno.events.clock import SECOND, Clock, backoff, foreign_run_id
from steno.events.errors import IdConflict, UnreadableInput
from steno.events.store.record import Batch
from steno.events.types import SamplesRecorded

GAP: Final = SECOND // 2  # between two questions
PAUSE: Final = HOUR  # how long an ended run is tried, and a run that nobody measures is left alone
A_PASS: Final = 64  # questions of one thread: half a minute
_Newest = Mapping[str, int]  # by device; seconds, as the record has them
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Measured:
    """A run whose samples are recorded; nothing of it changes while its question is under way, but `until`."""

    run_id: str
    provider_id: str
    name: str
    due: int
    known: _Newest | None = None  # the newest samples in the record; None: not read yet
    failures: int = 0  # in a row
    until: int | None = None  # it has ended; it is asked once more, and until then if that fails


class _Answer(NamedTuple):
    measured: _Measured
    last: bool  # the run had ended
    failed: bool = False
    tool: str | None = None  # None: nobody measures
    news: tuple[bytes, _Newest] | None = None  # new samples, packed


class Sampling:
    """The samples of one provider's runs."""

    def __init__(self, journal: Journal, provider: Provider, clock: Clock, every: int, *, gap: int = GAP) -> None:
        """`every`: how long until a run is asked again, microseconds; 0: never. `gap`: between two questions."""
        self._record, self._provider, self._clock = journal.record, provider, clock
        self._every, self._gap = every, gap
        self._runs: dict[str, _Measured] = {}  # by run id
        self._looked = False
        self._answers = SimpleQueue[_Answer]()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self, state: World, *, stays: bool) -> None:
        """Record what was answered since the last look, and ask what is due; never waits for the provider. `stays`:
        also ask runs that ended in the hour before the first look.
        """
        if not self._every:
            return
        over, now = self._thread is None or not self._thread.is_alive(), self._clock.now()
        for _ in range(self._answers.qsize()):
            self._settle(self._answers.get_nowait(), now)
        self._follow(state, now, stays=stays)
        due = sorted((each for each in self._runs.values() if each.due <= now), key=lambda measured: measured.due)
        if over and due:
            for measured in due[:A_PASS]:
                measured.known = self._recorded(measured) if measured.known is None else measured.known
            # A daemon: an ending process does not wait for a server that hangs.
            args = (due[:A_PASS], self._answers, self._stop)
            self._thread = threading.Thread(target=self._ask_all, args=args, name="steno-samples", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Ask no further; the next holder of the lease continues."""
        self._stop.set()
        self._runs.clear()
        self._looked, self._thread = False, None
        self._answers, self._stop = SimpleQueue(), threading.Event()

    # -- in another thread

    def _ask_all(self, due: Sequence[_Measured], answers: SimpleQueue[_Answer], stop: threading.Event) -> None:
        for measured in due:
            answers.put(self._ask(measured, measured.known or {}))
            if stop.wait(self._gap / SECOND):
                return

    def _ask(self, measured: _Measured, known: _Newest) -> _Answer:
        last, since = measured.until is not None, min(known.values(), default=0)
        try:
            answer = self._provider.samples(measured.provider_id, measured.name, since=since * SECOND)
            if answer is None:
                return _Answer(measured, last)
            latest = self._clock.now() // SECOND + 86_400  # a later time is wrong: nothing before it would be recorded
            new = [each for each in answer[1] if known.get(each.device, since) < each.at // SECOND <= latest]
            return _Answer(measured, last, tool=answer[0], news=(pack(new), _newest(new)) if new else None)
        except Exception:  # noqa: BLE001 - whatever a provider does, the recorder goes on
            _log.debug("the samples of run %s cannot be read", measured.run_id, exc_info=True)
            return _Answer(measured, last, failed=True)

    # -- in the controller's thread

    def _follow(self, state: World, now: int, *, stays: bool) -> None:
        runs = state.runs.open() + (state.runs.ended_since(now - PAUSE) if stays and not self._looked else [])
        self._looked = True
        for run in runs:
            if run.run_id not in self._runs and self._is_ours(run):
                due = self._slot(run.run_id, now)
                self._runs[run.run_id] = _Measured(run.run_id, run.provider_id or "", run.name or "", due)
        for run_id, measured in tuple(self._runs.items()):
            known = state.runs.get(run_id)
            if known is None or known.provider_id != measured.provider_id:
                del self._runs[run_id]
            elif known.terminal and measured.until is None:
                measured.due, measured.until = now, now + PAUSE

    def _is_ours(self, run: Run) -> bool:
        """True if it has begun at this provider."""
        return owns(self._provider, run) and run.provider_id is not None and run.archive is None and run.has_begun

    def _slot(self, run_id: str, now: int) -> int:
        """When a run is due next: each has its own moment of the interval, so that questions are spread evenly."""
        return now + self._every - (now - (crc32(run_id.encode()) * self._every >> 32)) % self._every

    def _recorded(self, measured: _Measured) -> _Newest:
        """The newest samples in the record, by the run's newest event."""
        stream, types = f"run/{measured.run_id}", {"SamplesRecorded"}
        for stored in self._record.read(stream=stream, types=types, limit=1, backwards=True):
            if isinstance(stored.data, SamplesRecorded) and stored.data.provider_id == measured.provider_id:
                with suppress(UnreadableInput):  # of a later version
                    return _newest(unpack(stored.data.block))
        return {}

    def _settle(self, answer: _Answer, now: int) -> None:
        """Append the samples of an answer, and choose when the run is asked about next."""
        measured = answer.measured
        if self._runs.get(measured.run_id) is not measured:
            return
        if answer.news is not None:
            block, measured.known = answer.news
            self._append(measured, max(measured.known.values()), answer.tool or "", block)
        measured.failures = measured.failures + 1 if answer.failed else 0
        if answer.failed:
            measured.due = now + backoff(measured.failures, first=MINUTE, most=max(MINUTE, self._every))
        elif measured.until is None:
            measured.due = now + PAUSE if answer.tool is None else self._slot(measured.run_id, now)
        if measured.until is not None and (now >= measured.until if answer.failed else answer.last):
            del self._runs[measured.run_id]

    def _append(self, measured: _Measured, newest: int, tool: str, block: bytes) -> None:
        run_id, provider, provider_id = measured.run_id, self._provider.name, measured.provider_id
        fact = SamplesRecorded(run_id=run_id, provider=provider, provider_id=provider_id, source=tool, block=block)
        event_id = foreign_run_id(f"samples/{provider}/{provider_id}", f"{run_id}/{newest}")
        with suppress(IdConflict):  # an earlier answer up to that time had other values: it stands
            # not waited for: what a power cut loses is asked for again
            self._record.append_many([Batch(stream=f"run/{run_id}", events=(fact,), ids=(event_id,))])


def _newest(samples: Iterable[Sample]) -> _Newest:
    return {sample.device: sample.at // SECOND for sample in sorted(samples, key=lambda sample: sample.at)}
