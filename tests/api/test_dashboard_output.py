"""The output of a run on its page: coloured, searched, bounded, and never markup; in a real browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stenolab.browser import text_of
from stenotest.waiting import wait

if TYPE_CHECKING:
    from conftest import Starts
    from stenolab.browser import See

pytestmark = pytest.mark.slow

MARKUP = "<img src=x onerror=\"document.title='owned'\">"
PROGRAM = f"""
import sys
say = sys.stdout.buffer.write
say({MARKUP.encode()!r} + b"\\nstraw\\n")
for number in range(12_000):
    say(b"\\x1b[3%dmcolour\\x1b[0m \\x1b[1;4%dmground\\x1b[0m %d\\n" % (number % 8, number % 8, number))
say(bytes(range(256)) + b"\\n" + b"x" * 2_000_000 + b"\\n")
say(b"\\x1b[31mneedle\\x1b[0m one\\nNeedle two\\n" + {MARKUP.encode()!r} + b"\\n\\x1b[32mthe end\\x1b[0m\\n")
"""


def test_a_long_output_is_shown_in_bounds_in_colour_and_searched(started: Starts, tmp_path: Path, see: See) -> None:
    """The page draws the newest of colours without end, of bytes that are not text and of a line of 2 MB, and never as
    markup; words are found by keyboard; the download has every byte.
    """
    (tmp_path / "say.py").write_text(PROGRAM)
    up = started("up", "--record", tmp_path / "day.db")
    task = {"type": "task", "commands": [f"python3 {tmp_path / 'say.py'}"]}
    run = up.post("/api/runs", json={"name": "loud", "configuration": task}).json()
    seen = see(up.url)
    page = seen.go(f"/runs/{run['run_id']}?tab=output")
    seen.until("document.querySelector('[role=log]')?.innerText.includes('the end')")
    page.locator(".output-state.done").wait_for()
    assert page.locator("[role=log] > span").count() <= 5000
    assert page.locator("[role=log] *").count() < 30_000
    assert page.evaluate("document.title.includes('loud')")
    assert page.locator("[role=log] img").count() == 0
    assert MARKUP in page.locator("[role=log]").inner_text()
    assert page.locator("[role=log] .t-1", has_text="needle").count() == 1
    assert "of 12,009; the download has everything" in text_of(page, ".output .note")
    assert page.evaluate("document.querySelector('[role=log]').scrollTop > 1000"), "the newest lines are in view"
    page.keyboard.press("/")
    page.keyboard.type("needle")
    seen.until("document.querySelector('.found').innerText === '1 of 2'")
    page.keyboard.press("Enter")
    seen.until("document.querySelector('mark.chosen')?.innerText === 'Needle'")
    page.keyboard.press("Shift+Enter")
    seen.until("document.querySelector('mark.chosen')?.innerText === 'needle'")
    page.keyboard.press("Escape")
    seen.until("document.querySelector('mark') === null")
    page.get_by_label("Find in the output").fill("straw")
    seen.until("document.querySelector('.found').innerText === 'not found'")
    wait(lambda: up.get("/api/output?search=straw").json()["lines"], "the output is recorded")
    page.get_by_role("button", name="Search the recorded output").click()
    page.get_by_text("1 recorded line").wait_for()
    assert page.get_by_label("Recorded lines").inner_text().split() == [str(len(MARKUP) + 1), "straw"]
    with page.expect_download() as begun:
        page.get_by_role("link", name="Download").click()
    assert begun.value.path().stat().st_size == len(up.get(f"/api/runs/{run['run_id']}/logs").content) > 2_200_000
    assert seen.complaints == []


def test_escapes_are_read_wherever_a_piece_ends(tmp_path: Path) -> None:
    """Colours and overwritten lines; other sequences vanish; a kernel's reports are not output; bounds hold."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node here: `apt-get install nodejs`")
    source = Path(__file__).parent.parent.parent / "projections/dashboard/assets/js/pages/run/terminal.js"
    (tmp_path / "terminal.mjs").write_text(source.read_text())
    (tmp_path / "try.mjs").write_text(
        'import { MOST, Terminal, cut, hitsOf } from "./terminal.mjs";\n'
        "const text = 'a\\u001b[1;31mred\\u001b[0m\\r\\nold\\rnew\\u001b]0;title\\u0007\\u001b[2K\\n"
        "\\u001b[38;5;196mx\\u001b[38;2;0;200;0my\\u001b[39mz\\u0000\\n::steno:: {}\\nlast';\n"
        "const whole = new Terminal({ frames: true });\n"
        "whole.write(text);\n"
        "const pieces = new Terminal({ frames: true });\n"
        "for (const one of text) pieces.write(one);\n"
        "const said = (one) => one.shown().map((line) => line.parts.map(({ css, text }) => [css, text]));\n"
        "const many = new Terminal();\n"
        "for (let n = 0; n < 20000; n++) many.write(`line ${n}\\n`);\n"
        "many.write('y'.repeat(9000));\n"
        "const line = many.shown()[0];\n"
        "console.log(JSON.stringify({ whole: said(whole), same: JSON.stringify(said(whole)) === JSON.stringify("
        "said(pieces)), lines: many.shown().length - MOST.lines, dropped: many.dropped, long: many.shown().at(-1).long,"
        " hits: hitsOf(many.shown(), 'LINE 1999').length, cut: cut(line, hitsOf([line], 'ne'), 0) }));\n"
    )
    printed = json.loads(
        subprocess.run([node, tmp_path / "try.mjs"], capture_output=True, text=True, check=True).stdout
    )
    assert printed["whole"] == [
        [["", "a"], ["t-1 t-bold", "red"]],
        [["", "new"]],
        [["t-1", "x"], ["t-2", "y"], ["", "z␀"]],
        [["", "last"]],
    ]
    assert printed["same"]
    assert (printed["lines"], printed["dropped"], printed["long"], printed["hits"]) == (1, 15_000, 5000, 10)
    assert [(part["text"], part["hit"]) for part in printed["cut"]] == [("li", None), ("ne", 0), (" 15000", None)]
