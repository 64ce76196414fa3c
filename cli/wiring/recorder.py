"""A recorder wired from the settings: provider, engine world at the head of the record, lease."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cli.wiring.app import App
from engine.live.live_world import LiveWorld, Progress
from engine.notify.collector import collector_at
from engine.notify.webhook import Webhook
from engine.providers.base import Provider
from engine.providers.readings import READINGS
from engine.recorder.interval import Pace
from engine.recorder.recorder import Recorder, TraceSink
from engine.settings.policy import policy_from
from engine.settings.settings import Settings
from engine.settings.values import alerts
from events.clock import SECOND
from events.store.record import Record

_NEARBY = Pace(fast=SECOND // 5, slow=5 * SECOND)  # polls of this machine are cheap


@contextmanager
def watching(
    app: App,
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
) -> Iterator[Recorder]:
    """A recorder of one provider; releases its lease at the end of the block. Raises `NotConfigured` if the settings
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
    recorder = recorder_of(app, live, provider, adopt=adopt, since=since, pace=pace, trace=trace, beside=beside)
    try:
        yield recorder
    finally:
        recorder.release()


def recorder_of(
    app: App, live: LiveWorld, provider: Provider, *, pace: Pace | None, adopt: bool = True, **more: Any
) -> Recorder:
    """A recorder on a world that is open; `more` is as in `Recorder`, the rest as in `watching`."""
    in_force = provider.source in live.state.policies
    return Recorder(
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
