"""`see` for folders of many tests in the browser: a page that one test leaves is the page of the next test. A fresh
page costs as much as the rest of most tests: its process starts, and compiles every script.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from stenolab.browser import LOADED_MS, See, Seen

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Free = dict[str, list[Seen]]
"""Pages that nobody looks at, by the options of their context."""
SIZE = {"width": 1280, "height": 900}


class Lasting(Seen):
    """A page that goes to another as a link does, where the service is the same: the document stays, and a page costs a
    third of a document. From `about:blank` a document is loaded.
    """

    def go(self, path: str) -> Page:
        if not self.page.url.startswith(f"{self.base}/") or "#" in path:
            return super().go(path)
        self.page.evaluate(f"shifts.length = 0; history.pushState(null, '', {json.dumps(path)})")
        self.page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
        self.settled()
        self.shifted()  # until it is drawn
        return self.settled()


@pytest.fixture(scope="module")
def _free(browser: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Free]:
    free: Free = defaultdict(list)
    yield free
    asyncio._set_running_loop(browser[1])
    for seen in (seen for each in free.values() for seen in each):
        seen.page.context.close()
    asyncio._set_running_loop(None)


@pytest.fixture
def see(browser: tuple[Browser, asyncio.AbstractEventLoop], _free: Free) -> Iterator[See]:
    """Opens pages; what they stored and were sent is gone when the test ends."""
    chromium, loop = browser
    opened: list[tuple[dict[str, Any], Seen]] = []

    def open_(base: str, **options: Any) -> Seen:
        options = {"viewport": SIZE, **options}
        free = _free[json.dumps(options, sort_keys=True)]
        if free:
            seen = free.pop()
            seen.base = base
        else:
            context = chromium.new_context(**options)
            context.set_default_timeout(LOADED_MS)
            seen = Lasting(context.new_page(), base)
        opened.append((options, seen))
        return seen

    asyncio._set_running_loop(loop)
    try:
        yield open_
        for options, seen in opened:
            _leave(seen, options)
            _free[json.dumps(options, sort_keys=True)].append(seen)
    finally:
        asyncio._set_running_loop(None)


def _leave(seen: Seen, options: dict[str, Any]) -> None:
    """As it was when it was opened."""
    from playwright.sync_api import Error

    page = seen.page
    page.unroute_all(behavior="ignoreErrors")
    with suppress(Error):  # a page without an address has no storage
        page.evaluate("localStorage.clear(); sessionStorage.clear()")
    page.goto("about:blank")
    page.context.clear_cookies()
    page.set_viewport_size(options["viewport"])
    page.emulate_media(color_scheme=options.get("color_scheme", "light"))
    seen.complaints.clear()
    seen.asked.clear()
    for other in page.context.pages:
        if other is not page:
            other.close()


def violations(seen: Seen, *, colours: bool = True) -> list[Any]:
    """The violations of axe's rules on the page; `colours`: also those of contrast, which is most of the work."""
    from axe_playwright_python.sync_playwright import Axe

    if not seen.page.evaluate("Boolean(window.axe)"):
        seen.page.evaluate(Axe().axe_script)
    rules = f"{{ 'color-contrast': {{ enabled: {json.dumps(colours)} }} }}"
    answer: dict[str, list[Any]] = seen.page.evaluate(f"axe.run({{ reporter: 'no-passes', rules: {rules} }})")
    return answer["violations"]
