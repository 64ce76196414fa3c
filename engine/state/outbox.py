"""The outbox: requests and intents without an outcome, and what became of the others. Part of the world."""

import msgspec
from msgspec.structs import replace

from steno.engine.state.inventory import Index
from steno.events import types

SubmitOutcome = types.SubmitSucceeded | types.SubmitFailed | types.IntentAbandoned


class OpenSubmit(msgspec.Struct, frozen=True, kw_only=True):
    """A requested run without an outcome."""

    request: types.RunRequested
    position: int  # of the request; of its newest `RunRequeued` if it was requeued
    requested_at: int
    asked_at: int  # when it was requested, or requeued: what the provider took before is not this attempt
    attempt: int = 1
    held: types.RunHeld | None = None  # why it waits, while it does
    queued: bool = False  # it was held or requeued: no caller waits for one answer of the provider
    placed: types.RunPlaced | None = None  # its place, once it has one
    intended: types.SubmitIntended | None = None  # the newest intent: a call may have been made
    unmarked_at: int | None = None  # when an older version may first have called without giving our run id

    @property
    def handed(self) -> bool:
        """True if it has its place, or may have reached the provider."""
        return self.placed is not None or self.intended is not None


class TakenStop(msgspec.Struct, frozen=True, kw_only=True):
    """A stop the provider accepted; it may still not carry it out."""

    request: types.StopRequested
    taken_at: int


class OpenNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice the webhook has not accepted and may still accept."""

    intent: types.NoticeIntended
    position: int
    attempts: int = 0  # how many have failed
    failed_at: int = 0  # when the newest did


class NoticeMark(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    at: int


class Outbox(msgspec.Struct, kw_only=True):
    """Requests and intents without an outcome, in order of request, and the provider's ids of runs."""

    submits: dict[str, OpenSubmit] = {}  # by run id, like all below that do not say otherwise
    stops: dict[str, types.StopRequested] = {}
    vm_stops: dict[str, types.VmStopIntended] = {}
    """By vm_id: machines that were about to be ended; the call may have been made."""
    notices: dict[str, OpenNotice] = {}  # by notice id
    provider_ids: Index[str] = msgspec.field(default_factory=Index)  # the provider's ids of the runs we submitted
    former_ids: set[str] = set()  # the provider's ids of attempts without capacity: never of a later attempt
    outcomes: Index[int] = msgspec.field(default_factory=Index)  # position of the outcome of the submission
    stop_outcomes: Index[int] = msgspec.field(default_factory=Index)  # position of the newest outcome of a stop
    vm_outcomes: Index[int] = msgspec.field(default_factory=Index)  # vm_id → position of the newest outcome of a stop
    noticed: set[str] = set()  # every notice there ever was, and every fact that a digest named
    told: dict[str, dict[str, NoticeMark]] = {}  # source → the kinds of notices sent about it, each with its start
    taken: Index[TakenStop] = msgspec.field(default_factory=Index)  # the newest stop that the provider accepted
    asked: int = 0  # position of the newest request of anybody for anything
    accepted: Index[OpenSubmit] = msgspec.field(default_factory=Index)
    """Submissions the provider accepted: they may have to be made again."""

    def apply(self, position: int, at: int, event: types.Event) -> None:
        """Apply one event, observed `at`; kinds that are not about effects change nothing."""
        if isinstance(event, types.RunRequested | types.StopRequested | types.VmStopRequested):
            self.asked = position
        self._submission(position, at, event)
        self._stop(position, at, event)
        self._notice(position, at, event)

    def _submission(self, position: int, at: int, event: types.Event) -> None:
        match event:
            case types.RunRequested():
                self.submits[event.run_id] = OpenSubmit(request=event, position=position, requested_at=at, asked_at=at)
            case types.RunHeld() | types.RunPlaced() | types.SubmitIntended() if event.run_id in self.submits:
                self.submits[event.run_id] = _moved_on(self.submits[event.run_id], at, event)
            case types.RunRequeued():
                self._again(position, at, event)
            case types.SubmitSucceeded() | types.SubmitFailed() | types.IntentAbandoned(intent="submit"):
                submit = self.submits.pop(event.run_id, None)
                self.outcomes[event.run_id] = position
                if isinstance(event, types.SubmitSucceeded):
                    self.provider_ids[event.run_id] = event.provider_id
                    if submit is not None:
                        self.accepted[event.run_id] = submit
            case _:
                pass

    def _stop(self, position: int, at: int, event: types.Event) -> None:
        match event:
            case types.StopRequested():
                self.stops[event.run_id] = event
                self.stop_outcomes.pop(event.run_id)
            case types.StopSucceeded() | types.StopFailed() | types.IntentAbandoned(intent="stop"):
                taken, request = self.taken.get(event.run_id), self.stops.pop(event.run_id, None)
                request = request if request is not None or taken is None else taken.request
                if isinstance(event, types.StopFailed) and event.other:
                    self.taken.pop(event.run_id)  # what has its id now is not asked to end
                if isinstance(event, types.StopSucceeded) and request is not None:
                    self.taken[event.run_id] = TakenStop(request=request, taken_at=at)
                self.stop_outcomes[event.run_id] = position
            case types.VmStopIntended():
                self.vm_stops[event.vm_id] = event
            case types.VmStopSucceeded() | types.VmStopFailed():
                self.vm_stops.pop(event.vm_id, None)
                self.vm_outcomes[event.vm_id] = position
            case _:
                pass

    def _notice(self, position: int, at: int, event: types.Event) -> None:
        match event:
            case types.AlertsAdopted():
                known, here = self.told.get(event.source, {}), NoticeMark(position=position, at=at)
                self.told[event.source] = {kind: known.get(kind, here) for kind in event.kinds}
            case types.NoticeIntended():
                self.noticed.update((event.notice_id, *event.about))
                if event.kind != "test":  # whoever asked for a test sends it, once
                    self.notices[event.notice_id] = OpenNotice(intent=event, position=position)
            case types.NoticeDelivered() | types.NoticeFailed():
                notice = self.notices.pop(event.notice_id, None)
                if notice is not None and isinstance(event, types.NoticeFailed) and not event.final:
                    self.notices[event.notice_id] = replace(notice, attempts=event.attempt, failed_at=at)
            case _:
                pass

    def _again(self, position: int, at: int, event: types.RunRequeued) -> None:
        """A new attempt of the same request: open again; the provider's id of the last attempt is a former one."""
        handed = self.accepted.get(event.run_id)
        if handed is None or self.provider_ids.get(event.run_id) != event.provider_id:
            return
        for index in (self.provider_ids, self.accepted, self.outcomes):
            index.pop(event.run_id)
        self.former_ids.add(event.provider_id)
        self.submits[event.run_id] = OpenSubmit(
            request=handed.request,
            position=position,
            requested_at=handed.requested_at,
            asked_at=at,
            attempt=event.attempt,
            queued=True,
        )


def _moved_on(submit: OpenSubmit, at: int, event: types.RunHeld | types.RunPlaced | types.SubmitIntended) -> OpenSubmit:
    match event:
        case types.RunHeld():
            return replace(submit, held=event, queued=True)
        case types.RunPlaced():
            return replace(submit, held=None, placed=event)
        case types.SubmitIntended():
            unmarked = submit.unmarked_at if event.marked or submit.unmarked_at is not None else at
            return replace(submit, intended=event, unmarked_at=unmarked)
