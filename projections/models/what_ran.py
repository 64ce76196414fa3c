"""What runs execute: their configurations, read once from the record, and what they got."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.fold.world_codec import source_of
from engine.money.report import gpu_of
from engine.objects import COMMAND_SHOWN, RanObject
from engine.providers.readings import READINGS
from engine.requirements import Requirements
from events.types import RunRequested
from projections.store.run_query import NO_GPU

if TYPE_CHECKING:
    from events.store.record import Record

decode_ran = msgspec.json.Decoder(RanObject).decode


def configurations(
    record: "Record", runs: Iterable[Run], stored: Callable[[str], bytes | None]
) -> dict[str, RanObject]:
    """Run id → what its configuration says: that of its request, else that of the first poll that showed it. `stored`
    gives `RunRow.ran`, which is not read again.
    """
    found: dict[str, RanObject] = {}
    shown: dict[int, list[Run]] = {}
    for run in runs:
        known = stored(run.run_id)
        if known is not None:
            found[run.run_id] = decode_ran(known)
        elif run.requested_at is None:
            shown.setdefault(run.first_position, []).append(run)
        else:
            event = record.event(run.first_position)
            found[run.run_id] = _read(event.configuration if isinstance(event, RunRequested) else b"", run.terms)
    for position, there in shown.items():
        given = _shown_at(record, position)
        for run in there:
            text = given.get(run.listed_as or "")
            terms = None if text is None else READINGS.terms(run.provider, text, "")
            found[run.run_id] = _read(text or b"", terms)
    return found


def what_ran(run: Run, vm: Vm | None, configuration: RanObject) -> RanObject:
    """What a run executes by now; `vm` is its machine."""
    facts = run.facts
    return msgspec.structs.replace(
        configuration,
        gpu_got=None if vm is None else gpu_of(vm),
        project=run.project or (None if facts is None else facts.project),
        source=run.archive or source_of(run),
        user=None if facts is None else facts.user,
        submitter=None if run.terms is None else run.terms.submitter,
    )


def gpu_words(ran: RanObject) -> str:
    """`RunRow.gpu`: what a filter by GPU compares."""
    models, colon, number = (ran.gpu_got or ran.gpu_asked or "").lower().partition(":")
    words = [word for one in models.split(", ") if one for word in (one, f"{one}{colon}{number}")]
    return "".join(f"\n{word}" for word in dict.fromkeys(words)) + "\n"


def search_words(run: Run, ran: RanObject) -> str:
    """`RunRow.words`: what a search looks through, without NUL."""
    parts = (run.name, ran.command, run.run_id, run.provider_id)
    return "\n".join(dict.fromkeys(part for part in parts if part)).lower().replace("\0", "\ufffd")


def _shown_at(record: "Record", position: int) -> dict[str, bytes]:
    """Provider id → configuration, of the runs that a poll shows."""
    (stored,) = record.read(after=position - 1, limit=1)
    asked = None if stored.scope is None else record.scope(stored.scope)
    reading = None if asked is None else READINGS.asked(asked.path, bytes(asked.req))[1]
    found: dict[str, bytes] = {}
    for item in () if reading is None else record.items(position):
        try:
            found.update(reading.configurations(item))  # type: ignore[union-attr]
        except ValueError:  # it is not an item as we know it
            continue
    return found


def _read(configuration: bytes, terms: Requirements | None) -> RanObject:
    """What a configuration says; unreadable parts count as absent."""
    try:
        task: Any = msgspec.json.decode(configuration)
    except (msgspec.DecodeError, RecursionError):
        task = None
    task = task if isinstance(task, dict) else {}
    lines = task.get("commands")
    command = "\n".join(line for line in lines if isinstance(line, str)) if isinstance(lines, list) else ""
    if len(command) > COMMAND_SHOWN:
        command = command[: COMMAND_SHOWN - 1] + "…"
    kind, image = (
        value[:COMMAND_SHOWN] if isinstance(value := task.get(key), str) else None for key in ("type", "image")
    )
    return RanObject(
        type=kind, command=command or None, image=image, gpu_asked=None if terms is None else _asked(terms)
    )


def _asked(terms: Requirements) -> str:
    models = ", ".join((*terms.gpu, *terms.fallback)) or terms.gpu_vendor or ("any" if terms.gpu_count else "")
    return f"{models}:{max(1, terms.gpu_count)}" if models else NO_GPU
