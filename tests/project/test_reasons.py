"""docs/reasons.md shows the present tables."""

from stenotest.reasons_page import PAGE, page


def test_the_page_of_reasons_is_up_to_date() -> None:
    """`make reasons-docs` rewrites it."""
    assert PAGE.read_text(encoding="utf-8") == page()
