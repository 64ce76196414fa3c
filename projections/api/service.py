"""What the HTTP service is made of, as one value: made once, at the edge, and handed to every part."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.settings.settings import Settings
    from events.clock import Clock, Ids
    from events.store.store import Store
    from projections.api.access.tokens import Tokens
    from projections.api.feed.feed import Feed
    from projections.api.outside import Outside
    from projections.models.live_projector import Projector
    from projections.store.reader_pool import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Everything that answers to HTTP stand on."""

    clock: Clock
    ids: Ids
    settings: Settings
    store: Store
    pool: Pool
    """Read models, now or as they were."""
    projector: Projector
    """Keeps them caught up."""
    feed: Feed
    """The record as it grows, and the engine's own world at its head."""
    tokens: Tokens
    outside: Outside
    closing: ExitStack = field(default_factory=ExitStack)
    """What the parts hold open; whoever made the service closes it when nothing is served any more."""
