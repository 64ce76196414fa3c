"""The implementation of `steno.engine.providers.kind.Host` for a provider's own commands."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from steno.cli.render.paint import table
from steno.cli.wiring.app import App
from steno.cli.wiring.output import show
from steno.cli.wiring.view import DAY, viewing
from steno.engine.providers.task import Completed
from steno.engine.settings.settings import Settings
from steno.events.clock import Clock, Ids, parse_time
from steno.events.errors import RecordNotFound
from steno.events.poll import Poll


class ProviderHost:
    """A call of `steno <provider> …`."""

    def __init__(self, app: App, provider: str) -> None:
        self._app = app.copied(app.clock)
        self._provider = provider
        self._app.set_flag("provider", provider)
        self._out = app

    @property
    def settings(self) -> Settings:
        return self._app.settings

    @property
    def clock(self) -> Clock:
        return self._app.clock

    @property
    def ids(self) -> Ids:
        return self._app.ids

    def print(self, text: str, value: object, /) -> None:
        show(self._out, value, text)

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
        return table(header, list(rows))

    def append(self, polls: Sequence[Poll]) -> None:
        with self._app.writing() as record:
            record.append_polls(polls)

    def answers(self, path: str) -> list[Poll]:
        from steno.projections.answers.record_pages import poll_rows

        with suppress(RecordNotFound), self._app.reading() as record:
            rows = poll_rows(record, after=0, until=record.head().position)
            return [record.poll(int(str(row["position"]))) for row in rows if str(row["path"]).startswith(path)]
        return []

    def waits(self) -> dict[str, list[int]]:
        waits: dict[str, list[int]] = {}
        with suppress(RecordNotFound), viewing(self._app) as (_, view, now):
            for run in view.runs(open_or_since=now - 30 * DAY):
                ran = next((move.at for move in run.transitions if move.target == "running"), None)
                since = run.provider_submitted_at or run.submitted_at
                if run.provider == self._provider and run.vm_id and since and ran:
                    gpu = view.vm_row(run.vm_id).decoded.facts.gpu or "none"
                    waits.setdefault(gpu, []).append(max(0, parse_time(ran) - parse_time(since)))
        return waits

    def end(self, code: int) -> None:
        self._out.exit_code = code

    def race(self, tasks: Sequence[Completed], *, wait: bool, give_up_after: int | None) -> None:
        from steno.cli.wiring.session import run_race

        self._app.json = self._out.json
        run_race(self._app, tasks, wait=wait, give_up_after=give_up_after)
        self._out.exit_code = self._app.exit_code
