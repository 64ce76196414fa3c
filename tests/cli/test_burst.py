"""A burst of submissions through several processes on one record in PostgreSQL."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stenotest.command_line import Steno

    Background = Callable[..., object]

PROCESSES, REQUESTS = 4, 100
DOLLAR_EACH = {"STENO_LOCAL_PRICE": "36", "STENO_IDLE_TIMEOUT": "0", "STENO_API_SUBMIT_RATE": "off"}
TASK = {"type": "task", "commands": ["sleep 3600"], "max_duration": "100s"}
"""It costs a dollar at worst, and does not end before the test does."""


def post(url: str) -> int:
    """The status of one submission over HTTP."""
    body = json.dumps({"configuration": TASK}).encode()
    request = urllib.request.Request(f"{url}/api/runs", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def events(steno: Steno, kind: str) -> list[dict[str, object]]:
    done = steno("events", "--json", "--type", kind)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(("cap", "budget", "most"), [("50", "3.5", 3), ("2", "1000", 2)])
def test_neither_cap_nor_budget_is_exceeded(
    steno: Steno,
    background: Background,
    until: Callable[..., None],
    environment: dict[str, str],
    home: Path,
    postgres_url: str,
    cap: str,
    budget: str,
    most: int,
) -> None:
    """Four processes take requests, one of them records: as many runs get their place as budget and cap allow, and each
    other request waits or was refused.
    """
    environment |= {"STENO_RECORD": postgres_url, "STENO_MAX_VMS": cap, "STENO_BUDGET": budget, **DOLLAR_EACH}
    urls = []
    for number in range(PROCESSES):
        log = home / f"up-{number}.log"
        with log.open("w") as out:
            background("up", out=out.fileno(), err=out.fileno())
        until(lambda log=log: re.search(r"serving http://\S+", log.read_text()))
        urls.append(re.search(r"serving (http://\S+)", log.read_text())[1])  # type: ignore[index]
    until(lambda: events(steno, "PolicyAdopted"))
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(post, (urls[number % PROCESSES] for number in range(REQUESTS))))
    requested = {event["data"]["run_id"] for event in events(steno, "RunRequested")}  # type: ignore[index]
    assert answers.count(202) == len(requested)
    assert len(requested) >= most
    assert set(answers) <= {202, 403}

    def settled() -> bool:
        runs = json.loads(steno("ps", "--all", "--json").stdout)["runs"]
        going = [run for run in runs if run["state"] in ("running", "queued")]
        over = [run for run in runs if run["state"] == "failed"]
        return len(going) + len(over) == len(requested) and sum(run["state"] == "running" for run in runs) == most

    until(settled)
    placed = [event["data"]["run_id"] for event in events(steno, "RunPlaced")]  # type: ignore[index]
    assert len(placed) == len(set(placed)) == most
    refused = [event["data"] for event in events(steno, "IntentAbandoned")]
    assert all(one["policy"] for one in refused)  # type: ignore[index]
    if budget != "1000":
        assert len(refused) == len(requested) - most
