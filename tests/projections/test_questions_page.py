"""docs/questions.md: each question is asked, and all tables are on the page."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections import frames
from steno.projections.frames.source import FrameSource, opened
from steno.projections.frames.sql import asked

PAGE = (Path(__file__).parents[2] / "docs" / "questions.md").read_text()
QUESTIONS = re.findall(r"^(\S[^\n]*\?)\n\n```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def source(
    tmp_path_factory: pytest.TempPathFactory,
    recording: Callable[[str], tuple[Poll, ...]],
    recorded: Callable[[Path, Sequence[Poll]], Record],
) -> Iterator[FrameSource]:
    path = tmp_path_factory.mktemp("record") / "record.db"
    with recorded(path, recording("dstack-0.22.5/warm_reuse")) as record, opened(record) as source:
        yield source


@pytest.mark.parametrize(("title", "statement"), QUESTIONS, ids=[title for title, _ in QUESTIONS])
def test_a_worked_question_has_an_answer(title: str, statement: str, source: FrameSource) -> None:
    """Rows, and something in each column."""
    with asked(source, statement) as answer:
        rows = list(answer.rows)
    assert rows, title
    empty = [
        name
        for name, values in zip(answer.columns, zip(*rows, strict=True), strict=True)
        if all(value is None for value in values)
    ]
    assert set(empty) <= {"reported_reason"}  # of a run that nothing happened to


def test_the_page_has_questions() -> None:
    assert len(QUESTIONS) > 8


def test_the_page_has_every_column() -> None:
    """All tables as Markdown stand between the marks."""
    drawn: list[str] = []
    for table in frames.TABLES.values():
        drawn += [f"### `{table.name}`", "", table.row, "", "| column | type | meaning |", "|---|---|---|"]
        for each in table.columns:
            unit = f", {each.unit}" if each.unit else ""
            drawn.append(f"| `{each.name}` | {each.type.value}{unit} | {each.meaning} |")
        drawn.append("")
    assert PAGE.partition("<!-- tables -->\n")[2].partition("<!-- end of tables -->")[0] == "\n".join(drawn)


def test_python_has_a_function_a_table() -> None:
    """By its name."""
    for name in frames.TABLES:
        assert getattr(frames, name)("record.db").table is frames.TABLES[name]
