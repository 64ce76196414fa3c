"""dstack, as the registry knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.providers.dstack.settings import BLOCK, address_of, fleet_nodes
from engine.providers.kind import ProviderKind

if TYPE_CHECKING:
    from pathlib import Path

    from engine.providers.dstack.provider import DstackProvider
    from engine.settings.settings import Settings
    from events.clock import Clock, Ids


class DstackKind(ProviderKind):
    """Machines that a dstack server rents."""

    name = "dstack"
    summary = "machines that your dstack server rents"
    settings = BLOCK

    def open(self, settings: Settings, *, clock: Clock, ids: Ids, record: Path | None) -> DstackProvider:  # noqa: ARG002
        """See `ProviderKind.open`; nothing is kept beside the record."""
        from engine.providers.dstack.provider import DstackProvider

        return DstackProvider(address_of(settings), clock=clock, ids=ids, fleet_nodes=fleet_nodes(settings))

    def project(self, settings: Settings) -> str:
        """dstack's project.

        Raises:
            NotConfigured, ProjectNotFound: the settings name none.
        """
        return address_of(settings).project


KIND = DstackKind()
