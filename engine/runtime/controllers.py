"""A controller wired from the settings: provider, engine world at the head of the record, lease."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from steno.engine.control.controller import Controller, TraceSink
from steno.engine.control.poll_interval import Pace
from steno.engine.live.live_world import LiveWorld, Progress
from steno.engine.notify.collector import collector_at
from steno.engine.notify.webhook import Webhook
from steno.engine.providers.base import Provider
from steno.engine.providers.registry import READINGS
from steno.engine.settings.settings import Settings, policy_from
from steno.engine.settings.values import alerts
from steno.events.clock import SECOND, Clock, Ids
from steno.events.store.record import Record

_NEARBY = Pace(fast=SECOND // 5, slow=5 * SECOND)  # polls of this machine are cheap


class Surroundings(Protocol):
    """The program around a controller: settings, clock and ids."""

    @property
    def settings(self) -> Settings: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def ids(self) -> Ids: ...


@contextmanager
def watching(
    app: Surroundings,
    record: Record,
    provider: Provider,
    *,
    since: int | None = None,
    pace: Pace | None = None,
    trace: TraceSink | None = None,
    adopt: bool = True,
    live: LiveWorld | None = None,
    progress: Progress | None = None,
    beside: Callable[[], None] = lambda: None,
) -> Iterator[Controller]:
    """A controller of one provider; releases its lease at the end of the block. Raises `NotConfigured` if the settings
    make no policy.

    Args:
        since: how far back a first contact reads the provider's history (microseconds, UTC); None: all of it.
        pace: poll intervals; None: the provider's own.
        adopt: adopt the policy of the settings; else keep the one in force, for callers that only stop something.
        live: the world to decide from, shared in this process and not open yet; None: a new one.
        beside: called now and then while a poll is awaited; it must not wait.
    """
    live = live or LiveWorld(READINGS, keep=True)
    live.open(record)
    live.catch_up(progress)
    controller = controller_of(app, live, provider, adopt=adopt, since=since, pace=pace, trace=trace, beside=beside)
    try:
        yield controller
    finally:
        controller.release()


def controller_of(
    app: Surroundings, live: LiveWorld, provider: Provider, *, pace: Pace | None, adopt: bool = True, **more: Any
) -> Controller:
    """A controller on a world that is open; `more` is as in `Controller`, the rest as in `watching`."""
    in_force = provider.source in live.state.policies
    return Controller(
        live=live,
        provider=provider,
        clock=app.clock,
        policy=None if in_force and not adopt else policy_from(app.settings, provider.name),
        notify=webhook_of(app.settings),
        collector=collector_at(app.settings.value("otlp.endpoint")),
        pace=pace or (_NEARBY if provider.nearby else Pace()),
        **more,
    )


def webhook_of(settings: Settings) -> Webhook | None:
    """Where notices are posted, and which; None if nowhere."""
    url = settings.value("alerts.webhook")
    if not url:
        return None
    return Webhook(
        url=url,
        secret=settings.value("alerts.secret") or None,
        kinds=alerts(settings.value("alerts.on") or "off"),
        dashboard=settings.value("api.url") or None,
    )
