"""What the command line gives a provider's own commands: `engine.providers.kind.Host`."""

from collections.abc import Iterable, Sequence

from cli.render.paint import table
from cli.wiring.app import App
from cli.wiring.output import show
from engine.providers.task import Completed
from engine.settings.settings import Settings
from events.clock import Clock, Ids
from events.poll import Poll


class ProviderHost:
    """One call of `steno <provider> …`."""

    def __init__(self, app: App, provider: str) -> None:
        self._app = app.copied(app.clock)
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

    def print(self, text: str, found: object) -> None:
        show(self._out, found, text)

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
        return table(header, list(rows))

    def append(self, polls: Sequence[Poll]) -> None:
        with self._app.writing() as record:
            record.append_polls(polls)

    def race(self, tasks: Sequence[Completed], *, wait: bool, give_up_after: int | None) -> None:
        from cli.wiring.race import run_race

        self._app.json = self._out.json
        run_race(self._app, tasks, wait=wait, give_up_after=give_up_after)
        self._out.exit_code = self._app.exit_code
