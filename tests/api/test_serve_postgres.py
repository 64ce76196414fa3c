"""`steno serve` on a record in PostgreSQL, as a role of its own."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import httpx
import psycopg
from stenotest.records import StandingClock
from stenotest.waiting import LIMIT_S, wait

from steno.events.store.record import Record

if TYPE_CHECKING:
    from conftest import Process, Starts
    from stenotest.postgres import MakeRole

SECRET = {"configuration": {"type": "task", "commands": ["true"], "env": {"TOKEN": "secret"}}}
KEPT = "another process has had the vault for 5 s: no secret of a request can be kept"


def post(process: Process) -> int:
    """The status of one submission with a secret."""
    return httpx.post(f"{process.url}/api/runs", json=SECRET, timeout=LIMIT_S, trust_env=False).status_code


def becomes_ready(process: Process) -> None:
    """Wait until it says so: it reads the record first, and the state of a lock is looked at now and then."""
    wait(lambda: process.get("/readyz").json()["status"] == "ready")


def test_a_vault_that_is_locked_refuses_secrets_after_five_seconds(
    started: Starts, postgres_url: str, make_role: MakeRole
) -> None:
    """503, and `/readyz` says why; nothing is wrong any more once the lock is free."""
    Record.open(postgres_url, clock=StandingClock(), write=True, create=True).close()
    _, service = make_role(appends=True, keeps_tokens=True)
    _, other = make_role(appends=True)
    process = started("serve", "--provider", "local", "--record", service)
    becomes_ready(process)
    assert post(process) == 202
    with closing(psycopg.connect(other, autocommit=True)) as holder:
        holder.execute("BEGIN; SELECT steno.hold_blob('vault', true)")
        assert post(process) == 503
        answer = httpx.get(f"{process.url}/readyz", timeout=LIMIT_S, trust_env=False)
        assert (answer.status_code, answer.json()["reasons"]) == (503, [KEPT])
        holder.execute("ROLLBACK")
    assert post(process) == 202
    becomes_ready(process)
    made = process.post("/api/tokens", json={"role": "read", "name": "reader"})
    assert made.status_code == 201, made.text


def test_a_service_that_may_not_read_the_tokens_does_not_start(
    started: Starts, postgres_url: str, make_role: MakeRole
) -> None:
    """Its last line says what its role lacks."""
    Record.open(postgres_url, clock=StandingClock(), write=True, create=True).close()
    _, controller = make_role(appends=True)
    process = started("serve", "--record", controller)
    assert process.ended() != 0
    assert "permission denied for table tokens" in process.err[-1]
    assert "steno db grant" in process.err[-1]
    assert not any("Traceback" in line for line in process.err), process.err
