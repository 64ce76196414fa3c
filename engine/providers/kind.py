"""What a provider package offers. Its entry point in the group `steno.providers` names one `ProviderKind`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from pathlib import Path

    from engine.providers.base import Provider
    from engine.rules.sets import RuleSet
    from engine.settings.known import Block
    from engine.settings.settings import Settings
    from events.clock import Clock, Ids


class ProviderKind(ABC):
    """One kind of provider. The command line imports it at its start, so heavy imports belong inside its methods."""

    name: ClassVar[str]
    """As in `--provider NAME`, in `RunRequested.provider` and at the start of its sources' names."""
    summary: ClassVar[str]
    """Where its tasks run, in a few words."""
    settings: ClassVar[Block]
    """Its settings; `Block(provider=name)` where it has none."""

    def rule_sets(self) -> tuple[RuleSet, ...]:
        """Rule sets that judge this provider's own words, beside `current`."""
        return ()

    @abstractmethod
    def open(self, settings: Settings, *, clock: Clock, ids: Ids, record: Path | None) -> Provider:
        """The provider, as the settings have it.

        Args:
            record: the file of the record, for state that is kept beside it; None: the record is not a file.

        Raises:
            NotConfigured, ProjectNotFound: a setting it needs is missing or wrong.
        """

    @abstractmethod
    def project(self, settings: Settings) -> str:
        """Whose runs these are at the provider, without a question to it.

        Raises:
            NotConfigured, ProjectNotFound: the settings name none.
        """
