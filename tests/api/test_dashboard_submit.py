"""The dashboard's submit page and its access, in a real browser on a real service."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stenolab.browser import text_of
from stenotest import steno_process
from stenotest.command_line import VARIABLES
from stenotest.kernels import AT_ONCE

if TYPE_CHECKING:
    from conftest import Serve
    from stenolab.browser import See
    from stenolab.steno import Steno


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `steno up` on this machine's own provider."""
    folder = tmp_path_factory.mktemp("up")
    home = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "STENO_KERNEL_UNSAFE_LOCAL": "true"}
    options = {"program": AT_ONCE, "env": home | VARIABLES, "cwd": folder, "text": True}
    with steno_process.Popen(["up"], stdout=subprocess.PIPE, **options) as process:
        try:
            yield next(match[1] for line in process.stdout if (match := re.search(r"serving (http://\S+) ", line)))
            process.terminate()
            for _ in process.stdout:
                pass  # until it has ended
        finally:
            process.kill()


def test_a_command_is_submitted_followed_and_stopped(up: str, see: See) -> None:
    """An error is said at its field; then its page, its output as it is written, and a stop that asks first."""
    seen = see(up)
    page = seen.go("/submit?what=command")
    page.get_by_role("button", name="Submit").click()
    assert "at least one command" in text_of(page, ".field .wrong")
    page.get_by_label("Commands").fill("for i in $(seq 1 600); do echo line $i; sleep 0.1; done")
    page.get_by_label("Longest duration").fill("soon")
    page.get_by_role("button", name="Submit").click()
    page.locator("[aria-invalid=true]").wait_for()
    assert page.get_by_label("Longest duration").get_attribute("aria-invalid") == "true"
    page.get_by_label("Longest duration").fill("10m")
    page.get_by_label("Name").fill("counting")
    seen.until("JSON.stringify(localStorage).includes('counting')")
    page.reload()
    seen.settled()
    assert page.get_by_label("Name").input_value() == "counting"
    page.get_by_role("button", name="Submit").click()
    seen.until("document.querySelector('.run-verdict')?.innerText.includes('running')")
    page.get_by_role("tab", name="Output").click()
    seen.until("/line 2\\n[^]*line 9\\n/.test(document.querySelector('.output pre')?.innerText)")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Keep it").click()
    assert text_of(page, ".run-verdict").startswith("running")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Stop it").click()
    seen.until("document.querySelector('.run-verdict').innerText.includes('stopped_by_user')")
    assert page.get_by_role("button", name="Stop").count() == 0
    seen.until("document.querySelector('.output-state').innerText === 'Complete'")
    assert [complaint for complaint in seen.complaints if "status of 4" not in complaint] == []


needs_a_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here: `apt-get install g++`")


@needs_a_compiler
@pytest.mark.parametrize("times", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_kernel_is_followed_to_its_end_across_a_reload(up: str, see: See, times: int) -> None:
    """Phases as they come, tests and benchmarks as tables; a reload in between loses nothing."""
    seen = see(up)
    page = seen.go("/submit")
    page.get_by_role("button", name="Start from the example").click()
    if not times:
        page.get_by_text("Test only").click()
    page.get_by_role("button", name="Submit").click()
    seen.until("location.search.includes('run=')")
    page.reload()
    end = "Benchmark completed successfully" if times else "All tests passed"
    seen.until(f"document.querySelector('#progress')?.innerText === '{end}'")
    assert page.locator(".phase-mark").all_inner_texts() == ["✓"] * page.locator(".phase").count()
    assert "3 of 3 passed" in text_of(page, "[aria-label=Tests]")
    assert page.get_by_role("region", name="Benchmarks").locator("tbody tr").count() == times
    page.get_by_role("button", name="Submit another").click()
    assert page.get_by_label("Source").input_value() != ""
    assert seen.complaints == []


@pytest.mark.ci
@needs_a_compiler
def test_what_is_wrong_with_a_kernel_is_told_where_it_is(up: str, see: See) -> None:
    """An empty source at its field; what does not compile in the compiler's words; a wrong answer with the test."""
    seen = see(up)
    page = seen.go("/submit")
    page.get_by_label("Problem").select_option("leaky-relu")
    assert "33.6 MB, 4,194,304 operations. MI300X needs 0.006331 ms or more." in text_of(page, "form")
    page.get_by_role("button", name="Submit").click()
    page.locator(".field.source .wrong").wait_for()
    assert page.get_by_label("Source").get_attribute("aria-invalid") == "true"
    head = 'extern "C" void solution(const float* A, float* C, float alpha, size_t M, size_t N)'
    page.get_by_label("Source").fill(head + " { retrn; }")
    page.get_by_role("button", name="Submit").click()
    seen.until("document.querySelector('#progress')?.innerText === 'Compilation failed'")
    assert "retrn" in text_of(page, "pre[aria-label='Compiler output']")
    page.get_by_role("button", name="Submit another").click()
    page.get_by_label("Source").fill(head + " {}")
    page.get_by_role("button", name="Submit").click()
    seen.until("document.querySelector('#progress')?.innerText === 'Wrong answer'")
    assert "wrong" in text_of(page, "[aria-label=Tests]")


def test_tab_indents_and_escape_leaves(up: str, see: See) -> None:
    """Tab indents, Shift+Tab takes that back, undo takes back what either did; after Esc, Tab moves on."""
    page = see(up).go("/submit")
    area = page.get_by_label("Source")
    area.fill("a\nb")
    area.press("Control+a")
    area.press("Tab")
    assert area.input_value() == "    a\n    b"
    area.press("Shift+Tab")
    assert area.input_value() == "a\nb"
    area.press("Control+z")
    assert area.input_value() == "    a\n    b"
    area.press("Escape")
    area.press("Tab")
    assert page.evaluate("document.activeElement.tagName") != "TEXTAREA"


@pytest.mark.ci
@pytest.mark.parametrize(
    ("provider", "why"),
    [
        pytest.param(
            "slurm",
            "the provider slurm cannot run kernels: its tasks have no containers",
            marks=pytest.mark.long,
        ),
        ("local", "kernels run in containers only, and here they cannot"),
    ],
)
def test_no_kernel_is_offered_where_none_is_accepted(
    served: Serve, town: Path, see: See, provider: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the provider, or because this host has no container engine: the page says why, and opens on a command."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    seen = see(served(town, provider=provider).url)
    page = seen.go("/submit")
    page.get_by_label("Commands").wait_for()
    assert page.get_by_role("tab", name="A command").get_attribute("aria-selected") == "true"
    page = seen.go("/submit?what=kernel")
    assert why in text_of(page, "#page .empty")
    assert page.get_by_label("Source").count() == 0
    assert seen.go("/submit?what=command").get_by_label("Commands").count() == 1


def test_nothing_is_submitted_in_the_past(served: Serve, town: Path, see: See) -> None:
    """The page says so and leads back to now."""
    seen = see(served(town, kernel__unsafe_local="true").url)
    page = seen.go("/submit?at=100")
    assert page.get_by_role("button", name="Submit").count() == 0
    page.locator("#page").get_by_role("button", name="Back to live").click()
    page.get_by_role("button", name="Submit").wait_for()


# -- access


def test_a_token_opens_the_dashboard_and_its_role_is_kept_to(steno: Steno, served: Serve, town: Path, see: See) -> None:
    """Behind a proxy a token is asked for once; a wrong one is refused in a sentence; `read` is offered no action."""
    secret = {
        role: steno("token", "create", "--role", role, "--name", f"a-{role}", "--record", town).out.split()[-1]
        for role in ("read", "submit")
    }
    here = served(town, kernel__unsafe_local="true")
    seen = see(here.url, extra_http_headers={"X-Forwarded-For": "203.0.113.7"})
    page = seen.page
    page.goto(here.url + "/runs?state=failed")
    page.get_by_label("Token").wait_for()
    page.get_by_label("Token").fill("steno_no_such")
    page.get_by_role("button", name="Log in").click()
    page.locator(".wrong").wait_for()
    page.get_by_label("Token").fill(secret["read"])
    page.get_by_role("button", name="Log in").click()
    seen.until("location.pathname === '/runs' && location.search.includes('state=failed')")
    seen.settled()
    assert page.locator("tbody tr").count() == 5
    seen.go("/submit")
    assert "Your role cannot submit" in text_of(page, ".empty")
    seen.go("/login")
    assert "read" in text_of(page, ".facts")
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Token").wait_for()
    page.get_by_label("Token").fill(secret["submit"])
    page.get_by_role("button", name="Log in").click()
    seen.until("location.pathname === '/'")
    page.get_by_role("link", name="Submit", exact=True).click()
    page.get_by_role("button", name="Submit").wait_for()
    assert secret["read"] not in page.content()
