"""What reading commands see: the read models now or in the past, their freshness, and the books."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cli.render.words import ago
from cli.wiring.app import App
from cli.wiring.output import hint, progress
from cli.wiring.time_arguments import at_moment
from engine.fold.change import GapKind
from engine.policy import Policy
from engine.providers import registry
from events.clock import format_time
from events.errors import RecordLocked, RecordNotWritable
from events.store.record import Record
from projections.models.projector import caught_up
from projections.models.view import SourceView, View

if TYPE_CHECKING:
    from engine.money.costs import Costs

DAY = 86_400_000_000  # microseconds: lists leave out what ended longer ago
_NEVER = 1 << 62  # microseconds: later than any run was submitted
_OF_THE_BUDGET = {  # setting → the field of a policy
    "budget.total": "budget_total",
    "budget.alerts": "thresholds",
    "budget.assumed_duration": "assumed_duration",
}


@contextmanager
def viewing(app: App, at: str | None = None) -> Iterator[tuple[Record, View, int]]:
    """The record, its read models (caught up, or as they were `--at`), and the moment: now, or the last one they know.
    Polls open local runs first if no process records them, or the list would show ended runs as running.
    """
    with app.reading() as record, progress("reading the record") as advance:
        if at is None:
            _look_here(app, record)
            store = caught_up(record, progress=advance)
        else:
            from projections.models.past_worlds import opened

            store = opened(record, *at_moment(app, record, at), progress=advance)
        with store:
            view = View(store)
            yield record, view, (None if at is None else view.last_at) or app.clock.now()


@contextmanager
def caught_up_view(record: Record) -> Iterator[View]:
    """The read models of an open record, caught up."""
    with caught_up(record) as store:
        yield View(store)


def _look_here(app: App, record: Record) -> None:
    """Poll each local provider once if it has open work, no other process polls it, and the record is writable. Acts on
    nothing: `record` and `submit` handle queued requests.
    """
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
    with caught_up(record) as store:
        if any(row.provider == provider for row in store.runs.all(since=_NEVER)):
            return True
        # a machine without a run ends by itself, possibly unseen
        return any(kept(row.provider_id) for row in store.vms.all(since=_NEVER))


def say_unseen(sources: Iterable[SourceView], now: int) -> None:
    """Warn on stderr about sources that do not answer."""
    for source in sources:
        if source.observability != "fresh":
            last = "never" if source.last_answered is None else ago(source.last_answered, now)
            since = "" if source.blind is None else f", {source.blind.words} since"
            said = f"{source.name} is {source.observability.value}: last answer {last}{since}, so this data may be old"
            polled = source.blind is GapKind.NO_ANSWER
            hint(f"{said}; {'`steno doctor` says why' if polled else '`steno up` or `steno record` polls it'}")


def source_objects(sources: Iterable[SourceView]) -> list[dict[str, object]]:
    return [
        {
            "source": one.name,
            "observability": one.observability,
            "last_answered_at": None if one.last_answered is None else format_time(one.last_answered),
            "blind": one.blind,
        }
        for one in sources
    ]


@contextmanager
def every_cost(app: App, at: str | None) -> Iterator[tuple["Costs", int]]:
    """(the costs of everything, the position) now or `--at` a moment. Decodes all runs and machines."""
    from engine.fold.archives import shown_part
    from engine.money.costs import Costs

    with viewing(app, at) as (_, view, _):
        yield Costs(shown_part(view.whole())), view.position


def policy_for(app: App, view: View, at: str | None) -> Policy:
    """The policy in force, now or `--at` a moment; that of the settings if no process adopted one. Names on stderr
    what this shell sets otherwise. Raises `NotConfigured`: the settings make no policy.
    """
    from engine.settings.policy import policy_from
    from projections.models.overview import policy_then

    here = policy_from(app.settings)
    found = policy_then(view.state, here)
    for name, field in _OF_THE_BUDGET.items() if at is None else ():
        if getattr(here, field) != getattr(found, field):
            setting = app.settings.find(name)
            hint(f"{name} is {setting.value or 'off'} in this shell ({setting.source}), and not in force in the record")
    return found
