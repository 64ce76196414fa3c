"""A page of another site in a real browser, and strings that would be scripts if a page of ours let them."""

from __future__ import annotations

import http.server
import json
import re
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from steno.engine.providers.registry import READINGS
from steno.events.clock import SECOND, SystemClock
from steno.events.store.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from conftest import Serve, Served, Starts
    from stenolab.browser import See, Seen

    from steno.events.poll import Poll

pytestmark = pytest.mark.slow

EVIL = Path(__file__).with_name("evil.html").read_bytes()


@contextmanager
def another_site() -> Iterator[str]:
    """A web server that is not Steno's, on a port of its own."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = EVIL
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f":{server.server_port}"
        server.shutdown()


def requests(service: Served) -> int:
    """How many runs were asked for."""
    with Record.open(service.record, shapes=READINGS.shape, clock=SystemClock()) as record:
        return sum(1 for _ in record.read(types=frozenset({"RunRequested"})))


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("localhost", marks=pytest.mark.long)])
def test_a_page_of_another_site_reads_nothing_and_changes_nothing(
    served: Serve, town: Path, see: See, host: str
) -> None:
    """By fetch, form, beacon, script, image, style sheet, stream and socket; from the same host name and another."""
    service = served(town)
    before = requests(service)
    with another_site() as port:
        seen = see(f"http://{host}{port}")
        seen.page.goto(f"http://{host}{port}/?at={service.url}")
        seen.until("window.told && window.told.done")
        outcomes = seen.page.evaluate("window.told")
    assert len(outcomes) >= 32
    assert outcomes.pop("done")
    assert {name: outcome for name, outcome in outcomes.items() if outcome not in {"failed", "sent"}} == {}
    assert requests(service) == before


# -- what a provider, a task or a caller says, on every page

SCRIPT = """<img src=x onerror="window.owned=1"><script>window.owned=1</script>'"><svg onload="window.owned=1">"""
SAID = frozenset(
    (
        "name", "run_name", "user", "actor_user", "status_message", "message", "project_name", "backend", "backends",
        "region", "hostname", "fleet_name", "job_name", "instance_id", "termination_reason_message", "image",
        "image_name", "commands", "description", "username", "availability", "health_status", "error",
    )
)  # fmt: skip
"""Texts of dstack's answers that anybody could have chosen."""
WATCH = """
window.broken = [];
document.addEventListener("securitypolicyviolation", (one) => window.broken.push(one.violatedDirective));
"""


def spoiled(value: Any, key: str = "") -> Any:
    """An answer whose texts are scripts; what was equal stays equal."""
    match value:
        case dict():
            return {name: spoiled(inner, name) for name, inner in value.items()}
        case list():
            return [spoiled(inner, key) for inner in value]
        case str() if key in SAID and value:
            return SCRIPT + value
    return value


def spoiled_polls(name: str, polls: Callable[[str], tuple[Poll, ...]]) -> list[Poll]:
    """A recording with scripts for names and messages, and an unknown status at its end."""
    changed = [
        msgspec.structs.replace(
            poll,
            source=poll.source + SCRIPT,
            error=None if poll.error is None else poll.error + SCRIPT,
            body=None if poll.body is None else json.dumps(spoiled(json.loads(poll.body))).encode(),
        )
        for poll in polls(name)
    ]
    drifts = [poll for poll in changed if poll.body is not None and b'"status": "running"' in poll.body][-1:]
    later = changed[-1].observed_at + SECOND
    return changed + [
        msgspec.structs.replace(
            poll,
            started_at=later,
            observed_at=later + SECOND,
            body=(poll.body or b"").replace(b'"status": "running"', b'"status": ' + json.dumps(SCRIPT).encode()),
        )
        for poll in drifts
    ]


def expect_harmless(seen: Seen) -> None:
    """No script ran, none was kept from running by the policy alone, and no element was made of a text."""
    assert seen.page.evaluate("window.owned") is None, seen.page.url
    assert seen.page.evaluate("window.broken") == [], seen.page.url
    assert seen.page.evaluate("document.querySelectorAll('img[src=x], svg[onload], [onerror]').length") == 0
    bad = [url for url in seen.asked if url.endswith("/x")]
    assert bad == []
    links = seen.page.evaluate("[...document.querySelectorAll('[href],[src]')].map((one) => one.href || one.src || '')")
    assert [link for link in links if isinstance(link, str) and re.match(r"\s*(javascript|data|vbscript):", link)] == []


def shown(seen: Seen, path: str) -> str:
    """The text of a page, which is harmless."""
    seen.go(path)
    seen.page.wait_for_timeout(100)
    expect_harmless(seen)
    text: str = seen.page.inner_text("body")
    return text


@pytest.mark.long
def test_what_a_provider_says_is_text_on_every_page(
    served: Serve,
    tmp_path: Path,
    see: See,
    polls: Callable[[str], tuple[Poll, ...]],
    recorded_again: Callable[[Path, Sequence[Poll]], Path],
) -> None:
    """Names, users, machines, GPUs, projects, messages, unknown statuses, failures: all pages, all tabs."""
    for name in ("success", "failure", "several", "no_capacity", "unreachable"):
        recorded_again(tmp_path / "record.db", spoiled_polls(name, polls))
    service = served(tmp_path / "record.db")
    runs = [run["run_id"] for run in service.client.get("/api/runs").json()["runs"]]
    machines = [vm["vm_id"] for vm in service.client.get("/api/vms").json()["vms"]]
    events = service.client.get("/api/events?type=RunObserved&limit=2").json()["events"]
    answers = service.client.get("/api/polls?limit=2").json()["polls"]
    assert len(runs) > 4
    assert machines
    seen = see(service.url)
    seen.page.add_init_script(WATCH)
    paths = [
        "/", "/runs", "/machines", "/incidents", "/record", "/record?show=polls", "/submit", "/submit?what=command",
        "/login",
        *(f"/costs?by={by}" for by in ("vm", "run", "day", "user", "gpu")),
        *(f"/runs/{run}?tab={tab}" for run in runs[:3] for tab in ("why", "output", "cost", "events")),
        *(f"/runs/{run}" for run in runs[3:]),
        *(f"/machines/{vm}" for vm in machines),
        *(f"/record/{row['position']}" for row in (*events, *answers)),
    ]  # fmt: skip
    with_script = [path for path in paths if SCRIPT[:30] in shown(seen, path)]
    assert len(with_script) > 12, with_script
    for path in (
        f"/runs/{SCRIPT}",
        f"/machines/{SCRIPT}",
        f"/record/{SCRIPT}",
        f"/runs?name={SCRIPT}",
        f"/?at={SCRIPT}",
    ):
        seen.page.goto(service.url + path.replace("%", "%25").replace("#", "%23"))
        seen.page.wait_for_selector("body")
        expect_harmless(seen)


def test_what_a_task_says_is_text(started: Starts, tmp_path: Path, see: See) -> None:
    """Output that is followed live."""
    up = started("up", "--record", tmp_path / "record.db", STENO_LOCAL_PRICE="1.99", STENO_LOCAL_GPU="MI300X")
    task = {"type": "task", "commands": [f"echo {json.dumps(SCRIPT)}; printf '\\033]0;x\\007'; exit 3"]}
    made = up.post("/api/runs", json={"name": "says", "configuration": task})
    assert made.status_code == 202, made.text
    seen = see(up.url)
    seen.page.add_init_script(WATCH)
    seen.go("/runs/says?tab=output")
    seen.until(f"document.body.innerText.includes({json.dumps(SCRIPT[:30])})")
    expect_harmless(seen)


@pytest.mark.long
def test_what_a_kernel_says_is_text(started: Starts, tmp_path: Path, see: See) -> None:
    """Its source, and the compiler's words about it."""
    here = {"STENO_LOCAL_PRICE": "1.99", "STENO_LOCAL_GPU": "MI300X", "STENO_KERNEL_UNSAFE_LOCAL": "true"}
    up = started("up", "--record", tmp_path / "record.db", **here)
    seen = see(up.url)
    seen.page.add_init_script(WATCH)
    seen.go("/submit")
    seen.page.get_by_label("Source").fill(f"#error {SCRIPT}")
    seen.page.get_by_role("button", name="Submit", exact=True).click()
    seen.until("location.search.includes('run=')")
    seen.until("document.body.innerText.includes('onerror')")
    expect_harmless(seen)
