"""Submits runs to one provider: intent, call, outcome, each an effect (`engine.act.executor`).

Whatever point a crash hits, the next process finds the intent in the record, looks at the provider for the run that
carries our run id, and calls again only where there is none. A name alone never proves that a run is ours
(docs/adr/0027).
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, assert_never

import msgspec

from engine.act.executor import Call as ProviderCall
from engine.act.executor import Effect
from engine.act.journal import Journal
from engine.act.next_step import Abandon, Call, CheckProvider, Wait, next_step
from engine.errors import NameInUse, ProjectNotFound, ProviderError, ProviderRefused, ProviderUnreachable, TaskInvalid
from engine.fold.outbox import OpenSubmit, SubmitOutcome
from engine.providers.base import Named, Preparation, Provider, Submission
from engine.providers.registry import kind
from events import types
from events.clock import SECOND, Clock, foreign_run_id
from events.errors import SecretGone, StenoError

if TYPE_CHECKING:
    from events.store.vault import Vault

Refusal = Literal["rejected", "name_in_use", "no_project", "refused", "unreachable"]

_REFUSALS: dict[type[StenoError], Refusal] = {
    TaskInvalid: "rejected",
    NameInUse: "name_in_use",
    ProjectNotFound: "no_project",
    ProviderRefused: "refused",
}

LOOK_BACK = 600 * SECOND
"""How long before its request a run may seem to have been submitted: more than any skew of two clocks."""
_SAME = 2 * SECOND
"""Times of two clocks that differ by less count as equal."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A run at the provider that is the requested one, or may be."""

    provider_id: str
    name: str
    sure: bool


class Submitter:
    """Carries out submissions to one provider."""

    def __init__(
        self, journal: Journal, provider: Provider, vault: "Vault", clock: Clock, *, asks_again: bool = False
    ) -> None:
        """
        Args:
            asks_again: a run without capacity may be submitted again, so its secrets are kept until then
                (`erase_secrets`).
        """
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
            ProviderUnreachable, ProviderRefused, ProviderError: it is unknown whether the provider has the task, or it
            goes on waiting in the queue; it stays open.
        """
        step = next_step(submit, self._journal.ledger(), self._clock.now(), looked_at=looked_at)
        match step:
            case Abandon():
                self._abandon(submit, step.why)
            case CheckProvider():
                found = yield from self._look(submit, _name(submit))
                if found is not None and found.sure:
                    self._succeed(submit, found.provider_id, found.name, found=True)
                elif found is not None and step.call_if_missing:
                    self._doubt(submit, found.provider_id)
                elif found is not None:
                    self._abandon(submit, f"whether it is {found.provider_id} is not known; that run is left alone")
                elif step.call_if_missing:
                    yield from self._call(submit)
                else:
                    self._abandon(submit, "it never reached the provider and is no longer wanted")
            case Call():
                yield from self._call(submit)
            case Wait():
                return False
            case _:
                assert_never(step)
        return submit.request.run_id not in self._journal.ledger().submits

    def exists(self, submit: OpenSubmit) -> Effect:
        """Whether the provider has the run already; asking shows why nothing can be submitted.

        Raises:
            ProviderUnreachable, ProviderRefused, ProviderError: it cannot be asked.
        """
        return (yield from self._look(submit, _name(submit))) is not None

    def refuse(self, submit: OpenSubmit, why: str) -> None:
        """Abandon a request because of a policy."""
        self._abandon(submit, why, policy=True)

    def fail(self, submit: OpenSubmit, error: StenoError) -> None:
        """End a request that was certainly not submitted with the provider's error."""
        self._fail(submit, str(error), _REFUSALS.get(type(error), "unreachable"))

    def erase_secrets(self, needed: Callable[[str], bool]) -> None:
        """Erase the secrets of runs with an outcome, except where they may be `needed` again."""
        ledger = self._journal.ledger()
        for owner in self._vault.owners():
            if owner in ledger.outcomes and not needed(owner):
                self._vault.erase(owner)

    def _call(self, submit: OpenSubmit) -> Generator[ProviderCall, Any, None]:
        request = submit.request
        try:
            configuration = msgspec.json.decode(self._vault.reveal(request.configuration), type=dict[str, object])
        except SecretGone:
            self._abandon(submit, "its secrets are no longer in the vault; submit it again")
            return
        try:
            submission = yield from self._prepared(submit, configuration)
            if submission is None:
                return
            intent = types.SubmitIntended(
                run_id=request.run_id, provider=request.provider, name=submission.name, marked=True
            )
            if submit.intended != intent:
                self._journal.run(request.run_id, intent)
            yield from self._send(submit, submission)
        finally:
            self._ahead.pop(request.run_id, None)

    def _prepared(
        self, submit: OpenSubmit, configuration: dict[str, object]
    ) -> Generator[ProviderCall, Any, Submission | None]:
        """What is submitted, once its name is free and its fleet exists; None if the request has failed on that."""
        try:
            submission = _submission(submit, configuration, (yield from self._free_name(submit)))
            nodes = configuration.get("nodes")
            self._ahead[submission.run_id] = nodes if isinstance(nodes, int) else 1
            yield from self._prepare(submission)
        except (ProviderUnreachable, ProviderRefused, ProviderError) as error:
            if submit.queued:
                raise
            # Nothing was submitted: the caller, who waits, gets the error at once.
            self.fail(submit, error)
        except (TaskInvalid, ProjectNotFound, NameInUse) as error:
            self.fail(submit, error)
        else:
            return submission
        return None

    def _free_name(self, submit: OpenSubmit) -> Generator[ProviderCall, Any, str]:
        """A name that no other run has, so that the call neither fails nor replaces a run that is not ours.

        Raises:
            NameInUse: the name is taken, and Steno did not choose it.
            ProviderError: this request's previous attempt has it and has not ended yet.
        """
        request, ledger, taken = submit.request, self._journal.ledger(), ""
        for name in self._provider.names(_name(submit), request.run_id):
            there: Named | None = yield partial(self._provider.holder, name)
            if there is None:
                return name
            former = there.provider_id in ledger.former_ids
            if there.ended and (former or there.provider_id in ledger.provider_ids.values()):
                return name
            if former and submit.attempt > 1:
                raise ProviderError(f"{name}: the previous attempt has not ended yet")
            taken = self._taken(name, there)
            if there.mark == request.run_id:
                break  # it carries our run id: a second run under another name could be one too many
        raise NameInUse(taken)

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

    def _send(self, submit: OpenSubmit, submission: Submission) -> Generator[ProviderCall, Any, None]:
        """The call, and its outcome."""
        try:
            submitted = yield partial(self._provider.submit, submission)
        except (TaskInvalid, ProjectNotFound) as error:
            self.fail(submit, error)
        except ProviderRefused as error:
            if submit.queued:
                raise
            self.fail(submit, error)
        except NameInUse as error:
            yield from self._found_or_failed(submit, submission.name, str(error), "name_in_use")
        except ProviderUnreachable as error:
            if error.sent or submit.queued:
                raise
            self.fail(submit, error)
        except ProviderError as error:
            yield from self._found_or_failed(submit, submission.name, str(error), "rejected")
        else:
            self._succeed(submit, submitted.provider_id, submission.name, found=False)

    def _found_or_failed(
        self, submit: OpenSubmit, name: str, error: str, reason: Refusal
    ) -> Generator[ProviderCall, Any, None]:
        """After a refusal the task may still be there, from this call or an earlier one."""
        found = yield from self._look(submit, name)
        if found is None:
            self._fail(submit, error, reason)
        elif found.sure:
            self._succeed(submit, found.provider_id, found.name, found=True)
        else:
            self._doubt(submit, found.provider_id)

    def _prepare(self, submission: Submission) -> Generator[ProviderCall, Any, None]:
        ahead = sum(self._ahead.values()) - self._ahead[submission.run_id]
        plan: Preparation | None = yield partial(self._provider.plan, submission, ahead=ahead)
        if plan is None:
            return
        where = {"provider": self._provider.name, "project": plan.project, "name": plan.name}
        configuration = self._vault.commit(msgspec.json.encode(plan.configuration))
        self._journal.fleet(plan.project, plan.name, types.FleetIntended(**where, configuration=configuration))
        try:
            yield partial(self._provider.prepare, plan)
        except (TaskInvalid, ProjectNotFound) as error:
            self._journal.fleet(plan.project, plan.name, types.FleetFailed(**where, error=str(error)))
            raise
        self._journal.fleet(plan.project, plan.name, types.FleetEnsured(**where))

    def _look(self, submit: OpenSubmit, name: str) -> Generator[ProviderCall, Any, _Found | None]:
        """The provider's run of this attempt, found by the run id it carries; None if there is none.

        Calls of older versions carried no run id: then a run of that name that equals the request in every field is
        ours, and any other may be.
        """
        named: tuple[Named, ...] = yield partial(self._provider.find, name, submit.asked_at - LOOK_BACK)
        ledger, run_id = self._journal.ledger(), submit.request.run_id
        others = {*ledger.provider_ids.values(), *ledger.former_ids}
        there = [one for one in named if one.provider_id not in others]
        ours = [one for one in there if one.mark == run_id]
        if ours:
            return _Found(ours[-1].provider_id, name, sure=True)  # a copy of its configuration can only be newer
        maybe, same = [one for one in there if self._may_be(submit, one)], tuple[Named, ...]()
        for one in maybe:
            if (yield from self._is_same(submit, one)):
                same = (*same, one)
        return _Found((same or maybe)[0].provider_id, name, sure=len(same) == 1) if maybe else None

    def _may_be(self, submit: OpenSubmit, one: Named) -> bool:
        """Whether an unmarked run of that name may come from an unmarked call."""
        if submit.unmarked_at is None or one.mark is not None or one.submitted_at is None:
            return False
        if one.submitted_at < submit.unmarked_at - _SAME:
            return False
        stream = f"run/{foreign_run_id(self._provider.name, one.provider_id)}"
        return not self._journal.existed_before(stream, submit.position)

    def _is_same(self, submit: OpenSubmit, one: Named) -> Effect:
        request = submit.request
        try:
            configuration = msgspec.json.decode(self._vault.reveal(request.configuration), type=dict[str, object])
        except SecretGone:
            return False
        same: bool = yield partial(
            self._provider.is_same, _submission(submit, configuration, request.name), one.provider_id
        )
        return same

    def _doubt(self, submit: OpenSubmit, provider_id: str) -> None:
        """Only a person can say whether that run is this request's: nothing is called until then."""
        request = submit.request
        detail = (
            f"the answer to its submission was lost, and {self._provider.name} has a run of its name that may be it "
            f"({provider_id}), which is followed as a run of its own: `steno stop {request.run_id}` gives this request "
            "up and leaves that run alone"
        )
        held = types.RunHeld(run_id=request.run_id, provider=request.provider, why="ambiguous", detail=detail)
        self._journal.run(request.run_id, held)

    def _succeed(self, submit: OpenSubmit, provider_id: str, name: str, *, found: bool) -> None:
        request = submit.request
        outcome = types.SubmitSucceeded(
            run_id=request.run_id, provider=request.provider, provider_id=provider_id, name=name, found=found
        )
        self._finish(submit, outcome)

    def _fail(self, submit: OpenSubmit, error: str, reason: Refusal) -> None:
        request = submit.request
        outcome = types.SubmitFailed(run_id=request.run_id, provider=request.provider, error=error, reason=reason)
        self._finish(submit, outcome)

    def _abandon(self, submit: OpenSubmit, why: str, *, policy: bool = False) -> None:
        request = submit.request
        outcome = types.IntentAbandoned(
            run_id=request.run_id, provider=request.provider, intent="submit", why=why, policy=policy
        )
        self._finish(submit, outcome)

    def _finish(self, submit: OpenSubmit, outcome: SubmitOutcome) -> None:
        # The outcome first: a crash in between leaves a secret to be erased later, never an intent without its secret.
        self._journal.run(submit.request.run_id, outcome)
        if not (self._asks_again and isinstance(outcome, types.SubmitSucceeded)):
            self._vault.erase(submit.request.run_id)


def _name(submit: OpenSubmit) -> str:
    """The name of its newest call, or of its first one to come."""
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
