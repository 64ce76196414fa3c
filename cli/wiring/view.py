"""What reading commands see: the read models now or in the past, how fresh they are, and all that money comes from."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.wiring.output import hint, progress
from cli.wiring.time_arguments import at_moment
from events.errors import RecordLocked, RecordNotWritable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cli.wiring.app import App
    from engine.decide.budget import Account
    from engine.fold.world_codec import WorldState
    from engine.money.costs import Costs
    from engine.policy import Policy
    from events.store.record import Record
    from projections.models.view import SourceView, View

DAY = 86_400_000_000
"""Microseconds: lists leave out what ended longer ago."""
_NEVER = 1 << 62
"""Microseconds: later than any run was submitted."""


@contextmanager
def viewing(app: App, at: str | None = None) -> Iterator[tuple[Record, View]]:
    """The record and its read models, caught up, or as they were `--at` a time or position.

    Open runs of this machine are polled first if no process records them: that needs no network, and the list would
    show ended runs as running.

    Raises:
        RecordNotFound, NotARecord, RecordDamaged, RecordTooNew: as they say.
    """
    from projections.models.past_worlds import opened
    from projections.models.projector import caught_up
    from projections.models.view import View

    with app.reading() as record, progress("reading the record") as advance:
        if at is None:
            _look_here(app, record)
            store = caught_up(record, progress=advance)
        else:
            store = opened(record, *at_moment(app, record, at), progress=advance)
        with store:
            yield record, View(store)


@contextmanager
def caught_up_view(record: Record) -> Iterator[View]:
    """The read models of a record that is open already, caught up."""
    from projections.models.projector import caught_up
    from projections.models.view import View

    with caught_up(record) as store:
        yield View(store)


def seen_from(app: App, view: View, at: str | None) -> int:
    """The moment a view is looked at: now, or with `--at` the last moment it knows."""
    return app.clock.now() if at is None else view.last_at or app.clock.now()


def _look_here(app: App, record: Record) -> None:
    """Poll each provider of this machine once, if something of it may go on, no other process polls it, and the record
    is writable.

    Acts on nothing: queued requests are left to `record` and `submit`.
    """
    from engine.providers import registry

    for kind in registry.built_in():
        kept = kind.kept_here(record.store)
        if kept is None or not _goes_on(record, kind.name, kept):
            continue
        from cli.wiring.recorder import watching

        provider = app.provider(kind.name, record.store)
        try:
            lease = record.store.lease(provider.source)
            if lease is None:
                continue
            with lease, app.writing(create=False) as ours, watching(app, ours, provider) as recorder:
                recorder.round(act=False)
        except (OSError, RecordNotWritable, RecordLocked):
            continue


def _goes_on(record: Record, provider: str, kept: Callable[[str], bool]) -> bool:
    with caught_up_view(record) as view:
        if any(row.provider == provider for row in view.store.runs.all(since=_NEVER)):
            return True
        # a machine that outlived its run goes by itself, and nobody may have seen that
        return any(kept(row.provider_id) for row in view.store.vms.all(since=_NEVER))


def say_unseen(sources: Iterable[SourceView], now: int) -> None:
    """Warn on stderr about sources that do not answer."""
    from cli.render.words import ago

    for source in sources:
        if source.observability != "fresh":
            last = "never" if source.last_answered is None else ago(source.last_answered, now)
            said = f"{source.name} is {source.observability.value}: last answer {last}, so this data may be old"
            hint(f"{said}; `steno up` or `steno record` polls it")


def source_objects(sources: Iterable[SourceView]) -> list[dict[str, object]]:
    """Sources and whether they answer, as JSON values."""
    from events.clock import format_time

    return [
        {
            "source": one.name,
            "observability": one.observability.value,
            "last_answered_at": None if one.last_answered is None else format_time(one.last_answered),
        }
        for one in sources
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """Everything that money is reckoned from, at one moment."""

    state: WorldState
    costs: Costs
    policy: Policy
    now: int
    position: int

    @property
    def account(self) -> Account:
        """Where the budget stands."""
        from engine.decide.budget import account

        return account(self.state, self.policy, self.now)


@contextmanager
def books(app: App, at: str | None, *, every_run: bool = True) -> Iterator[Books]:
    """The books now, or as they were `--at` a time or position; of the past, by the policy adopted last by then.

    Args:
        every_run: also load the runs that are over and on no live machine; the budget is reckoned without them.

    Raises:
        RecordNotFound, NotARecord, RecordDamaged, RecordTooNew: as they say.
        NotConfigured: the settings describe no policy.
    """
    import msgspec

    from engine.fold.archives import shown_part
    from engine.money.costs import Costs
    from engine.settings.policy import policy_from

    with viewing(app, at) as (_, view):
        state = shown_part(view.whole()) if every_run else view.state
        policy = msgspec.structs.replace(policy_from(app.settings), free=False)
        if at is not None:
            from projections.models.overview import policy_then

            policy = policy_then(state, policy)
        now = seen_from(app, view, at)
        yield Books(state=state, costs=Costs(state), policy=policy, now=now, position=view.position)
