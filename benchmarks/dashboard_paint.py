"""First paint of the dashboard in a real browser: milliseconds of cold loads on a long record.

    python -m benchmarks.dashboard_paint [EVENTS] [LOADS]

Each load is a new browser context, with nothing kept. Needs chromium (`apt-get install chromium`).
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import support  # noqa: F401 — makes stenotest importable
from playwright.sync_api import Browser, sync_playwright
from stenotest.big import big_record

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


def main(events: int = 1_000_000, loads: int = 25) -> None:
    """Makes the record, serves it by the genuine command, and prints the figures."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("there is no chromium here: `apt-get install chromium`")
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.db"
        made = big_record(record, events=events, until=int(time.time() * 1_000_000))
        steno = [sys.executable, "-m", "cli.main"]
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
                found = [load(browser, url) for _ in range(loads)]
                browser.close()
            server.terminate()
    for name, values in (("first paint", [one[0] for one in found]), ("content there", [one[1] for one in found])):
        ordered = sorted(values)
        p95 = ordered[min(loads - 1, round(loads * 0.95))]
        print(f"{name:14} {made:,} events, {loads} loads: median {statistics.median(ordered):.0f} ms, p95 {p95:.0f} ms")
    print(f"layout shift   at most {max(one[2] for one in found):.4f}")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
