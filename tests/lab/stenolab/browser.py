"""A real browser for tests: Debian's chromium, without its desktop. Everything it complains of or asks for is kept.

Each process of xdist's starts one; `plugin` keeps the tests of a module that use it in one process. Playwright leaves
its event loop marked as running between calls, which breaks `asyncio.run` of other tests: `see` sets and clears it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from stenotest.waiting import wait

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

LOADED_MS = 120_000
"""For one step of the browser's, on a machine that is busy with other tests."""
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
"""Options of a context."""
SWITCHES = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")
_READ = "!document.querySelector('.skeleton, #page .stale')"
_NEXT_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
_CHANGED = "ERR_NETWORK_CHANGED"
"""Chromium ends every request when a network interface comes or goes, as those of other tests' containers do."""
_SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) window.shifts.push(one.value);
}).observe({ type: "layout-shift", buffered: true });
"""


class Seen:
    """A page of the dashboard, and what it complained of and asked for."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.complaints: list[str] = []
        self.asked: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.add_init_script(_SHIFTS)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} {message.location.get('url', '')}".strip())

    def go(self, path: str) -> Page:
        """The page at a path, with its content there."""
        before = len(self.complaints)
        while not self._loaded(path) or any(_CHANGED in text for text in self.complaints[before:]):
            del self.complaints[before:]
        return self.settled()

    def _loaded(self, path: str) -> bool:
        from playwright.sync_api import Error

        try:
            if "#" in path:  # else a page that is open only moves to that part
                self.page.goto("about:blank")
            self.page.goto(self.base + path)
        except Error as error:
            if _CHANGED not in str(error):
                raise
            return False
        return True

    def settled(self) -> Page:
        """The page once nothing is being read: no skeleton, nothing dimmed."""
        self.page.wait_for_selector("#page h1")
        self.until(_READ)
        while not self._true(f"{_NEXT_FRAMES}.then(() => {_READ})"):  # what has just been drawn begins to read after it
            self.until(_READ)
        return self.page

    def until(self, expression: str) -> None:
        """Waits until a JavaScript expression is true, asked from outside: the page's policy forbids `eval` within.

        Raises:
            StillWaiting: it is not.
        """
        wait(lambda: self._true(expression), what=expression, pause=0.05)

    def _true(self, expression: str) -> bool:
        from playwright.sync_api import Error

        try:
            return bool(self.page.evaluate(f"Promise.resolve({expression}).then(Boolean)"))
        except Error as error:
            if "context was destroyed" in str(error) or "navigation" in str(error):  # another page is on its way
                return False
            raise

    def elsewhere(self) -> list[str]:
        """Requests to anybody but the service."""
        return [url for url in self.asked if not url.startswith((self.base, "data:", "blob:"))]

    def shifted(self) -> float:
        """How much of the page moved, also after a click (cumulative layout shift), once what changed is drawn."""
        self.page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        return float(sum(self.page.evaluate("window.shifts")))

    def position(self) -> int | None:
        """The position in the page's address; None: live."""
        match = re.search(r"[?&]at=(\d+)(&|$)", self.page.url)
        return None if match is None else int(match[1])


class See(Protocol):
    """`see(url, **context)`: a fresh browser context on a service; options are playwright's."""

    def __call__(self, base: str, **options: Any) -> Seen: ...


@pytest.fixture(scope="session")
def browser() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """Debian's chromium and playwright's event loop.

    `chromium-headless-shell` is the same engine for a third less work.
    """
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=LOADED_MS)
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        problem = "there is no chromium here: `apt-get install chromium-headless-shell`"
        pytest.fail(problem) if os.environ.get("STENO_REQUIRE_LAB") == "1" else pytest.skip(problem)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=list(SWITCHES), timeout=LOADED_MS)
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield chromium, loop
        asyncio._set_running_loop(loop)
        chromium.close()


@contextmanager
def _running(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(None)


@pytest.fixture
def see(browser: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[See]:
    """Opens pages; all are closed when the test ends."""
    chromium, loop = browser
    contexts = []

    def open_(base: str, **options: Any) -> Seen:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(LOADED_MS)
        contexts.append(context)
        return Seen(context.new_page(), base)

    with _running(loop):
        yield open_
        for context in contexts:
            context.close()


def text_of(page: Page, selector: str) -> str:
    """The text of a part of the page, spaces evened."""
    return " ".join(page.locator(selector).first.inner_text().split())
