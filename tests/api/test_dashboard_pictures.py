"""The pictures of the documentation, taken again; STENO_PICTURES=docs/pictures keeps them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Serve
    from stenolab.browser import See

    from steno.events.poll import Poll

pytestmark = pytest.mark.slow

Polls = Callable[[str], "tuple[Poll, ...]"]
Record = Callable[[Path, "Sequence[Poll]"], None]


def test_no_committed_picture_is_large() -> None:
    """A page of the documentation opens at once."""
    pictures = list((Path(__file__).parents[2] / "docs" / "pictures").glob("dashboard-*.png"))
    assert len(pictures) >= 2
    assert [picture.name for picture in pictures if picture.stat().st_size > 200_000] == []


@pytest.mark.long
def test_the_pictures_of_the_documentation(
    served: Serve, empty_record: Path, recorded_again: Record, polls: Polls, tmp_path: Path, see: See
) -> None:
    """The overview of a busy project, dark, and a run that nobody saw for a while: what `docs/dashboard.md` shows."""
    from stenotest.big import big_record

    from steno.events.clock import SystemClock

    folder = Path(os.environ.get("STENO_PICTURES") or tmp_path).resolve()
    busy = tmp_path / "busy.db"
    big_record(busy, events=6000, until=SystemClock().now())
    recorded_again(empty_record, polls("server_restart"))
    for record, scheme, path, name in (
        (busy, "dark", "/?at=5000", "dashboard-overview"),
        (empty_record, "light", "/runs/surv-run?at=700", "dashboard-run"),
    ):
        seen = see(served(record, budget__total="12").url, color_scheme=scheme)
        seen.go(path)
        seen.page.wait_for_timeout(800)
        seen.page.screenshot(path=folder / f"{name}.png")
        assert (folder / f"{name}.png").stat().st_size <= 200_000
