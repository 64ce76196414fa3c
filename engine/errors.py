"""Errors between Steno and a provider, one class a cause; each message says what happened and what to do."""

from steno.events.errors import RecordLocked, StenoError


class ProviderUnreachable(StenoError):
    """No answer from the provider.

    `sent` is False where the question certainly never left: whatever it asked for has not happened.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class ProviderRefused(StenoError):
    """The provider answered 401 or 403: the token is wrong or lacks the right."""


class ProviderError(StenoError):
    """The provider answered with something we cannot use (5xx, HTML, garbage)."""


class ProviderFailing(ProviderError):
    """The provider answered 429 or 5xx: the same request may pass later."""


class NoOffer(ProviderError):
    """By its own plan the provider has no machine that the task could get."""


class NotConfigured(StenoError):
    """A setting that is needed is missing or wrong."""


class ProjectNotFound(StenoError):
    """The provider does not show us that project."""


class CaseNotFound(StenoError):
    """No run of this record showed a case of that number."""


class RunNotFound(StenoError):
    """No run of that id or name is in the record."""


class TaskInvalid(StenoError):
    """The task file or its flags cannot be submitted."""


class UnknownProfile(TaskInvalid):
    """Neither the provider's own tool nor Steno has a profile of that name."""


class NameInUse(StenoError):
    """An active run already has that name."""


class Conflict(StenoError):
    """The request does not fit the present state."""


class RefusedByPolicy(StenoError):
    """A policy (budget, concurrency) refuses."""


class NotIsolated(RefusedByPolicy):
    """This host lacks what a kernel needs, such as a container engine, so it does not run at all."""


class VmInUse(StenoError):
    """The machine cannot be ended now: a run is on it, or the provider is busy with it."""


class VmNotFound(StenoError):
    """The provider knows no such machine."""


class SourceNotFound(StenoError):
    """The record has no such source."""


class NothingRecorded(StenoError):
    """The record holds nothing from which the question could be answered."""


class LeverNotFound(StenoError):
    """No lever of that id is in force."""


class TokenNotFound(StenoError):
    """The record has no such token."""


class SnapshotLost(RecordLocked):
    """A part of the engine's snapshot is gone, as another version of Steno replaced it, or damaged."""

    def __init__(self) -> None:
        super().__init__("A part of the engine's snapshot is gone or damaged: the record is read again.")
