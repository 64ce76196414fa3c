"""One invocation: its flags, settings, clock, ids, record and providers."""

from __future__ import annotations

import copy
import sys
from functools import cached_property
from typing import TYPE_CHECKING

from cli.wiring.errors import DONE
from cli.wiring.terminal import colour_wanted

if TYPE_CHECKING:
    from engine.fold.run import Run
    from engine.providers.base import Provider
    from engine.settings.settings import Settings
    from events.clock import Clock, Ids
    from events.store.record import Record
    from events.store.store import Store


class App:
    """One call of `steno`; everything heavy is created on first use."""

    def __init__(self) -> None:
        self.flags: dict[str, str | None] = {}
        """Settings given on the command line, by name."""
        self.json = False
        self.exit_code = DONE
        """The exit code of a command that raised nothing."""
        self.colour = colour_wanted(sys.stdout.isatty())

    def set_flag(self, name: str, value: str) -> None:
        """A setting as if given on the command line."""
        self.flags[name] = value
        self.__dict__.pop("settings", None)

    def copied(self, clock: Clock) -> App:
        """A copy with another clock and its own flags."""
        other = copy.copy(self)
        other.flags, other.clock = dict(self.flags), clock
        return other

    @cached_property
    def settings(self) -> Settings:
        """Every setting; flags win.

        Raises:
            NotConfigured: a file is unreadable, or a value is invalid.
        """
        import os
        from pathlib import Path

        from platformdirs import user_config_path, user_data_path

        from engine.providers.registry import load_settings

        return load_settings(
            flags=self.flags,
            environ=os.environ,
            cwd=Path.cwd(),
            home=Path.home(),
            config=user_config_path("steno"),
            data=user_data_path("steno"),
        )

    @cached_property
    def clock(self) -> Clock:
        """The clock of this process."""
        from events.clock import SystemClock

        return SystemClock()

    @cached_property
    def ids(self) -> Ids:
        """Generates new ids."""
        from events.clock import RandomIds

        return RandomIds()

    def reading(self, *, check: bool = True) -> Record:
        """The record to read; `check` looks that its newest events are there.

        Raises:
            RecordNotFound, NotARecord, RecordDamaged, RecordTooNew: as they say.
        """
        return self._record(write=False, check=check)

    def writing(self, *, create: bool = True) -> Record:
        """The record to append to, made if it is not there and `create`.

        Raises:
            NotARecord, RecordDamaged, RecordTooNew, RecordNotWritable, RecordLocked: as they say.
        """
        return self._record(write=True, create=create)

    def _record(self, *, write: bool, create: bool = False, check: bool = True) -> Record:
        from engine.providers.readings import READINGS
        from events.store.record import Record

        where = self.settings.record
        return Record.open(where, write=write, create=create, check=check, shapes=READINGS.shape, clock=self.clock)

    def provider(self, name: str, record: Store | None, *, project: str | None = None) -> Provider:
        """The provider of that name, in the project of the settings or in the one given.

        Raises:
            NotConfigured, ProjectNotFound: there is no such provider, or a setting it needs is missing or wrong.
        """
        from engine.providers import registry

        kind, app = registry.kind(name), self.copied(self.clock)
        if all(block.provider != name for block in app.settings.blocks):
            app.set_flag("provider", name)  # its settings are read only where it is named
        if project is not None and project != app.settings.value("project"):
            app.set_flag("project", project)
        return kind.open(app.settings, clock=app.clock, ids=app.ids, record=record)

    def provider_of(self, run: Run, record: Store | None) -> Provider:
        """The provider that has a run, in the run's own project."""
        return self.provider(run.provider, record, project=run.project)
