"""A record of a dstack project in which the real rules decide: polls by hand, decisions as a recorder writes them."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from steno.engine.decide.audit import subject_of
from steno.engine.decide.auditor import Auditor
from steno.engine.decide.decisions import Decision, decide, is_news
from steno.engine.fold.fold import Fold
from steno.engine.fold.record_fold import RecordFold
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.engine.state.policy import MINUTE, Policy, dump_policy
from steno.engine.state.samples import Sample, pack
from steno.events import types
from steno.events.clock import SECOND, foreign_run_id
from steno.events.store.append import Batch
from steno.events.subjects import DecidedAt
from stenotest.dstack_history import START, Item, job, provider_id, run_item, submission
from stenotest.machines import machine_item
from stenotest.records import StandingClock, poll_of, temporary_record

SOURCE = "dstack/main"
BUDGET = Policy(max_vms=2, idle_timeout=10 * MINUTE, budget_total=4_000_000, assumed_duration=6 * MINUTE)
SOFTWARE = "1.2.3"


@dataclass
class DecidedRecord:
    """A site: `round` polls and decides. Its runs and machines are the items of the newest poll."""

    folder: Path
    policy: Policy = BUDGET
    stamped: bool = True
    """False: as older versions, which did not say from what a decision was made."""
    runs: dict[str, Item] = field(default_factory=dict)
    machines: dict[str, Item] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = StandingClock(START)
        self.record = temporary_record(self.folder, shapes=READINGS.shape, clock=self.clock)
        self.live = LiveWorld(READINGS, self.record)
        self.write(f"source/{SOURCE}", types.RecorderStarted(source=SOURCE, software="steno"))
        self.adopt(self.policy)
        self.write("fleet/main/shared", types.FleetEnsured(provider="dstack", project="main", name="shared"))

    # -- what happens

    def wait(self, seconds: float) -> None:
        """Time passes, with a poll of everything every 30 s that decides nothing new but what is due."""
        while seconds > 0:
            self.clock.sleep(round(min(30, seconds) * SECOND))
            seconds -= 30
            self.round()

    def write(self, stream: str, event: types.Event) -> int:
        """Append one event of ours."""
        return self.record.append_many([Batch(stream, [event])])[0]

    def adopt(self, policy: Policy) -> None:
        """From now on this policy decides."""
        self.policy = policy
        self.write(f"source/{SOURCE}", types.PolicyAdopted(source=SOURCE, policy=dump_policy(policy)))

    def request(self, name: str, **task: Any) -> str:
        """Somebody wants a run; its id."""
        configuration = msgspec.json.encode({"type": "task", "name": name, "commands": ["true"], **task})
        request = types.RunRequested(
            run_id=f"run-{name}",
            provider="dstack",
            project="main",
            name=name,
            configuration=configuration,
            submitter="ada",
        )
        self.write(f"run/run-{name}", request)
        return f"run-{name}"

    def start(self, name: str, machine: str) -> None:
        """The provider has the run, and runs it on this machine, which is new unless it is there."""
        taken = types.SubmitSucceeded(
            run_id=f"run-{name}", provider="dstack", provider_id=provider_id(name), name=name, sent=None
        )
        self.write(f"run/run-{name}", taken)
        self.runs[name] = run_item(name, "running", job(submission("running", hostname=machine, price=1.99)))
        self.machine(machine, "busy")

    def end(self, name: str, machine: str) -> None:
        """The run succeeded, and its machine is idle."""
        done = submission("done", hostname=machine, exit_status=0, reason="done_by_runner", finished=self._now)
        self.runs[name] = run_item(name, "done", job(done), reason="all_jobs_done")
        self.machine(machine, "idle")

    def lack(self, name: str) -> None:
        """The provider took the run, and has no machine for it."""
        self.start(name, "none")
        self.machines.pop("none")
        failed = submission("failed", reason="failed_to_start_due_to_no_capacity", finished=self._now)
        self.runs[name] = run_item(name, "failed", job(failed), reason="job_failed")

    def wish(self, machine: str) -> None:
        """Somebody wants the machine gone at once."""
        vm_id = self.vm_id(machine)
        wish = types.VmStopRequested(vm_id=vm_id, provider="dstack", project="main", provider_id="x", submitter="ada")
        self.write(f"vm/{vm_id}", wish)

    def machine(self, name: str, status: str, *, fleet: str = "shared", **more: Any) -> str:
        """A machine as the next poll lists it; its id."""
        created = self.machines[name]["_created"] if name in self.machines else self._now
        row = machine_item(name, status, hostname=name, fleet=fleet, created=created, **more)
        self.machines[name] = {**row, "_created": created}
        return self.vm_id(name)

    def gone(self, name: str) -> None:
        """The provider ended it."""
        taken = types.VmStopSucceeded(vm_id=self.vm_id(name), provider="dstack")
        self.write(f"vm/{self.vm_id(name)}", taken)
        self.machine(name, "terminated", finished=self._now, reason="terminated_by_user")

    def vm_id(self, name: str) -> str:
        return foreign_run_id("dstack", provider_id(f"machine {name}"))

    @property
    def _now(self) -> float:
        return (self.clock.now() - START) / SECOND

    def idle(self, name: str, seconds: float) -> None:
        """As `wait`, with samples that show the run's GPU idle."""
        for _ in range(round(seconds / 30)):
            block = pack([Sample(at=self.clock.now(), device="0", use=0)])
            sampled = types.SamplesRecorded(
                run_id=f"run-{name}", provider="dstack", provider_id=provider_id(name), source="dstack", block=block
            )
            self.write(f"run/run-{name}", sampled)
            self.wait(30)

    # -- what is recorded of it

    def poll(self) -> None:
        """A poll of all runs, and one of all machines."""
        rows = [{key: item[key] for key in item if key != "_created"} for item in self.machines.values()]
        for path, req, items in (
            ("/api/runs/list", {"project_name": "main", "limit": 100}, list(self.runs.values())),
            ("/api/instances/list", {"project_names": ["main"], "limit": 100}, rows),
        ):
            self.clock.sleep(SECOND // 10)
            body, question = json.dumps(items).encode(), json.dumps(req).encode()
            self.record.append_polls([poll_of(body, path=path, req=question, at=self.clock.now())])
        self.live.catch_up()

    def round(self) -> list[Decision]:
        """Poll, decide, and write the decisions down; what the provider does of them is up to the test."""
        self.poll()
        return self.decide()

    def decide(self) -> list[Decision]:
        made = self.decisions()
        stamped = [self.stamp(each) for each in made] if self.stamped else made
        for each in stamped:
            self.plant(each)
        self.live.catch_up()
        return made

    def decisions(self) -> list[Decision]:
        """The decisions that are due now."""
        self.live.catch_up()
        state = self.live.state
        return [each for each in decide(state, SOURCE, self.policy, self.clock.now()) if is_news(each, state.outbox)]

    def stamp(self, decision: Any) -> Any:
        """The decision as made from the world as it is now."""
        at = DecidedAt(position=self.live.position, at=self.clock.now(), software=SOFTWARE)
        return replace(decision, decided_at=at)

    def plant(self, decision: Any) -> int:
        """Write a decision down, right or wrong; its position."""
        self.clock.sleep(SECOND // 100)
        queued = isinstance(decision, types.RunHeld | types.RunPlaced | types.RunRequeued)
        return self.write(f"queue/{SOURCE}" if queued else subject_of(decision), decision)

    # -- the audit

    def audit(self, *, missing: bool = False, software: str = SOFTWARE) -> Auditor:
        """The audit of everything recorded so far."""
        auditor = Auditor(RecordFold(self.record, Fold(READINGS)), software, missing=missing)
        for _ in auditor.run(self.record.head().position):
            pass
        return auditor


def story(site: DecidedRecord) -> None:
    """All kinds of decisions: places, a wait, a refusal, a request made again, drains, a drain cancelled, stops of a
    run and of machines, an alert, a warning of idle GPUs and the stop after it.
    """
    site.adopt(BUDGET)
    for name in ("a", "b", "c"):
        site.request(name)
    site.round()
    site.start("a", "m1")
    site.start("b", "m2")
    site.round()
    site.end("a", "m1")
    site.round()  # c goes to m1
    site.start("c", "m1")
    site.round()
    site.request("dear", max_duration=48 * 3600, max_price=2)
    site.end("b", "m2")
    site.wait(60)
    site.wish("m1")
    site.round()
    site.end("c", "m1")
    site.wait(90)
    site.gone("m1")
    site.wait(7.5 * 60)  # m2 is drained
    site.request("late")
    site.decide()
    site.round()
    site.lack("late")
    site.wait(60)
    site.adopt(replace(BUDGET, budget_total=500_000))
    site.wait(120)
    site.adopt(replace(BUDGET, busy_idle_timeout=4 * MINUTE))
    site.request("slow")
    site.round()
    site.start("slow", "m2")
    site.idle("slow", 300)
