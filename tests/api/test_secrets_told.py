"""A token is never repeated: not in an answer, a log, a metric, a file of the record, nor in a list of processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from stenotest.waiting import LIMIT_S

from steno.engine.providers.registry import READINGS
from steno.events.clock import RandomIds, SystemClock
from steno.events.store.record import Record
from steno.projections.api.token_store import Issuer, Role

if TYPE_CHECKING:
    from conftest import Process, StartSteno

pytestmark = pytest.mark.slow
PATHS = (
    "/", "/api/runs", "/api/runs/{}", "/api/runs/{}/stop", "/api/vms/{}/stop", "/api/events/{}", "/api/session",
    "/api/amd/submit", "/api/amd/runs/{}/stream", "/metrics", "/nowhere/{}",
)  # fmt: skip


def asked(process: Process, text: str) -> list[httpx.Response]:
    """Answers to requests that have the token in every place a request has."""
    secret = text.split("_", 2)[2]
    kinds: list[dict[str, Any]] = [
        {"headers": {"Authorization": f"Bearer {text}"}},
        {"headers": {"Authorization": f"Basic {text}"}},
        {"headers": {"Authorization": f"Bearer {text}x"}},
        {"headers": {"Cookie": f"steno_token={text}; {text}={text}"}},
        {"headers": {"Host": text.replace("_", "-")}},
        {"headers": {"Origin": f"http://{secret}", "Referer": f"http://x/{text}", "User-Agent": text, "Via": text}},
        {"headers": {"Idempotency-Key": text, "Last-Event-ID": text, "If-None-Match": text, "Content-Type": text}},
        {"params": {"token": text}},
        {"params": {"access_token": text}},
        {"params": {"limit": "1", "api_key": text}},
        {"json": {"token": text + "x"}},
        {"json": {text: text}},
        {"content": text.encode()},
    ]
    answers_of = []
    with httpx.Client(base_url=process.url, timeout=LIMIT_S, trust_env=False) as client:
        for path in PATHS:
            for method in ("GET", "POST"):
                for kind in kinds:
                    where = path.replace("{}", "x")
                    with client.stream(method, where, **kind) as answer:
                        if "event-stream" not in answer.headers.get("content-type", ""):
                            answer.read()
                            answers_of.append(answer)
            for spelled in (text, text.replace("_", "%5F"), text.replace("s", "%73", 1)):
                with client.stream("GET", path.replace("{}", spelled)) as answer:
                    if "event-stream" not in answer.headers.get("content-type", ""):
                        answer.read()
    return answers_of


def test_a_token_is_repeated_nowhere(steno_served: StartSteno, town: Path) -> None:
    """Thirteen places in a request, by path and method."""
    clock = SystemClock()
    with Record.open(town, write=True, shapes=READINGS.shape, clock=clock) as record:
        text = Issuer(record, clock, RandomIds()).create(role=Role.ADMIN, name="site", expires_at=None, by="x")[1]
    secret = text.split("_", 2)[2]
    process = steno_served(town, STENO_API_SUBMIT_RATE="off")
    answers = asked(process, text)
    assert len(answers) > 250
    leaks = [answer for answer in answers if secret in repr(answer.headers) or secret.encode() in answer.content]
    assert {
        (leak.request.method[:6], leak.request.url.path, leak.status_code, leak.text[:200]) for leak in leaks
    } == set()
    assert secret not in httpx.get(process.url + "/metrics", timeout=LIMIT_S, trust_env=False).text
    for line in Path(f"/proc/{process.process.pid}/cmdline"), Path(f"/proc/{process.process.pid}/environ"):
        assert secret.encode() not in line.read_bytes()
    process.close()
    log = "\n".join([*process.out, *process.err])
    assert secret not in log
    assert "Traceback" not in log
    for file in town.parent.glob("record.db*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file
