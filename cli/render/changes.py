"""The page of `steno changes`: one line that sums it up, then a table for each kind of change."""

from itertools import groupby

from steno.cli.render import paint, words
from steno.projections.answers.changes import ChangeRow, Changes

_HEADS = {"run": "RUNS", "machine": "MACHINES", "anomaly": "ANOMALIES", "gap": "NOT SEEN", "money": "SPENT BY"}

_WHAT = 180  # characters of a text
_ENOUGH, _LEAST = 70, 50  # of a setting, beside its time, and without it in a narrow terminal
_TIME, _GAPS = 22, 4  # of a time with its gap, and between the other columns


def page(answer: Changes, columns: int) -> str:
    runs = [row for row in answer.changes if row.kind == "run"]
    bad = sum(len(row.subjects) for row in runs if row.state != "succeeded")
    ended = sum(len(row.subjects) for row in runs)
    without = f" ({bad:,} without success)" if bad else ""
    parts = [f"{words.count(answer.runs_submitted, 'run')} submitted", f"{ended:,} ended{without}"]
    for state in ("came", "ended", "vanished"):
        number = sum(row.kind == "machine" and f"{state} at" in row.what for row in answer.changes)
        parts += [f"{words.count(number, 'machine')} {state}"] if number else []
    whose = "" if answer.user is None else f", of {answer.user} only"
    head = paint.bold(f"Since {words.moment(answer.start)}{whose}")
    tables = [_table(kind, list(rows), columns) for kind, rows in groupby(answer.changes, lambda row: row.kind)]
    return "\n\n".join((f"{head}: {', '.join((*parts, f'{words.short(answer.total_usd)} spent'))}.", *tables))


def _table(kind: str, rows: list[ChangeRow], columns: int) -> str:
    """Without the columns that say nothing; a long reason of a lever leaves room for who and when."""
    head = (_HEADS.get(kind, "SETTINGS OF"), "", "WHAT", "USER", "COST", "AT")
    names, users = (head[0], *(row.name for row in rows)), (head[3], *(row.user or "" for row in rows))
    beside = max(map(paint.width, names)) + max(map(paint.width, users))
    room = columns - beside - _GAPS
    room = room - _TIME if room - _TIME >= _ENOUGH else max(_LEAST, room)
    most = min(_WHAT, room) if kind == "setting" else _WHAT
    cells = [
        (
            paint.cut(paint.plain(row.name), 50),
            _state(row),
            paint.cut(paint.plain(row.what), most),
            paint.plain(row.user or ""),
            words.short(row.cost_usd) if row.cost_usd else "",
            words.moment(row.at) if row.at and kind != "machine" else "",
        )
        for row in rows
    ]
    kept = [place for place in range(len(head)) if any(row[place] for row in cells)]
    spare = [kept.index(place) for place in (5, 3) if place in kept]
    drawn = [[row[place] for place in kept] for row in cells]
    return paint.fitted([head[place] for place in kept], drawn, columns, spare=spare)


def _state(row: ChangeRow) -> str:
    if row.kind == "machine":
        return ""  # its words begin with it
    return paint.verdict(row.state) if row.kind == "run" else row.state
