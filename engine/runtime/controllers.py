"""A controller wired from the settings: provider, engine world at the head of the record, lease."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from steno.engine.control.controller import Controller, TraceSink
from steno.engine.control.output_recorder import OutputPolicy
from steno.engine.control.poll_interval import Pace
from steno.engine.errors import NotConfigured
from steno.engine.live.live_world import LiveWorld, Progress
from steno.engine.notify.collector import collector_at
from steno.engine.notify.routes import Route, check_route
from steno.engine.providers.base import Provider
from steno.engine.providers.registry import READINGS
from steno.engine.settings.settings import Settings, policy_from
from steno.engine.settings.values import ROUTED, alerts
from steno.engine.state.policy import DAY
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
        notify=routes_of(app.settings),
        collector=collector_at(app.settings.value("otlp.endpoint")),
        pace=pace or (_NEARBY if provider.nearby else Pace()),
        outputs=output_policy(app.settings),
        samples_every=app.settings.parsed("samples.every"),
        **more,
    )


def output_policy(settings: Settings) -> OutputPolicy:
    """How much of the output of runs is kept."""
    head, tail, days = (settings.parsed(f"output.{name}") for name in ("head", "tail", "keep"))
    return OutputPolicy(head=head, tail=tail, keep=days * DAY)


def routes_of(settings: Settings) -> tuple[Route, ...]:
    """Where notices go: the webhook, and the routes of the settings. NotConfigured: nothing can send by a route."""
    url, named = settings.value("alerts.webhook"), dict[str, dict[str, Any]]()
    more = {"dashboard": settings.value("api.url") or None, "patience": settings.parsed("alerts.wait")}
    for entry in settings.entries:
        if entry.name.startswith("notify."):
            name, _, key = entry.name.removeprefix("notify.").rpartition(".")
            named.setdefault(name, {})[key] = entry.parsed
    routes = []
    if url:
        kinds, secret = alerts(settings.value("alerts.on") or "off"), settings.value("alerts.secret") or None
        routes.append(Route(url=url, secret=secret, kinds=kinds, **more))
    for name, given in named.items():
        if "url" not in given:
            raise NotConfigured(f"notify.{name} has no address: set notify.{name}.url")
        mine = given.get("mine", "true" if "owner" in given else "false") == "true"
        owner = given.get("owner", name) if mine else None
        kinds, more_of = given.get("on", ROUTED), {"secret": given.get("secret") or None, "quiet": given.get("quiet")}
        routes.append(Route(name=name, url=given["url"], kinds=kinds, owner=owner, **more_of, **more))
        check_route(routes[-1])
    return tuple(routes)
