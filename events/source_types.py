"""Facts about sources: who looks at one, and whether lists show it. Part of `events.types`, which names them all."""

from events.fact import Fact


class RecorderStarted(Fact, frozen=True, kw_only=True):
    """A recorder began to poll this source."""

    source: str
    software: str
    """The version of Steno."""


class RecorderStopped(Fact, frozen=True, kw_only=True):
    """A recorder stopped on purpose; a killed one leaves none of these."""

    source: str
    why: str


class SourceHidden(Fact, frozen=True, kw_only=True):
    """Lists leave out what was imported as this source, from now on."""

    source: str
    by: str
    """Who asked for it."""


class SourceShown(Fact, frozen=True, kw_only=True):
    """Lists show what was imported as this source again."""

    source: str
    by: str
    """Who asked for it."""
