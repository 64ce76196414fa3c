"""A controller: rounds of polls of one provider, each answer appended and folded before the next question, and the
controller's decisions; or, while another process holds the lease, a follower of what that process appends.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from steno.engine.control.actor import Actor
from steno.engine.control.effects import DRAIN_TIMEOUT, Call, Effects, Executor
from steno.engine.control.output_recorder import OutputPolicy, OutputRecorder
from steno.engine.control.planner import Planner
from steno.engine.control.poll_interval import Pace, Rhythm, after_round
from steno.engine.control.sampling import Sampling
from steno.engine.control.submitter import Submitter
from steno.engine.control.task_reports import Reports
from steno.engine.decide.decisions import Decision, decide
from steno.engine.decide.queue import may_be_made_again
from steno.engine.fold.chains import began
from steno.engine.fold.fold import Fold
from steno.engine.live.journal import Journal
from steno.engine.live.live_world import LiveWorld
from steno.engine.notify.collector import Collector
from steno.engine.notify.notices import Notices
from steno.engine.notify.routes import Route
from steno.engine.providers.base import Provider, owns
from steno.engine.state.changes import Anomaly, Blind, Change, Heard, Moved, VmMoved
from steno.engine.state.policy import Policy
from steno.engine.state.states import VmState
from steno.engine.state.world import World, ours_of, policy_of
from steno.events import types
from steno.events.clock import SECOND, Clock
from steno.events.errors import LeaseLost, VersionConflict
from steno.events.installation import version
from steno.events.poll import Poll
from steno.events.store.store import Lease
from steno.events.subjects import DecidedAt


class TraceSink(Protocol):
    """Where polls are also written as trace lines."""

    def write(self, poll: Poll) -> None:
        """Append one poll, scrubbed as it stands in the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    changes: tuple[Change, ...]
    pause: int  # microseconds to wait before the next
    polls: int = 0
    answered: int = 0
    trouble: str | None = None  # why the round's last unanswered poll has no answer; None: all were answered
    decisions: tuple[Decision, ...] = ()  # new decisions


Rounds = Generator[Call, Any, Round]
"""A round step by step: it yields each call to the provider and gets its result."""

Decide = Callable[[World, str, Policy, int, bool], tuple[Decision, ...]]
"""(world, source, policy, now, whether it stays) → decisions."""

_LOOK = SECOND // 5  # microseconds between looks at a record that another process writes
_READS = SECOND // 50  # microseconds between looks at what was read of the output of an ended run
_TRIES = 5  # retries of a decision within a round when another process changed the queue
_SETTLED = frozenset({VmState.IDLE, VmState.UNCONFIRMED})  # a machine in these may stay as it is for a long time


class Controller:
    """Polls, appends and folds, decides and acts. Only the holder of the source's lease acts: `watch` takes it when it
    is free, so a holder that dies has a successor. The world is the record and nothing else: it includes what other
    processes append.
    """

    def __init__(
        self,
        *,
        live: LiveWorld,
        provider: Provider,
        clock: Clock,
        policy: Policy | None = None,
        notify: Sequence[Route] = (),
        collector: Collector | None = None,
        since: int | None = None,
        pace: Pace | None = None,
        trace: TraceSink | None = None,
        decide: Decide = decide,
        executor: Executor | None = None,
        beside: Callable[[], None] = lambda: None,
        wake: Callable[[], None] | None = None,
        outputs: OutputPolicy | None = None,
        samples_every: int = 0,
    ) -> None:
        """
        Args:
            live: the world it decides from; the caller's thread owns it.
            policy: what decisions follow; None: the last policy in force, or the defaults.
            notify: where notices go; none: alerts are recorded only.
            collector: where a trace of each run goes; None: nowhere.
            since: how far back a first contact reads the provider's history (microseconds, UTC); None: all of it.
            trace: also write every poll there.
            executor: where calls to the provider are made; None: in threads of their own.
            beside: called now and then while a poll is awaited; it must not wait.
            wake: called in other threads when a task reported something; None: ends a wait for effects.
            outputs: what is recorded of the output of runs; None: nothing.
            samples_every: how often the samples of a run are asked for, microseconds; 0: never.
        """
        self.live = live
        self.source = provider.source
        self.journal = Journal(live.record, live)
        self.policy = policy if policy is not None else policy_of(live.state, provider.source)
        self._own = policy is not None
        self._record = record = live.record
        self._changes: list[Change] = []
        live.subscribe(lambda batch: self._changes.extend(batch.changes))
        self._provider = provider
        self.clock = clock
        self._lease: Lease | None = None
        self._since = since
        self._pace = pace if pace is not None else Pace()
        self._rhythm = Rhythm()
        self._trace = trace
        self._decide = decide
        self._beside = beside
        self._notices = Notices(
            self.journal, clock, *notify, collector=collector, source=provider.source, made_again=self._needed
        )
        self.stays = False  # True: it watches until it is stopped, and its settings decide what is reported
        asks_again = not self.policy.free and self.policy.queue_patience > 0
        self.effects = Effects(
            executor or Executor(), clock, ended=self._ended, idle=self._idle, expect=self._expect_lease
        )
        submitter = Submitter(self.journal, provider, record.vault, clock, asks_again=asks_again)
        self.actor = Actor(self.journal, provider, submitter, self._notices, self.effects)
        self._offers = Planner(self.journal, provider, record.vault, clock)
        self._reports = Reports(self.journal, provider, clock, wake or self.effects.wake)
        self._outputs = OutputRecorder(record, provider, clock, outputs)
        live.subscribe(lambda batch: self._outputs.note(batch.changes))
        self._sampling = Sampling(self.journal, provider, clock, samples_every)
        self.asked_at: int | None = None  # when the outstanding poll was asked

    @property
    def world(self) -> Fold:
        return self.live.world

    def catch_up(self) -> tuple[Change, ...]:
        """Fold what is new in the record; everything that changed since the last call."""
        self.live.catch_up()
        changes, self._changes = tuple(self._changes), []
        return changes

    def started(self, software: str) -> None:
        """Record that somebody looks from now on."""
        self.journal.write(f"source/{self.source}", types.RecorderStarted(source=self.source, software=software))

    def stopped(self, why: str) -> None:
        """Record that nobody looks from now on, if it has the lease."""
        if self.holds:
            with suppress(LeaseLost):  # another process acts by now, which this one did not notice yet
                self.journal.write(f"source/{self.source}", types.RecorderStopped(source=self.source, why=why))

    @property
    def holds(self) -> bool:
        return self._lease is not None

    def hold(self) -> bool:
        """Take the lease if it is free; whether it is ours now. RecordNotWritable: it cannot be made or opened."""
        if self._provider.keeper is not None and not self.stays:
            return False
        if self._lease is not None and not self._lease.valid:
            self._lose(self._lease)
        if self._lease is None and (lease := self._record.store.lease(self.source)) is not None:
            self._record.bind(lease)
            self._lease = lease
        return self._lease is not None

    def release(self) -> None:
        """Close, and let another process act; a call still under way keeps the lease until this process ends."""
        if self._lease is not None:
            lease, self._lease = self._lease, None
            if not lease.valid:
                self._lose(lease)
            elif self.close():
                self._record.unbind(lease)
                lease.release()

    def _lose(self, lease: Lease) -> None:
        """Drop a lease that another process may hold by now, with the outcomes that it may record itself."""
        for _ in range(_TRIES * _TRIES):
            with suppress(LeaseLost):  # each is the end of one effect
                self.close()
                break
        self._lease = None
        self._record.unbind(lease)
        lease.release()

    def _expect_lease(self) -> None:
        """Raise LeaseLost if another process may act by now: this one slept, or was cut off from the database."""
        if self._lease is not None and not self._lease.valid:
            raise LeaseLost(f"This process was silent for too long and may act on {self.source} no more: standing by.")

    def close(self) -> bool:
        """Wait a moment for calls under way and leave the rest to the next holder; False: a call still goes on."""
        whole = self.effects.close()
        self._reports.close()
        self._outputs.close()
        self._sampling.close()
        self._notices.close()
        return whole

    def watch(self) -> Round:
        """A round if the lease is ours or free; else fold what its holder appended."""
        return self._whole(self.watching())

    def watching(self) -> Rounds:
        """As `watch`, for several controllers in one thread."""
        if self.hold():
            return (yield from self._steps(act=True))
        return Round(changes=self.catch_up(), pause=_LOOK)

    def round(self, *, act: bool = True) -> Round:
        """Carry out stops, ask every endpoint once and fold the answers, decide, act; without `act` only look. An
        unanswered round decides nothing.

        Raises:
            RecordLocked, RecordNotWritable: the record took no more; what was acknowledged is in it.
        """
        return self._whole(self._steps(act=act))

    def _whole(self, steps: Rounds) -> Round:
        result: object = None
        while True:
            try:
                call = steps.send(result)
            except StopIteration as end:
                outcome: Round = end.value
                return outcome
            result = self.effects.beside(call)

    def _steps(self, *, act: bool) -> Rounds:
        self.live.catch_up()
        if act:
            self._begin()
            self._reports.look(self.world.state)
            self._sampling.look(self.world.state, stays=self.stays)
        polls = answered = took = 0
        trouble: str | None = None
        questions = self._provider.poll(self._followed(), since=self._since)
        while True:
            self.asked_at = self.clock.now()
            poll = yield partial(next, questions, None)
            self.asked_at = None
            if poll is None:
                break
            polls += 1
            took += max(0, poll.observed_at - poll.started_at)
            if poll.answered:
                answered += 1
            else:
                trouble = poll.error or f"{poll.path} answered {poll.status}"
            (appended,) = self._record.append_polls([poll], stream_of=self.live.stream_of(self._provider.name, poll))
            if self._trace is not None:
                self._trace.write(self._record.poll(appended.position))
            self.live.catch_up()
        polled = self.clock.now()
        if act and answered:
            yield from self._offers.ask(self.world.state, self.policy)
        decisions = self._control() if act and answered else ()
        if act:
            self._reports.look(self.world.state)  # of runs that these polls showed first
            self._outputs.look(self.world.state)
            self._tell()
        changes = self.catch_up()
        moving = any(map(self._concerns, changes)) or bool(decisions) or self._moves()
        self._rhythm = after_round(self._rhythm, self._pace, answered=answered > 0, moving=moving, took=took)
        return Round(
            polls=polls,
            answered=answered,
            changes=changes,
            trouble=trouble,
            pause=self._pause(polled, acts=act),
            decisions=decisions,
        )

    def _idle(self) -> None:
        self.live.catch_up()
        self._beside()

    def _ended(self) -> None:
        """An effect has ended beside the polls: what waited for it, or for its place, starts before the next round."""
        self.actor.end_runs(self.world.state)
        self.actor.hand_over(self.world.state)

    def report(self) -> None:
        """Record what tasks reported, if they did, between two rounds."""
        if self.holds and self._reports.has_news:
            self._reports.look(self.world.state)
            self.live.catch_up()

    def end_output(self, run_id: str) -> None:
        """Record the rest of the output of an ended run, if that takes no longer than `DRAIN_TIMEOUT`."""
        with suppress(LeaseLost):  # the next holder records it
            for _ in range(DRAIN_TIMEOUT // _READS):
                if not self.holds or not self._outputs.is_due(run_id):
                    break
                self._outputs.look(self.world.state)
                self.effects.wait(_READS)

    def act(self) -> Round:
        """Decide and act on what is known, without polling first: for a provider whose machines are free, at once."""
        self.live.catch_up()
        self._begin()
        decisions = self._control()
        self._tell()
        return Round(changes=self.catch_up(), pause=self._pace.fast, decisions=decisions)

    def _begin(self) -> None:
        """Record the policy and carry out stops, before anything else."""
        state = self.world.state
        if self._own:  # another process may have adopted its own since
            self.journal.adopt_policy(self.source, self.policy, state)
        else:
            self.policy = policy_of(state, self.source)
        self._notices.adopt(stays=self.stays)
        self.actor.end_runs(state)
        self.actor.stop_again(state)

    def _control(self) -> tuple[Decision, ...]:
        state, source = self.world.state, self.source
        self.actor.end_machines(state)
        done: tuple[Decision, ...] = ()
        for _ in range(_TRIES):
            queued = self.journal.queue_version(source)
            self.live.catch_up()
            now, position = self.clock.now(), self.live.position
            decisions = self._decide(state, source, self.policy, now, self.stays)
            stamp = DecidedAt(position=position, at=now, software=version(), watched=self.stays)
            stamped = [replace(decision, decided_at=stamp) for decision in decisions]
            with suppress(VersionConflict):
                done = self.actor.carry_out(stamped, state, queued, position, spends=self.policy.guarded)
                break
        self.live.catch_up()
        self.actor.submitter.erase_secrets(self._needed)
        return done

    def _tell(self) -> None:
        self._notices.collect(self.world.state)
        self._notices.round()

    def _needed(self, run_id: str) -> bool:
        """True if the secrets of a run of ours may be needed again."""
        run = self.world.state.runs.get(run_id)
        patience = 0 if self.policy.free else self.policy.queue_patience
        return run is not None and may_be_made_again(run, patience, self.clock.now())

    def _moves(self) -> bool:
        """True if the next poll may show a change of something under way."""
        machines = any(vm.state not in _SETTLED for vm in ours_of(self.world.state, self.source))
        return machines or bool(self._followed()) or bool(self.actor.open()) or self._reports.busy

    def _concerns(self, change: Change) -> bool:
        """True if it is a change of this source, which another change may follow soon."""
        state = self.world.state
        match change:
            case Moved() | Heard():
                run = state.runs.get(change.run_id)
                return run is not None and owns(self._provider, run)
            case VmMoved():
                vm = state.vms.get(change.vm_id)
                return vm is not None and vm.source == self.source
            case Blind():
                return change.source == self.source
            case Anomaly():
                return False

    def _pause(self, polled: int, *, acts: bool) -> int:
        """Until the next polls are due, or a notice; the time since the polls ended (`polled`) is part of it."""
        now = self.clock.now()
        left = self._rhythm.interval - max(0, now - polled)
        due = self._notices.due_in(now) if acts else None
        return max(0, left if due is None else min(left, due))

    def _followed(self) -> dict[str, int]:
        """The provider's ids of its runs that have not ended, and since when the first run of that id is there."""
        runs = [run for run in self.world.state.runs.open() if run.archive is None and owns(self._provider, run)]
        newest_first = sorted(runs, key=began, reverse=True)
        return {listed_as: began(run) for run in newest_first if (listed_as := run.listed_as) is not None}
