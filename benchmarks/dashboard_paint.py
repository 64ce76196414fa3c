"""First paint of the dashboard in a real browser: milliseconds of cold loads on a long record.

    python benchmarks/dashboard_paint.py [EVENTS]

Each load is a new browser context, with nothing kept. Needs chromium (`apt-get install chromium`).
"""

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.support import SIZE, Lacking, Measured, measured, report, say
from playwright.sync_api import Browser, sync_playwright
from stenotest.big import big_record

EVENTS, LOADS = SIZE.count(2_000, 100_000, 1_000_000), SIZE.pick(1, 15, 25)
SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
SHIFTS = """
window.shift = 0;
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) if (!one.hadRecentInput) window.shift += one.value;
}).observe({ type: "layout-shift", buffered: true });
"""


def load(browser: Browser, url: str) -> tuple[float, float, float]:
    """(first contentful paint, content there, layout shift) of one cold load, in milliseconds."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.add_init_script(SHIFTS)
    page.goto(url, wait_until="commit")
    page.wait_for_selector(".vitals")
    there = page.evaluate("performance.now()")
    page.wait_for_timeout(300)
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    shift = page.evaluate("window.shift")
    context.close()
    return paint, there, shift


def main() -> Iterator[Measured]:
    """Make the record, serve it by the genuine command, load the dashboard."""
    chromium = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    if chromium is None:
        raise Lacking("no browser to paint with; as root: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.db"
        made = big_record(record, events=EVENTS, until=int(time.time() * 1_000_000))
        steno = [sys.executable, "-m", "steno.cli.main"]
        subprocess.run([*steno, "rebuild", "--record", str(record)], check=True, capture_output=True)
        serve = [*steno, "serve", "--record", str(record), "--port", "0"]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            line = next(line for line in server.stdout if "serving http" in line)
            threading.Thread(target=server.stdout.read, daemon=True).start()
            url = line.split("serving ")[1].split()[0]
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=SWITCHES)
                load(browser, url)
                loads = [load(browser, url) for _ in range(LOADS)]
                browser.close()
            server.terminate()
    say(f"layout shift at most {max(load_[2] for load_ in loads):.4f}")
    for name, values in (
        ("first-paint", [load_[0] for load_ in loads]),
        ("first-content", [load_[1] for load_ in loads]),
    ):
        p95 = sorted(values)[min(LOADS - 1, round(LOADS * 0.95))]
        yield measured(name, f"{made:,} events", values, value=p95)


if __name__ == "__main__":
    report(main())
