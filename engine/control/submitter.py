"""Submits runs to one provider: intent, call, outcome, each an effect (`steno.engine.control.effects`).

After a crash at any point the next process finds the intent in the record, asks the provider for the run that carries
our run id, and calls again only if there is none. A name alone never proves that a run is ours (docs/adr/0027).
"""

import logging
from collections.abc import Callable, Generator
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypedDict

import msgspec

from steno.engine.control.effects import Call, Effect
from steno.engine.errors import (
    NameInUse,
    NoOffer,
    NotConfigured,
    ProjectNotFound,
    ProviderError,
    ProviderFailing,
    ProviderRefused,
    ProviderUnreachable,
    TaskInvalid,
)
from steno.engine.live.journal import Journal
from steno.engine.providers.base import Named, Preparation, Provider, Submission, Submitted
from steno.engine.providers.registry import kind
from steno.engine.providers.task import alternatives
from steno.engine.state.outbox import OpenSubmit, Outbox, SubmitOutcome
from steno.events import types
from steno.events.clock import SECOND, Clock, foreign_run_id
from steno.events.errors import SecretGone, StenoError
from steno.events.store.vault import Vault

_log = logging.getLogger(__name__)

Refusal = Literal["rejected", "name_in_use", "no_project", "refused", "unreachable", "no_offer"]

REFUSALS: Final[dict[Refusal, type[StenoError]]] = {
    "rejected": TaskInvalid,
    "name_in_use": NameInUse,
    "no_project": ProjectNotFound,
    "refused": ProviderRefused,
    "unreachable": ProviderUnreachable,
    "no_offer": NoOffer,
}

TOO_OLD: Final = 24 * 3600 * SECOND
"""A request that waited longer is abandoned: nobody expects it to start, and to be billed, any more (docs/adr/0005)."""
MAX_SKEW: Final = 600 * SECOND  # how long before its request a run may seem submitted: more than any skew
_SAME: Final = 2 * SECOND  # times of two clocks that differ by less count as equal


class NextStep(Enum):
    """The next step of an open request; the last two never call, and their value says why."""

    CALL = "no call was made before"
    CHECK = "a call may have been made: look whether the provider has the run, and only then call again"
    LOOK = "as CHECK, but never call again: the run is not wanted any more"
    WAIT = "the controller has to give it a place, or a person to say whether the provider has it"
    STOPPED = "it was stopped before it was handed to the provider"
    EXPIRED = "it waited for more than 24 hours without being handed to the provider; submit it again"


def next_step(submit: OpenSubmit, outbox: Outbox, now: int, *, looked_at: int | None = None) -> NextStep:
    """The next step of a submission without an outcome. `looked_at`: when the provider last answered a round that
    decided about the queue (microseconds, UTC). A queued run ages only while nobody works on its queue.
    """
    since = submit.requested_at
    if submit.queued and looked_at is not None:
        since = max(since, looked_at)
    old = now - since > TOO_OLD
    stop = submit.request.run_id in outbox.stops
    if submit.intended is not None:
        if old or stop:
            return NextStep.LOOK
        return NextStep.WAIT if submit.held is not None and submit.held.why == "ambiguous" else NextStep.CHECK
    if stop or old:
        return NextStep.STOPPED if stop else NextStep.EXPIRED
    return NextStep.WAIT if submit.placed is None else NextStep.CALL


class FoundRun(NamedTuple):
    """The provider's run that is, or may be, the requested one."""

    provider_id: str
    sure: bool


class Submitter:
    def __init__(
        self, journal: Journal, provider: Provider, vault: Vault, clock: Clock, *, asks_again: bool = False
    ) -> None:
        """`asks_again`: a run without capacity may be submitted again: secrets are kept until `erase_secrets`."""
        self._journal = journal
        self._provider = provider
        self._vault = vault
        self._clock = clock
        self._asks_again = asks_again
        self._ahead: dict[str, int] = {}
        """Runs being submitted → how many machines each needs: the provider may not list them yet."""

    def submit(self, submit: OpenSubmit, *, looked_at: int | None = None) -> Effect:
        """Carry out one submission as far as possible; True if it has an outcome now.

        Raises:
            ProviderUnreachable, ProviderRefused, ProviderError: the provider may have the task, or it still waits in
                the queue; the request stays open.
        """
        step = next_step(submit, self._journal.outbox(), self._clock.now(), looked_at=looked_at)
        match step:
            case NextStep.WAIT:
                return False
            case NextStep.CALL:
                yield from self._call(submit)
            case NextStep.CHECK | NextStep.LOOK:
                run = yield from self.look(submit)
                if run is not None and (run.sure or step is NextStep.CHECK):
                    self._found(submit, run, _name(submit))
                elif run is not None:
                    self._abandon(submit, f"whether it is {run.provider_id} is not known; that run is left alone")
                elif step is NextStep.CHECK:
                    yield from self._call(submit)
                else:
                    there: str | None = yield partial(self._provider.withdraw, submit.request.run_id)
                    if there is not None:
                        self._found(submit, FoundRun(there, sure=True), _name(submit))
                    else:
                        self._abandon(submit, "it never reached the provider and is no longer wanted")
            case NextStep.STOPPED | NextStep.EXPIRED:
                self._abandon(submit, step.value)
        return submit.request.run_id not in self._journal.outbox().submits

    def fail(self, submit: OpenSubmit, error: StenoError, otherwise: Refusal = "unreachable") -> None:
        """End a request that was certainly not submitted with the provider's error."""
        reason = next((name for name, cause in REFUSALS.items() if type(error) is cause), otherwise)
        self.finish(types.SubmitFailed(**_where(submit), error=str(error), reason=reason))

    def finish(self, outcome: SubmitOutcome) -> None:
        """Record the outcome of a request; erase its secrets unless it may be submitted again."""
        # The outcome first: a crash in between leaves a secret to be erased later, never an intent without its secret.
        self._journal.write(f"run/{outcome.run_id}", outcome)
        if not (self._asks_again and isinstance(outcome, types.SubmitSucceeded)):
            self._vault.erase(outcome.run_id)

    def erase_secrets(self, needed: Callable[[str], bool]) -> None:
        """Erase the secrets of runs with an outcome, unless they may be `needed` again."""
        outbox = self._journal.outbox()
        for owner in self._vault.owners():
            if owner in outbox.outcomes and not needed(owner):
                self._vault.erase(owner)

    def _call(self, submit: OpenSubmit) -> Generator[Call, Any, None]:
        """Submit the run once its name is free and its machines can be made; record the outcome."""
        run_id, name, called = submit.request.run_id, "", False
        try:
            configuration = self._configuration(submit)
            name = yield from self._free_name(submit)
            submission, nodes = _submission(submit, configuration, name), configuration.get("nodes")
            self._ahead[run_id] = nodes if isinstance(nodes, int) else 1
            yield from self._prepare(submission)
            intent = types.SubmitIntended(**_where(submit), name=name, marked=True)
            if submit.intended != intent:
                self._journal.write(f"run/{run_id}", intent)
            called = True
            submitted = yield from self._ask(partial(self._provider.submit, submission), ProviderError)
        except SecretGone:
            self._abandon(submit, "its secrets are no longer in the vault; submit it again")
        except (NotConfigured, TaskInvalid, ProjectNotFound) as error:
            self.fail(submit, error, "rejected")
        except (NameInUse, ProviderError) as error:
            # A refused task may still be there, from this call or an earlier one.
            run = (yield from self.look(submit, name)) if called else None
            if run is not None:
                self._found(submit, run, name)
            elif called or isinstance(error, NameInUse) or not submit.queued:
                refused = called and not isinstance(error, ProviderFailing)
                self.fail(submit, error, "rejected" if refused else "unreachable")
            else:
                raise
        except (ProviderUnreachable, ProviderRefused) as error:
            # If nothing was submitted, the caller, who waits, gets the error at once.
            if submit.queued or (called and isinstance(error, ProviderUnreachable) and error.sent):
                raise
            self.fail(submit, error)
        else:
            self._succeed(submit, submitted, name)
        finally:
            self._ahead.pop(run_id, None)

    def _ask(self, call: Call, refused: type[StenoError]) -> Generator[Call, Any, Any]:
        """The result of a call about one task. A bug of the provider's code is raised as `refused`: it ends that task,
        not the process, which would meet it again after each restart.
        """
        try:
            return (yield call)
        except StenoError:
            raise
        except Exception as error:
            _log.exception("a call of the provider %s failed", self._provider.name)
            bug = f"{type(error).__name__}: {error}"
            raise refused(
                f"{self._provider.name} fails at this task by a bug ({bug}): change the task, and report the log"
            ) from error

    def _configuration(self, submit: OpenSubmit) -> dict[str, object]:
        return msgspec.json.decode(self._vault.reveal(submit.request.configuration), type=dict[str, object])

    def _free_name(self, submit: OpenSubmit) -> Generator[Call, Any, str]:
        """A name that no other run has: the call neither fails nor replaces a run that is not ours.

        Raises:
            NameInUse: the name is taken, and Steno did not choose it.
            ProviderError: this request's previous attempt has it and has not ended yet.
        """
        request, outbox, taken = submit.request, self._journal.outbox(), ""
        for name in alternatives(_name(submit), request.run_id):
            there: Named | None = yield partial(self._provider.holder, name)
            if there is None:
                return name
            former = there.provider_id in outbox.former_ids
            if there.ended and (former or self._is_known(there.provider_id)):
                return name
            if former and submit.attempt > 1:
                raise ProviderError(f"{name}: the previous attempt has not ended yet")
            taken = self._taken(name, there)
            if there.mark == request.run_id:
                break  # it carries our run id: a second run under another name could be one too many
        raise NameInUse(taken)

    def _is_known(self, provider_id: str) -> bool:
        """True if a submission of ours became the provider's run of this id."""
        state = self._journal.state()
        run_id = state.by_provider.get(f"{self._provider.name}/{provider_id}")
        return run_id is not None and state.outbox.provider_ids.get(run_id) == provider_id

    def _taken(self, name: str, there: Named) -> str:
        at = f"at {self._provider.name} ({there.provider_id})"
        if there.ended:
            own = kind(self._provider.name).delete_run.format(name=name)
            hint = f" (`{own}`)" if own else ""
            return (
                f"a finished run {at}, which this record did not submit, is named {name} and would be deleted: choose "
                f"another name, or delete that run first{hint}"
            )
        return f"an active run {at} is named {name}: choose another name, or stop it (`steno stop {there.provider_id}`)"

    def _prepare(self, submission: Submission) -> Generator[Call, Any, None]:
        ahead = sum(self._ahead.values()) - self._ahead[submission.run_id]
        plan: Preparation | None = yield from self._ask(
            partial(self._provider.plan, submission, ahead=ahead), TaskInvalid
        )
        if plan is None:
            return
        stream = f"fleet/{plan.project}/{plan.name}"
        where = {"provider": self._provider.name, "project": plan.project, "name": plan.name}
        configuration = self._vault.commit(msgspec.json.encode(plan.configuration))
        self._journal.write(stream, types.FleetIntended(**where, configuration=configuration))
        try:
            yield from self._ask(partial(self._provider.prepare, plan), TaskInvalid)
        except (TaskInvalid, ProjectNotFound) as error:
            self._journal.write(stream, types.FleetFailed(**where, error=str(error)))
            raise
        self._journal.write(stream, types.FleetEnsured(**where))

    def look(self, submit: OpenSubmit, name: str | None = None) -> Generator[Call, Any, FoundRun | None]:
        """The provider's run of this attempt, found by the run id it carries; None: none. Asking also shows why nothing
        can be submitted. Calls of older versions carried no run id: there a run of that name that equals the request in
        every field is ours, and any other run of that name may be.
        """
        named: tuple[Named, ...] = yield partial(self._provider.find, name or _name(submit), submit.asked_at - MAX_SKEW)
        former, run_id = self._journal.outbox().former_ids, submit.request.run_id
        there = [run for run in named if run.provider_id not in former]
        # An id can come again: the id of an earlier run of ours may belong to this run now.
        ours = [run for run in there if run.mark == run_id]
        if ours:
            return FoundRun(ours[-1].provider_id, sure=True)  # a copy of its configuration can only be newer
        there = [run for run in there if not self._is_known(run.provider_id)]
        maybe, same = [run for run in there if self._may_be(submit, run)], list[Named]()
        if not maybe:
            return None
        with suppress(SecretGone):
            submission = _submission(submit, self._configuration(submit), submit.request.name)
            for candidate in maybe:
                if (yield partial(self._provider.is_same, submission, candidate.provider_id)):
                    same.append(candidate)
        return FoundRun((same or maybe)[0].provider_id, sure=len(same) == 1)

    def _may_be(self, submit: OpenSubmit, run: Named) -> bool:
        if submit.unmarked_at is None or run.mark is not None or run.submitted_at is None:
            return False
        if run.submitted_at < submit.unmarked_at - _SAME:
            return False
        stream = f"run/{foreign_run_id(self._provider.name, run.provider_id)}"
        first = next(iter(self._journal.record.read(stream=stream, limit=1)), None)
        return first is None or first.position >= submit.position  # not there before the request

    def _found(self, submit: OpenSubmit, run: FoundRun, name: str) -> None:
        """Record that the provider has the run; if only a person can say so, nothing is called until then."""
        if run.sure:
            self._succeed(submit, Submitted(provider_id=run.provider_id, name=name), name, known=True)
            return
        run_id = submit.request.run_id
        detail = (
            f"the answer to its submission was lost, and {self._provider.name} has a run of its name that may be it "
            f"({run.provider_id}), which is followed as a run of its own: `steno stop {run_id}` gives this request "
            "up and leaves that run alone"
        )
        self._journal.write(
            f"run/{run_id}", types.RunHeld(**_where(submit), why="ambiguous", detail=detail, not_before=None)
        )

    def _succeed(self, submit: OpenSubmit, given: Submitted, name: str, *, known: bool = False) -> None:
        self.finish(
            types.SubmitSucceeded(
                **_where(submit),
                provider_id=given.provider_id,
                name=name,
                found=known,
                sent=given.sent,
                submitted_at=given.submitted_at,
            )
        )

    def _abandon(self, submit: OpenSubmit, why: str) -> None:
        self.finish(types.IntentAbandoned(**_where(submit), intent="submit", why=why, policy=False))


class _Where(TypedDict):
    run_id: str
    provider: str


def _where(submit: OpenSubmit) -> _Where:
    return _Where(run_id=submit.request.run_id, provider=submit.request.provider)


def _name(submit: OpenSubmit) -> str:
    """The name of its newest call, or of its first."""
    return submit.request.name if submit.intended is None else submit.intended.name


def _submission(submit: OpenSubmit, configuration: dict[str, object], name: str) -> Submission:
    """The request with its place. Requests of older records have no place."""
    request, placed = submit.request, submit.placed
    if placed is None:
        placed = types.RunPlaced(run_id=request.run_id, provider=request.provider)
    return Submission(
        run_id=request.run_id,
        name=name,
        project=request.project,
        configuration=configuration,
        base=request.base,
        slot=placed.slot,
        creation=placed.creation,
        gpu=placed.gpu,
        idle=placed.idle,
    )
