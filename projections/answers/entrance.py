"""The way to a port of a run, or into it, as its provider opens it to a person."""

from collections.abc import Callable
from contextlib import closing
from typing import Annotated

from msgspec import Meta, structs

from steno.engine.errors import Conflict
from steno.engine.providers.base import Provider
from steno.engine.state.archives import refuse_archive
from steno.engine.state.run import Run
from steno.engine.wire import Shape


class EntranceObject(Shape, frozen=True, kw_only=True):
    """The commands that a person types; null and empty where there is none."""

    run_id: str
    name: str
    port: int | None
    address: Annotated[str | None, Meta(description="Of the port, once the commands run.")]
    commands: Annotated[tuple[str, ...], Meta(description="Each opens a part of the way, and is left running.")]
    inside: Annotated[str | None, Meta(description="The command for a shell in the run.")]


def entrance(run: Run, port: int | None, opened: Callable[[Run], Provider]) -> EntranceObject:
    """Asks the provider. Raises `Conflict` (it has ended, or does not run yet) or as the provider does."""
    name = run.name or run.run_id
    refuse_archive(run, name)
    if run.terminal:
        raise Conflict(f"{name} has ended ({run.state}): nothing listens there any more; `steno logs {name}`")
    if run.provider_id is None or run.started_at is None:
        raise Conflict(f"{name} is {run.state} and does not run yet; `steno explain {name}` says why")
    with closing(opened(run)) as provider:
        way = provider.entrance(run.provider_id, name, port)
    return EntranceObject(run_id=run.run_id, name=name, port=port, **structs.asdict(way))
