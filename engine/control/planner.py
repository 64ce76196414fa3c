"""Asks a provider what it could start waiting runs on, before they get a place, and records each answer."""

from collections.abc import Generator
from functools import partial
from typing import Any, Final

import msgspec

from steno.engine.control.effects import Call
from steno.engine.decide.offers import AGAIN, unanswered
from steno.engine.decide.situation import Situation
from steno.engine.live.journal import Journal
from steno.engine.providers.base import Offers, Provider, Submission
from steno.engine.state.archives import live_part
from steno.engine.state.policy import Policy
from steno.engine.state.world import World
from steno.events import types
from steno.events.clock import SECOND, Clock
from steno.events.errors import SecretGone, StenoError
from steno.events.store.vault import Vault

LONGEST: Final = 10 * SECOND  # of one round; what is not asked by then is decided as if there were no plan


class Planner:
    def __init__(self, journal: Journal, provider: Provider, vault: Vault, clock: Clock) -> None:
        self._journal = journal
        self._provider = provider
        self._vault = vault
        self._clock = clock
        self._asked: dict[str, int] = {}  # when, also what gave no answer

    def ask(self, state: World, policy: Policy) -> Generator[Call, Any, None]:
        """Ask about every waiting run of which no answer of the last minute is known; a question without an answer is
        asked again a minute later.
        """
        began, source, outbox = self._clock.now(), self._provider.source, self._journal.outbox()
        if not outbox.submits:
            return
        self._asked = {key: at for key, at in self._asked.items() if 0 <= began - at < AGAIN}
        situation = Situation(state=live_part(state), source=source, policy=policy, now=began)
        for run, gpu, key in list(unanswered(situation)):
            submit = outbox.submits.get(run.run_id)
            if submit is None or key in self._asked:
                continue
            now = self._clock.now()
            if now - began > LONGEST:
                return
            self._asked[key] = now
            try:
                configuration = msgspec.json.decode(self._vault.reveal(submit.request.configuration), type=dict)
            except SecretGone:
                continue  # its submission says so
            request = submit.request
            submission = Submission(
                run_id=run.run_id, name=request.name, project=request.project, configuration=configuration, gpu=gpu
            )
            offers: Offers | None = yield partial(self._offers, submission)
            if offers is not None:
                answer = types.PlanAnswered(source=source, requirement=key, offers=offers.count, reason=offers.reason)
                self._journal.write(f"source/{source}", answer)

    def _offers(self, submission: Submission) -> Offers | None:
        try:
            return self._provider.offers(submission)
        except StenoError:
            return None
