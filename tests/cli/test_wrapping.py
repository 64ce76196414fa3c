"""Text that is wrapped to the terminal keeps every command on one line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cli.render import paint

COMMAND = "`steno logs two-words --tail 50`"


@given(
    before=st.lists(st.sampled_from(["it", "waits", "at", "the-provider;"]), max_size=30), columns=st.integers(20, 100)
)
def test_a_command_is_never_broken(before: list[str], columns: int) -> None:
    """However narrow the terminal is; nothing else is lost or added."""
    text = " ".join([*before, COMMAND, "shows it."])
    lines = paint.wrapped(text, columns)
    assert any(COMMAND in line for line in lines)
    assert " ".join(lines) == text
