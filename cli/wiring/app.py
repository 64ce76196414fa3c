"""One invocation: its flags, settings, clock and ids."""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING

from cli.wiring.errors import DONE
from cli.wiring.terminal import colour_wanted

if TYPE_CHECKING:
    from engine.settings.settings import Settings
    from events.clock import Clock, Ids


class App:
    """One call of `steno`; everything heavy is created on first use."""

    def __init__(self) -> None:
        self.flags: dict[str, str | None] = {}
        """Settings given on the command line, by name."""
        self.json = False
        self.exit_code = DONE
        """The exit code of a command that raised nothing."""
        self.colour = colour_wanted(sys.stdout.isatty())
        self._settings: Settings | None = None
        self._clock: Clock | None = None
        self._ids: Ids | None = None

    def set_flag(self, name: str, value: str) -> None:
        """A setting as if given on the command line."""
        self.flags[name] = value
        self._settings = None

    def copied(self, clock: Clock) -> App:
        """A copy with another clock and its own flags."""
        other = copy.copy(self)
        other.flags = dict(self.flags)
        other._clock = clock
        return other

    @property
    def settings(self) -> Settings:
        """Every setting; flags win.

        Raises:
            NotConfigured: a file is unreadable, or a value is invalid.
        """
        if self._settings is None:
            import os
            from pathlib import Path

            from platformdirs import user_config_path, user_data_path

            from engine.providers.registry import load_settings

            self._settings = load_settings(
                flags=self.flags,
                environ=os.environ,
                cwd=Path.cwd(),
                home=Path.home(),
                config=user_config_path("steno"),
                data=user_data_path("steno"),
            )
        return self._settings

    @property
    def clock(self) -> Clock:
        """The clock of this process."""
        if self._clock is None:
            from events.clock import SystemClock

            self._clock = SystemClock()
        return self._clock

    @property
    def ids(self) -> Ids:
        """Generates new ids."""
        if self._ids is None:
            from events.clock import RandomIds

            self._ids = RandomIds()
        return self._ids
