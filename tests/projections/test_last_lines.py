"""The last line of an output, as a terminal shows it."""

from hypothesis import given
from hypothesis import strategies as st

from steno.projections.answers.overview import text_of


def test_a_bar_of_progress_is_its_newest_state_and_colours_are_left_out() -> None:
    """Text that a carriage return overwrites, blank lines and escapes are not shown."""
    assert text_of(b"a\n\x1b[31mepoch 3\x1b[0m\r\n\n") == "epoch 3"
    assert text_of(b"x\n10 %\r20 %\r\x1b[2K") == "20 %"
    assert text_of(b" \n\x1b]0;title\x07\n") is None
    assert text_of(b"caf\xc3") == "caf\N{REPLACEMENT CHARACTER}"


@given(st.binary(max_size=400), st.text("abc 123", min_size=1, max_size=50).filter(str.strip))
def test_the_last_line_is_what_was_printed_last(before: bytes, line: str) -> None:
    """Whatever came before it, in short, printable text."""
    assert text_of(before + b"\x07\n" + line.encode() + b"\n") == line.strip()
