"""Hands runs over to one provider: intent, call, outcome, each an effect (`engine.effects.executor`).

Whatever point a crash hits, the next process finds the intent in the record, looks at the provider under the name that
was chosen before the call, and calls again only where nothing is there.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, assert_never

import msgspec

from engine.effects.executor import Call as ProviderCall
from engine.effects.executor import Effect
from engine.effects.journal import Journal
from engine.effects.ledger import OpenSubmit, SubmitOutcome
from engine.effects.steps import Abandon, Call, Look, Wait, next_step
from engine.errors import NameInUse, ProjectNotFound, ProviderError, ProviderRefused, ProviderUnreachable, TaskInvalid
from engine.providers.base import FleetPlan, Provider, Submission
from events import types
from events.clock import SECOND, Clock, foreign_run_id
from events.errors import SecretGone, StenoError

if TYPE_CHECKING:
    from events.vault import Vault

Refusal = Literal["rejected", "name_in_use", "no_project", "refused", "unreachable"]

_REFUSALS: dict[type[StenoError], Refusal] = {
    TaskInvalid: "rejected",
    ProjectNotFound: "no_project",
    ProviderRefused: "refused",
}

LOOK_BACK = 600 * SECOND
"""How far before the request a run of its name may seem to have been submitted: more than any sane skew between two
clocks."""


class Handover:
    """Submissions to one provider, for everybody who asked."""

    def __init__(
        self, journal: Journal, provider: Provider, vault: "Vault", clock: Clock, *, asks_again: bool = False
    ) -> None:
        """
        Args:
            asks_again: a run the provider has no capacity for may be handed over once more, so its secrets are kept
                until that cannot be any more (`erase_secrets`).
        """
        self._journal = journal
        self._provider = provider
        self._vault = vault
        self._clock = clock
        self._asks_again = asks_again
        self._ahead: dict[str, int] = {}
        """Runs being handed over → how many machines each needs: the provider may not list them yet."""

    def bring(self, submit: OpenSubmit, *, looked_at: int | None = None) -> Effect:
        """Bring one submission as far as it goes; True where it has an outcome now.

        Raises:
            ProviderUnreachable, ProviderRefused, ProviderError: whether the provider has the task is not known, or it
            waited in the queue before and goes on waiting; it stays open.
        """
        step = next_step(submit, self._journal.ledger(), self._clock.now(), looked_at=looked_at)
        match step:
            case Abandon():
                self._abandon(submit, step.why)
            case Look():
                found = yield from self._look(submit)
                if found is not None:
                    self._succeed(submit, found, found=True)
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
        return True

    def is_there(self, submit: OpenSubmit) -> Effect:
        """Whether the provider has the run already: a question that says why nothing can be handed over, if so.

        Raises:
            ProviderUnreachable, ProviderRefused, ProviderError: it cannot be asked.
        """
        return (yield from self._look(submit)) is not None

    def refuse(self, submit: OpenSubmit, why: str) -> None:
        """A policy has it that it will never be handed over."""
        self._abandon(submit, why, policy=True)

    def fail(self, submit: OpenSubmit, error: StenoError) -> None:
        """End a request that was certainly not handed over with what the provider said."""
        self._fail(submit, str(error), _REFUSALS.get(type(error), "unreachable"))

    def erase_secrets(self, needed: Callable[[str], bool]) -> None:
        """Forget what the vault has for runs with an outcome, but for those it may be `needed` for once more."""
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
        submission = _submission(submit, configuration)
        nodes = configuration.get("nodes")
        self._ahead[request.run_id] = nodes if isinstance(nodes, int) else 1
        try:
            if not (yield from self._is_prepared(submit, submission)):
                return
            if not submit.intended:
                intent = types.SubmitIntended(run_id=request.run_id, provider=request.provider, name=request.name)
                self._journal.run(request.run_id, intent)
            yield from self._send(submit, submission)
        finally:
            del self._ahead[request.run_id]

    def _is_prepared(self, submit: OpenSubmit, submission: Submission) -> Effect:
        """Whether the fleet it goes to is there; False where the request has failed for want of it."""
        try:
            yield from self._ensure_fleet(submission)
        except (ProviderUnreachable, ProviderRefused, ProviderError) as error:
            if submit.queued:
                raise
            # Nothing was handed over: whoever waits for the answer is told at once.
            self.fail(submit, error)
        except (TaskInvalid, ProjectNotFound) as error:
            self.fail(submit, error)
        else:
            return True
        return False

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
            if submit.attempt > 1 and (yield from self._former_is_newest(submit)):
                # Its job has failed and the run itself is a moment behind: the next round asks again.
                raise ProviderError(f"{submission.name}: the attempt before has not ended yet") from error
            yield from self._found_or_failed(submit, str(error), "name_in_use")
        except ProviderUnreachable as error:
            if error.sent or submit.queued:
                raise
            self.fail(submit, error)
        except ProviderError as error:
            yield from self._found_or_failed(submit, str(error), "rejected")
        else:
            self._succeed(submit, submitted.provider_id, found=False)

    def _found_or_failed(self, submit: OpenSubmit, error: str, reason: Refusal) -> Generator[ProviderCall, Any, None]:
        """The provider answered with a refusal; the task may be there all the same, from this call or an earlier."""
        found = yield from self._look(submit)
        if found is None:
            self._fail(submit, error, reason)
        else:
            self._succeed(submit, found, found=True)

    def _former_is_newest(self, submit: OpenSubmit) -> Effect:
        """Whether the newest run of that name is one of this request's earlier attempts."""
        newest = yield partial(self._provider.find, submit.request.name, submit.requested_at - LOOK_BACK)
        return newest in self._journal.ledger().former_ids

    def _ensure_fleet(self, submission: Submission) -> Generator[ProviderCall, Any, None]:
        plan: FleetPlan | None = yield self._plan(submission)
        if plan is None:
            return
        where = {"provider": self._provider.name, "project": plan.project, "name": plan.name}
        configuration = self._vault.commit(msgspec.json.encode(plan.configuration))
        self._journal.fleet(plan.project, plan.name, types.FleetIntended(**where, configuration=configuration))
        try:
            yield partial(self._provider.ensure_fleet, plan)
        except (TaskInvalid, ProjectNotFound) as error:
            self._journal.fleet(plan.project, plan.name, types.FleetFailed(**where, error=str(error)))
            raise
        self._journal.fleet(plan.project, plan.name, types.FleetEnsured(**where))

    def _plan(self, submission: Submission) -> ProviderCall:
        """The question which fleet is to be made first."""
        task = submission.configuration
        if submission.gpu is not None:
            asked = task.get("resources")
            task = {**task, "resources": {**(asked if isinstance(asked, dict) else {}), "gpu": submission.gpu}}
        if submission.slot is not None:
            return partial(self._provider.plan_slot, submission.slot, task)
        ahead = sum(self._ahead.values()) - self._ahead[submission.run_id]
        return partial(self._provider.plan_fleet, task, ahead=ahead)

    def _look(self, submit: OpenSubmit) -> Generator[ProviderCall, Any, str | None]:
        """The provider's id of the run this attempt already became; None where it did not."""
        found: str | None = yield partial(self._provider.find, submit.request.name, submit.asked_at - LOOK_BACK)
        if found is None:
            return None
        ledger, run_id = self._journal.ledger(), submit.request.run_id
        others = set(ledger.provider_ids.values()) | ledger.former_ids | (set(ledger.submits) - {run_id})
        # A run of that name that another request or attempt became, or that the record knew before this one, is not
        # ours. (The local provider's ids are our run ids.)
        stream = f"run/{foreign_run_id(self._provider.name, found)}"
        if found in others or self._journal.existed_before(stream, submit.position):
            return None
        return found

    def _succeed(self, submit: OpenSubmit, provider_id: str, *, found: bool) -> None:
        request = submit.request
        outcome = types.SubmitSucceeded(
            run_id=request.run_id, provider=request.provider, provider_id=provider_id, name=request.name, found=found
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


def _submission(submit: OpenSubmit, configuration: dict[str, object]) -> Submission:
    """What is handed over: the request, and where its place says it goes. (Requests of older records have none.)"""
    request, placed = submit.request, submit.placed
    if placed is None:
        placed = types.RunPlaced(run_id=request.run_id, provider=request.provider)
    return Submission(
        run_id=request.run_id,
        name=request.name,
        project=request.project,
        configuration=configuration,
        base=request.base,
        slot=placed.slot,
        creation=placed.creation,
        gpu=placed.gpu,
        idle=placed.idle,
    )
