"""A world under a frozen clock: requests, polls and decisions, folded by the real fold; no provider is in it.

For tests of decisions: `stage.decide()` asks the controller, `stage.write(…)` writes its decisions down as the events
that carrying them out would leave. Rows are facts, as a reading gives them.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from steno.engine.decide.decisions import Decision, decide
from steno.engine.fold.fold import Fold
from steno.engine.providers.dstack.run_reading import with_attempt_words, with_run_words
from steno.engine.providers.dstack.words import VM_STATE, vm_cause
from steno.engine.providers.registry import READINGS
from steno.engine.state.facts import AttemptFacts, JobFacts, RunFacts, VmEvent, VmFacts
from steno.engine.state.policy import Policy, dump_policy
from steno.engine.state.reading import Listing, Scope, Seen, Tick
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm
from steno.events import types
from steno.events.clock import SECOND, foreign_run_id
from stenotest.dstack_history import START

PROVIDER = "dstack"
PROJECT = "main"
SOURCE = f"{PROVIDER}/{PROJECT}"


class Simulation:
    """A source; `now` is the clock, `world` everything folded so far."""

    def __init__(self, policy: Policy | None = None, *, now: int = START) -> None:
        self.world = Fold(READINGS)
        self.now = now
        self.policy = policy if policy is not None else Policy(budget_total=None)
        self._position = 0
        self.adopt(self.policy)

    # -- what happens --------------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Time passes; nobody looks."""
        self.now += round(seconds * SECOND)

    def tell(self, event: types.Event) -> None:
        """FoldContext one event of ours."""
        self._position += 1
        self.world.apply_event(self._position, self.now, event)

    def adopt(self, policy: Policy) -> None:
        """From now on this policy is in force."""
        self.policy = policy
        self.tell(types.PolicyAdopted(source=SOURCE, policy=dump_policy(policy)))

    def request(self, name: str, *, submitter: str = "ada", fallback: tuple[str, ...] = (), **task: object) -> str:
        """Somebody asks for a run; `task` are fields of its configuration. Its run id, which is `run-<name>`."""
        configuration = msgspec.json.encode({"type": "task", "name": name, "commands": ["true"], **task})
        self.tell(
            types.RunRequested(
                run_id=f"run-{name}",
                provider=PROVIDER,
                project=PROJECT,
                name=name,
                configuration=configuration,
                submitter=submitter,
                fallback=fallback,
            )
        )
        return f"run-{name}"

    def taken(self, name: str, provider_id: str | None = None) -> None:
        """The provider took the run of that name."""
        self.tell(
            types.SubmitSucceeded(
                run_id=f"run-{name}", provider=PROVIDER, provider_id=provider_id or f"p-{name}", name=name
            )
        )

    def ensured(self, fleet: str = "shared") -> None:
        """We made this fleet: its machines are ours."""
        self.tell(types.FleetEnsured(provider=PROVIDER, project=PROJECT, name=fleet))

    def wish(self, machine: str, *, when_idle: bool = False) -> None:
        """A user wants a machine gone."""
        self.tell(
            types.VmStopRequested(
                vm_id=self.vm_id(machine),
                provider=PROVIDER,
                project=PROJECT,
                provider_id=machine,
                when_idle=when_idle,
                submitter="ada",
            )
        )

    def machines(self, *rows: VmFacts, started: int | None = None, answered: bool = True) -> None:
        """A poll of all machines."""
        self._poll(Listing.VMS, started, answered, vms=rows)

    def runs(self, *rows: RunFacts, started: int | None = None, answered: bool = True) -> None:
        """A poll of all runs, newest first."""
        self._poll(Listing.RUNS, started, answered, runs=tuple(Seen(facts=row) for row in rows))

    def log(self, *events: VmEvent) -> None:
        """A poll of the provider's own log."""
        self._poll(Listing.EVENTS, None, answered=True, events=events)

    def _poll(self, listing: Listing, started: int | None, answered: bool, **rows: Any) -> None:
        self._position += 1
        tick = Tick(
            position=self._position,
            source=SOURCE,
            scope=Scope(provider=PROVIDER, source=SOURCE, listing=listing, watched=True, project=PROJECT, limit=10_000),
            started_at=self.now if started is None else started,
            observed_at=self.now,
            answered=answered,
            **(rows if answered else {}),
        )
        self.world.apply(tick)

    # -- what is decided ----------------------------------------------------------------------------------------------

    def decide(self, now: int | None = None) -> tuple[Decision, ...]:
        """The controller's decisions now."""
        return decide(self.world.state, SOURCE, self.policy, self.now if now is None else now)

    def write(self, decisions: Iterable[Decision]) -> None:
        """Write decisions down; no provider is called."""
        for decision in decisions:
            self.tell(decision)

    def settle(self) -> tuple[Decision, ...]:
        """All decisions, each recorded, until there is no new one."""
        made: list[Decision] = []
        for _ in range(20):
            decisions = self.decide()
            if not decisions:
                return tuple(made)
            made += decisions
            self.write(decisions)
        raise AssertionError(f"it never comes to rest: {decisions}")

    def stop_taken(self, machine: str) -> None:
        """The provider took the end of a machine."""
        self.tell(types.VmStopSucceeded(vm_id=self.vm_id(machine), provider=PROVIDER))

    def stop_refused(self, machine: str, error: str = "Fleet is in use") -> None:
        """The provider refused it."""
        self.tell(types.VmStopFailed(vm_id=self.vm_id(machine), provider=PROVIDER, error=error))

    # -- what is known -------------------------------------------------------------------------------------------------

    def vm_id(self, machine: str) -> str:
        """The id of the machine the provider calls so."""
        return foreign_run_id(PROVIDER, machine)

    def vm(self, machine: str) -> Vm:
        """That machine as folded."""
        return self.world.state.vms[self.vm_id(machine)]

    def run(self, name: str) -> Run:
        """The run of that name that was requested here."""
        return self.world.state.runs[f"run-{name}"]


def vm_row(
    provider_id: str = "m1",
    status: str = "idle",
    *,
    created: int = START,
    fleet: str = "shared",
    hostname: str | None = "",
    **more: Any,
) -> VmFacts:
    """A row of an MI300X machine; its hostname is `host-<provider_id>` unless told otherwise."""
    return VmFacts(
        **{
            "provider_id": provider_id,
            "name": f"{fleet}-0",
            "project": PROJECT,
            "fleet": fleet,
            "hostname": f"host-{provider_id}" if hostname == "" else hostname,
            "backend": "amddevcloud",
            "region": "atl1",
            "status": status,
            "state": VM_STATE.get(status),
            "cause": vm_cause(more.get("reason")),
            "by_request": more.get("reason") in (None, "terminated_by_user"),
            "created": created,
            "price": 1_990_000,
            "spot": False,
            "gpu": "MI300X",
            "gpu_count": 1,
            "gpu_memory_mib": 196_608,
            "cpus": 20,
            "memory_mib": 245_760,
            "disk_mib": 737_280,
            "total_blocks": 1,
            "busy_blocks": 1 if status in ("busy", "provisioning") else 0,
            **more,
        }
    )


def run_row(
    name: str,
    status: str = "running",
    *,
    on: str | None = None,
    submitted: int = START,
    finished: int | None = None,
    exit_status: int | None = None,
    reason: str | None = None,
    provider_id: str | None = None,
    unrun: bool = False,
) -> RunFacts:
    """A row of a run with one job whose submission says the same; `on` is the machine it is on."""
    ended = status in ("done", "failed", "terminated")
    attempt = AttemptFacts(
        submitted_at=submitted, finished_at=finished, hostname=None if on is None else f"host-{on}", unrun=unrun
    )
    job_status = status if status != "pending" else "submitted"
    attempt = with_attempt_words(attempt, job_status, reason, exit_status, frozenset())
    run = RunFacts(
        provider_id=provider_id or f"p-{name}", name=name, project=PROJECT, user="admin", submitted_at=submitted
    )
    run_reason = (
        {"done": "all_jobs_done", "failed": "job_failed", "terminated": "stopped_by_user"}.get(status)
        if ended
        else None
    )
    return with_run_words(run, status, run_reason, (JobFacts(attempts=(attempt,)),))
