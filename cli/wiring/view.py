"""The view of reading commands: the read models now or in the past, their freshness, costs and policy."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from steno.cli.render.words import ago
from steno.cli.wiring.output import hint, progress
from steno.cli.wiring.time_arguments import both_times
from steno.events.clock import format_time
from steno.events.errors import RecordLocked, RecordNotWritable
from steno.events.store.store import is_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from steno.cli.wiring.app import App
    from steno.engine.money.costs import Costs
    from steno.engine.objects import RunObject
    from steno.engine.state.policy import Policy
    from steno.engine.state.world import World
    from steno.events.store.record import Record
    from steno.projections.read_models.known_worlds import Knowledge
    from steno.projections.read_models.past_worlds import Beyond
    from steno.projections.read_models.reader_pool import Look
    from steno.projections.read_models.store import ProjectionStore
    from steno.projections.read_models.view import SourceView, View

T = TypeVar("T")
DAY = 86_400_000_000  # microseconds: lists leave out what ended longer ago
_SAID = 5  # runs named that were known otherwise
_PAUSE = 0.5  # seconds between looks at the read models
_NEVER = 1 << 62  # microseconds: later than any run was submitted
_OF_THE_BUDGET = {  # setting → the field of a policy
    "budget.total": "budget_total",
    "budget.alerts": "thresholds",
    "budget.assumed_duration": "assumed_duration",
}


@contextmanager
def viewing(app: App, at: str | None = None) -> Iterator[tuple[Record, View, int]]:
    """The record, its read models (caught up, or as they were `--at`) at one position, whoever writes on meanwhile, and
    the moment: now, or the last one they know. Polls open local runs first if no process records them, or the
    list would show ended runs as running.
    """
    from steno.projections.read_models.projector import caught_up
    from steno.projections.read_models.view import View

    with app.reading() as record, progress("reading the record") as advance:
        known: Knowledge | None = None
        if at is None and is_bundle(record.store):
            at = str(record.head().position)  # nothing has happened since
        if at is None:
            if app.known is not None:
                raise click.UsageError("--known says how much is known of the moment of --at: give --at as well")
            _look_here(app, record)
            store = caught_up(record, progress=advance)
        else:
            store, _, _, known = opened_at(app, record, at, advance)
        with store, store.reading():
            view = View(store, known)
            yield record, view, (None if at is None else view.last_at) or app.clock.now()


def opened_at(
    app: App, record: Record, at: str, advance: Callable[[int, int], None]
) -> tuple[ProjectionStore, int, Beyond, Knowledge | None]:
    """The read models `--at` a moment, by what `--known` says; the moment, and what is known of it by now."""
    from steno.projections.read_models.past_worlds import opened

    position, beyond, known = both_times(app, record, at)
    store = opened(record, position, beyond, None if app.known is None else known, progress=advance)
    return store, position, beyond, known


@contextmanager
def caught_up_view(record: Record) -> Iterator[View]:
    """The read models of an open record, caught up; they stay as they are while others write on."""
    from steno.projections.read_models.projector import caught_up
    from steno.projections.read_models.view import View

    with caught_up(record) as store, store.reading():
        yield View(store)


def newest(record: Record, also: Callable[[View], T]) -> Callable[[], AbstractContextManager[tuple[World, T]]]:
    """Enters the world at the head of the record, as requests are checked with, and what else they need there."""

    @contextmanager
    def look() -> Iterator[tuple[World, T]]:
        with caught_up_view(record) as view:
            yield view.state, also(view)

    return look


def _look_here(app: App, record: Record) -> None:
    """Poll each local provider once if it has open work, no other process polls it, and the record is writable. Acts on
    nothing: `record` and `submit` handle queued requests.
    """
    from steno.engine.providers import registry

    for kind in registry.built_in():
        kept = kind.kept_here(record.store)
        if kept is None or not _goes_on(record, kind.name, kept):
            continue
        from steno.engine.runtime.controllers import watching

        provider = app.provider(kind.name, record.store)
        try:
            lease = record.store.lease(provider.source)
            if lease is None:
                continue
            with lease, app.writing(create=False) as ours, watching(app, ours, provider) as controller:
                controller.round(act=False)
        except (OSError, RecordNotWritable, RecordLocked):
            continue


def _goes_on(record: Record, provider: str, kept: Callable[[str], bool]) -> bool:
    from steno.projections.read_models.projector import caught_up

    with caught_up(record) as store:
        if any(row.provider == provider for row in store.runs.all(since=_NEVER)):
            return True
        # a machine without a run ends by itself, possibly unseen
        return any(kept(row.provider_id) for row in store.vms.all(since=_NEVER))


def moves_of(app: App, runs: Sequence[str]) -> Iterator[tuple[int, RunObject]]:
    """(when it was seen, the run) at each change of these runs until all have ended; of none: of every run, for ever.
    The runs that are open come first.
    """
    printed: dict[str, tuple[object, ...]] = {}
    named: list[str] = []
    while True:
        with viewing(app) as (_, view, now):
            named = named or [view.row(word).run_id for word in runs]
            current = [view.run(run_id) for run_id in named] if named else list(view.runs(open_or_since=now))
            there = {run.run_id for run in current}
            for run in (*current, *(view.run(run_id) for run_id in list(printed) if run_id not in there)):
                state = (run.state, run.reason, run.attempts)
                if printed.get(run.run_id) != state:
                    printed[run.run_id] = state
                    yield now, run
                if run.ended and not named:
                    del printed[run.run_id]
        if named and all(run.ended for run in current):
            return
        time.sleep(_PAUSE)


def look_of(record: Record, view: View, now: int, at: str | None) -> Look:
    """The look at the record of answers about a range of time."""
    from steno.projections.read_models.reader_pool import Look

    return Look(record=record, view=view, position=view.position, now=now, past=at is not None)


def say_unseen(sources: Iterable[SourceView], now: int) -> None:
    """Warn on stderr about sources that do not answer."""
    from steno.engine.state.changes import GapKind

    for source in sources:
        if source.observability != "fresh":
            last = "never" if source.last_answered is None else ago(source.last_answered, now)
            since = "" if source.blind is None else f", {source.blind.words} since"
            warning = (
                f"{source.name} is {source.observability.value}: last answer {last}{since}, so this data may be old"
            )
            polled = source.blind is GapKind.NO_ANSWER
            hint(f"{warning}; {'`steno doctor` says why' if polled else '`steno up` or `steno record` polls it'}")


def learnt_of(app: App, record: Record, view: View, runs: Iterable[RunObject]) -> list[dict[str, str | None]]:
    """The runs whose state at the moment of `--at` was known otherwise then than it was later; names them on stderr."""
    from steno.projections.read_models.known_worlds import learnt

    names = {run.run_id: run.name or run.run_id[:13] for run in runs}
    states = view.store.learnt
    if view.moment is not None and app.known is None:
        states = learnt(record, view.store, view.moment, names)
    differ = [
        {"run_id": run_id, "name": names[run_id], "then": then, "known": known}
        for run_id, (then, known) in states.items()
        if run_id in names
    ]
    for run in differ[:_SAID]:
        word = f"{run['name']} ({str(run['run_id'])[:8]})"
        if app.known is None:
            hint(f"{word} was {run['known']} at that moment, as is known now; `--known now` shows it so")
        else:
            hint(f"{word} was known as {run['then'] or 'nothing'} at that moment; without --known it is shown so")
    if len(differ) > _SAID:
        hint(f"so it is with {len(differ) - _SAID} more runs; --json lists them")
    return differ


def source_objects(sources: Iterable[SourceView]) -> list[dict[str, object]]:
    return [
        {
            "source": source.name,
            "observability": source.observability,
            "last_answered_at": None if source.last_answered is None else format_time(source.last_answered),
            "blind": source.blind,
        }
        for source in sources
    ]


@contextmanager
def every_cost(app: App, at: str | None) -> Iterator[tuple[Costs, int]]:
    """(the costs of everything, the position) now or `--at` a moment. Decodes all runs and machines."""
    from steno.engine.money.costs import Costs
    from steno.engine.state.archives import shown_part

    with viewing(app, at) as (_, view, _):
        yield Costs(shown_part(view.whole())), view.position


def policy_for(app: App, view: View, at: str | None) -> Policy:
    """The policy in force, now or `--at` a moment; that of the settings if no process adopted one. Names on stderr
    what this shell sets otherwise. Raises `NotConfigured`: the settings make no policy.
    """
    from steno.engine.settings.settings import policy_from
    from steno.projections.answers.overview import policy_then

    here = policy_from(app.settings)
    policy = policy_then(view.state, here)
    for name, field in _OF_THE_BUDGET.items() if at is None else ():
        if getattr(here, field) != getattr(policy, field):
            setting = app.settings.find(name)
            hint(f"{name} is {setting.value or 'off'} in this shell ({setting.source}), and not in force in the record")
    if at is None and here.limits != policy.limits:
        hint("the limits by owner of this shell differ from those in force in the record")
    return policy
