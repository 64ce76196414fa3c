"""A client of the HTTP service for programs: typed, sync and async. It needs httpx, httpx-sse and msgspec alone.

    with StenoClient() as steno:
        accepted = steno.ask(submit(["make test"], name="nightly"))
        run = steno.wait(accepted.run_id)
        print(run.state, run.reason, run.cost_usd)
        sys.stdout.writelines(steno.logs(run.run_id))
        for failed in steno.each(runs(state="failed", since="2026-11-20")):
            print(failed.name, failed.reason)

`AsyncStenoClient` has the same methods: `await steno.ask(…)`, `async for run in steno.each(…)`.
"""

from steno.projections.client.attempts import Refused, Unreachable
from steno.projections.client.connection import AsyncStenoClient, StenoClient
from steno.projections.client.requests import (
    budget,
    costs,
    explain,
    levers,
    like,
    machine,
    machines,
    pull,
    release,
    run,
    runs,
    spend,
    starts,
    stop,
    stop_machine,
    submit,
    utilisation,
)

__all__ = [
    "AsyncStenoClient",
    "Refused",
    "StenoClient",
    "Unreachable",
    "budget",
    "costs",
    "explain",
    "levers",
    "like",
    "machine",
    "machines",
    "pull",
    "release",
    "run",
    "runs",
    "spend",
    "starts",
    "stop",
    "stop_machine",
    "submit",
    "utilisation",
]
