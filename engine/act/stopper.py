"""Ends runs at one provider: intent, call, outcome, each an effect (`engine.act.executor`)."""

from collections.abc import Iterable, Iterator
from functools import partial

from engine.act.executor import Effect
from engine.act.journal import Journal
from engine.act.next_step import unheard
from engine.act.outbox import OpenStop, TakenStop
from engine.errors import RunNotFound
from engine.fold.run import Run
from engine.providers.base import Provider
from events import types


class Stops:
    """Stops of runs, for everybody who asked."""

    def __init__(self, journal: Journal, provider: Provider) -> None:
        self._journal = journal
        self._provider = provider

    def bring(self, stop: OpenStop, run: Run | None) -> Effect:
        """Bring one stop as far as it goes; True where it has an outcome now.

        Args:
            run: what the engine's own fold knows of it. Who asked may have read a false id in the read models.

        Raises:
            ProviderUnreachable, ProviderRefused, ProviderError: it stays open and is asked again; a second stop of
            one run is harmless.
        """
        ledger = self._journal.ledger()
        if stop.request.run_id in ledger.submits:
            return False  # settled as a submission first; its own step sees the stop
        return (yield from self._stop(stop.request, None if run is None else run.provider_id))

    def unheard(self, runs: Iterable[Run]) -> Iterator[tuple[TakenStop, Effect]]:
        """Every stop that was taken and not heard, as the newest answers of these runs show; each with its effect."""
        ledger = self._journal.ledger()
        for run in runs:
            taken = ledger.taken.get(run.run_id)
            if taken is None or run.run_id in ledger.stops or taken.request.provider != self._provider.name:
                continue
            if taken.request.project != self._provider.project:
                continue
            if unheard(taken, status=run.reported.status, seen_at=run.last_at):
                yield taken, self._stop(taken.request, run.provider_id)

    def request(self, run: Run, submitter: str) -> bool:
        """Ask for a stop because of a policy; False where a stop is open or was taken."""
        ledger = self._journal.ledger()
        if run.run_id in ledger.stops or run.run_id in ledger.taken:
            return False
        self._journal.run(
            run.run_id,
            types.StopRequested(
                run_id=run.run_id,
                provider=run.provider,
                project=run.project or self._provider.project,
                provider_id=run.provider_id,
                name=run.name or "",
                by="policy",
                submitter=submitter,
            ),
        )
        return True

    def _stop(self, request: types.StopRequested, folded_id: str | None) -> Effect:
        ledger = self._journal.ledger()
        provider_id = ledger.provider_ids.get(request.run_id, folded_id)
        if provider_id is None or provider_id in ledger.former_ids:
            why = "the run never reached the provider"
            self._journal.run(
                request.run_id,
                types.IntentAbandoned(run_id=request.run_id, provider=request.provider, intent="stop", why=why),
            )
            return True
        intent = types.StopIntended(
            run_id=request.run_id,
            provider=request.provider,
            provider_id=provider_id,
            abort=request.abort,
            by=request.by,
        )
        self._journal.run(request.run_id, intent)
        try:
            yield partial(self._provider.stop, provider_id, request.name, request.abort)
        except RunNotFound as error:
            self._journal.run(
                request.run_id, types.StopFailed(run_id=request.run_id, provider=request.provider, error=str(error))
            )
        else:
            self._journal.run(request.run_id, types.StopSucceeded(run_id=request.run_id, provider=request.provider))
        return True
