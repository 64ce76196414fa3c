"""What went wrong around the runs: the provider's contradictions, and the stretches without an answer."""

from collections.abc import Sequence

from cli.render import paint, words
from engine.objects import AnomalyObject, BlindObject
from events.clock import parse_time


def anomalies(found: Sequence[AnomalyObject]) -> str:
    """One line an anomaly, in order of position."""
    rows = [(f"#{one.position}", one.kind, f"{one.detail} {paint.dim(f'({one.subject})')}") for one in found]
    return paint.table(("POLL", "ANOMALY", "WHAT"), rows, right=(0,))


def blind(gaps: Sequence[BlindObject]) -> str:
    """One line a gap: which source was silent, from when to when, for how long."""
    rows = []
    for gap in gaps:
        start = parse_time(gap.start)
        end = parse_time(gap.end) if gap.end is not None else None
        length = words.duration(end - start) if end is not None else "still"
        rows.append((gap.source, words.moment(start), words.moment(end) if end is not None else "–", length))
    return paint.table(("NO ANSWER FROM", "SINCE", "UNTIL", "FOR"), rows, right=(3,))
