"""What one poll showed: its runs and machines, and what changed with it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta

from engine.providers.reading import Listing
from engine.providers.readings import READINGS
from engine.wire import Shape
from events.errors import StenoError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from engine.facts import RunFacts, VmFacts
    from projections.models.reader_pool import Look

MOST: Final = 500  # runs and machines of one answer


class ShownItem(Shape, frozen=True, kw_only=True):
    """A run or a machine that an answer shows."""

    kind: Literal["run", "machine"]
    id: Annotated[str | None, Meta(description="Steno's id; null: not known at this moment.")]
    name: str
    status: Annotated[str | None, Meta(description="The provider's word.")]
    changed: Annotated[bool, Meta(description="The answer said something new about it.")]
    moved: Annotated[str | None, Meta(description="The run's states before and after, if this poll changed its state.")]


def content_of(look: Look, position: int, changed: Collection[str]) -> list[ShownItem]:
    """The runs and machines of the answer at `position`, at most `MOST`; `changed`: the streams with something new."""
    shown = {facts.provider_id: facts for facts in islice(_facts(look, position), MOST)}
    return [_item(look, facts, position, changed) for facts in shown.values()]


def _facts(look: Look, position: int) -> Iterator[RunFacts | VmFacts]:
    poll = look.record.poll(position)
    scope, reading = READINGS.asked(poll.path, poll.req)
    listed = reading is not None and scope.listing in (Listing.RUNS, Listing.RUN, Listing.VMS)
    for item in look.record.items(position) if listed else ():
        try:
            if scope.listing is Listing.VMS:
                yield reading.vm(item, scope)  # type: ignore[union-attr]
            else:
                yield from reading.runs(item, scope)  # type: ignore[union-attr]
        except ValueError:  # it is not an item as we know it
            continue


def _item(look: Look, facts: RunFacts | VmFacts, position: int, changed: Collection[str]) -> ShownItem:
    from engine.facts import RunFacts

    known: str | None = None
    moved: str | None = None
    is_run = isinstance(facts, RunFacts)
    try:
        if is_run:
            run = look.view.run(facts.provider_id)
            known = run.run_id
            moves = (one for one in run.transitions if one.position == position)
            moved = next((f"{one.origin or 'unknown'} → {one.target}" for one in moves), None)
        else:
            known = look.view.vm_row(facts.provider_id).vm_id
    except StenoError:  # none, or several archives have it
        pass
    return ShownItem(
        kind="run" if is_run else "machine",
        id=known,
        name=facts.name or facts.provider_id,
        status=facts.status,
        changed=known is not None and f"{'run' if is_run else 'vm'}/{known}" in changed,
        moved=moved,
    )
