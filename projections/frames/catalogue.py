"""Every table by its name."""

from typing import Final

from projections.frames.column import AnyTable
from projections.frames.machine_tables import COSTS, INTERVALS, MACHINES
from projections.frames.record_tables import EVENTS, POLLS
from projections.frames.run_tables import RUNS, TRANSITIONS

_TABLES: Final[tuple[AnyTable, ...]] = (RUNS, TRANSITIONS, MACHINES, INTERVALS, COSTS, POLLS, EVENTS)
TABLES: Final = {table.name: table for table in _TABLES}


def reference() -> str:
    """All tables and their columns as Markdown, for the documents."""
    pages = []
    for table in _TABLES:
        rows = [
            f"| `{one.name}` | {one.type.value}{f', {one.unit}' if one.unit else ''} | {one.meaning} |"
            for one in table.columns
        ]
        pages.append(
            "\n".join((f"### `{table.name}`", "", table.row, "", "| column | type | meaning |", "|---|---|---|", *rows))
        )
    return "\n\n".join(pages) + "\n"
