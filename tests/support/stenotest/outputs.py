"""Output of runs as a recorder writes it."""

from collections.abc import Sequence
from hashlib import sha256

from steno.events.store.output_rows import pack
from steno.events.store.record import Record
from steno.events.types import OutputRecorded


def keep_output(
    record: Record, run_id: str, provider_id: str, *pieces: bytes, provider: str = "local", drop: Sequence[int] = ()
) -> tuple[int, ...]:
    """Append an output in these chunks, drop those with these numbers; the positions of all."""
    chunks, offset = [], 0
    for piece in pieces:
        event = OutputRecorded(
            run_id=run_id, provider=provider, provider_id=provider_id, offset=offset, size=len(piece),
            sha256=sha256(piece).hexdigest(), last=len(chunks) == len(pieces) - 1,
        )  # fmt: skip
        chunks.append((event, pack(piece)))
        offset += len(piece)
    positions = record.append_output(f"run/{run_id}", chunks)
    record.append_output("", (), [positions[number] for number in drop])
    return positions
