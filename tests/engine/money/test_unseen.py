"""Bills of what no poll saw, held against the truth, of a machine whose cloud and provider we play.

A truth is one machine with its runs, second by second. It is polled at whatever moments a test chooses, with the
answers that dstack would give then. So its bill can be compared with what the cloud charged, at any thinning.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st
from stenotest.dstack_history import START, DstackHistory, Item, job, run_item, submission
from stenotest.machines import HOST, machine_event, machine_item
from stenotest.whole_costs import cost_report, reconcile

from steno.engine.fold.fold import Fold
from steno.engine.money.bill import Bill
from steno.engine.money.costs import Costs, charges
from steno.engine.money.reconcile import Cause
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import fold_polls
from steno.engine.state.vm import Phase
from steno.engine.state.world import World
from steno.events.clock import SECOND

HOURLY = 1.99
BOOT = 40.0
"""Seconds until a machine is ready."""


@dataclass(frozen=True)
class Task:
    """A run: submitted, given the machine, over. Seconds."""

    name: str
    submitted: float
    assigned: float
    finished: float
    user: str = "ada"


@dataclass(frozen=True)
class Truth:
    """A machine, made for its first run, and what the cloud knows of it that dstack does not say."""

    tasks: Sequence[Task]
    terminating: float
    finished: float
    """dstack's `finished_at`."""
    created: float = 0.5
    """dstack's `created`."""
    charged_from: float = 0.5
    charged_to: float | None = None
    """None: to `finished`."""
    old: bool = False
    """As 0.19.37: no end of machines, no events, and `created` is written when the cloud's call has returned."""
    shown_from: float = field(default=0.5)
    """From when on rows show it."""

    @property
    def ready(self) -> float:
        return self.tasks[0].assigned

    @property
    def ledger(self) -> int:
        """The cloud's charge, micro-dollars."""
        return money((self.finished if self.charged_to is None else self.charged_to) - self.charged_from)

    def changes(self) -> list[tuple[float, str, str]]:
        """(seconds, status before, status after), as dstack's log has them."""
        moves = [(self.shown_from, "pending", "provisioning"), (self.ready, "provisioning", "busy")]
        for task, following in zip(self.tasks, (*self.tasks[1:], None), strict=True):
            moves.append((task.finished, "busy", "idle"))
            if following is not None:
                moves.append((following.assigned, "idle", "busy"))
        return [*moves, (self.terminating, "idle", "terminating"), (self.finished, "terminating", "terminated")]

    def machine(self, now: float) -> list[Item]:
        if now < self.shown_from:
            return []
        status = [after for at, _, after in self.changes() if at <= now][-1]
        over = status == "terminated" and not self.old
        more = {"created": self.created, "finished": self.finished if over else None, "old": self.old}
        return [machine_item("m", status, reason="idle_timeout" if status[:9] == "terminate" else None, **more)]

    def runs(self, now: float) -> list[Item]:
        stays = []
        for task in self.tasks:
            if now < task.submitted:
                continue
            on = now >= task.assigned or (task is self.tasks[0] and now >= self.created)
            done = now >= task.finished
            attempt = submission(
                "done" if done else "running" if on else "submitted",
                submitted=task.submitted,
                finished=task.finished if done else None,
                exit_status=0 if done else None,
                hostname=HOST if on else None,
                price=HOURLY if on else None,
            )
            theirs = round(((task.finished if done else now) - task.submitted) * HOURLY / 3600, 4) if on else 0.0
            status = "done" if done else "running" if on else "submitted"
            item = run_item(task.name, status, job(attempt), submitted=task.submitted, cost=theirs)
            stays.append({**item, "user": task.user})
        return stays[::-1]

    def polled(self, moments: Sequence[float], *, log: bool = False) -> DstackHistory:
        """The polls of these moments: runs, machines and, with `log`, the events."""
        story = DstackHistory()
        for now in sorted(moments):
            story.now = now
            story.listed(*self.runs(now))
            story.now = now + 0.02
            story.machines(*self.machine(now + 0.02))
            if log and not self.old:
                story.now = now + 0.04
                entries = [machine_event(*words, at, "m") for at, *words in self.changes() if at <= story.now]
                story.logged(*entries[::-1])
        return story


def money(seconds: float) -> int:
    return round(seconds * HOURLY / 3600 * 1_000_000)


def folded(story: DstackHistory) -> World:
    world = Fold(READINGS)
    for _ in fold_polls(world, story.polls()):
        pass
    return world.state


def billed(state: World) -> tuple[Bill, dict[str, int]]:
    """(the machine's bill, what each run costs by its name)."""
    bills = Costs(state).bills()
    costs = Costs(state).of_runs()
    (bill,) = bills.values()
    return bill, {run.name or "": costs[run.run_id] for run in state.runs.all() if run.run_id in costs}


def idle(bill: Bill) -> int:
    return sum(interval.cost for interval in bill.intervals if interval.phase is Phase.IDLE)


def near(cost: int, seconds: float, within: float = 0.05) -> bool:
    """True if a cost is that of this many seconds."""
    return abs(cost - money(seconds)) <= money(within)


# -- a record that nobody watched between submissions ----------------------------------------------------------------

SEVENTEEN = Truth(
    tasks=[
        Task("run-0", 0.0, BOOT, 60.0),
        *(
            Task(f"run-{n}", 90.0 + 60 * n, 90.5 + 60 * n, 103.0 + 60 * n, "bob" if n % 2 else "ada")
            for n in range(1, 17)
        ),
    ],
    terminating=1200.0,
    finished=1208.0,
)
"""Seventeen runs over one machine: 20 s for the run that made it (and 40 s to make it), 12.5 s for each other."""
SUBMITTED = [task.submitted + 0.1 for task in SEVENTEEN.tasks]
SEEN = [task.submitted + 5 for task in SEVENTEEN.tasks[::2][1:]]
"""`steno submit` polls when it submits; somebody looks in while eight of the runs are on the machine."""


def test_runs_that_no_poll_saw_cost_their_own_time() -> None:
    """Nine of seventeen runs came and went between two polls, the cold run that made the machine among them."""
    state = folded(SEVENTEEN.polled([*SUBMITTED, *SEEN, 1199.0, 1200.0, 1230.0]))
    bill, costs = billed(state)
    assert len(costs) == 17
    # From its submission: what of that was queueing nobody says without dstack's log; it was half a second.
    assert near(costs["run-0"], 59.5)
    assert all(near(costs[task.name], 12.75, within=0.3) for task in SEVENTEEN.tasks[1:])
    assert bill.cost == money(1207.5)
    assert near(idle(bill), 1200 - 60 - 16 * 12.75, within=16 * 0.3)
    by_user = {row.key: row.total_usd for row in cost_report(Costs(state), "user").rows}
    assert near(by_user["ada"], 59.5 + 8 * 12.75, within=2.4)
    assert near(by_user["bob"], 8 * 12.75, within=2.4)


def test_the_providers_log_gives_every_run_its_time_to_the_moment() -> None:
    """As before, and `events/list` read once at the end."""
    story = SEVENTEEN.polled([*SUBMITTED, *SEEN, 1199.0])
    story.lines += SEVENTEEN.polled([1230.0], log=True).lines
    bill, costs = billed(folded(story))
    assert costs == {"run-0": money(59.5)} | {task.name: costs[task.name] for task in SEVENTEEN.tasks[1:]}
    assert all(abs(costs[task.name] - money(12.5)) <= 1 for task in SEVENTEEN.tasks[1:])
    assert [interval.phase.value for interval in bill.intervals] == [
        "provisioning",
        *["busy", "idle"] * 17,
        "terminating",
    ]
    assert abs(idle(bill) - money(1200 - 60 - 16 * 12.5)) <= 17


def test_no_unseen_busy_time_is_explained_as_queueing() -> None:
    """dstack charges each run from its submission: what is left is what it waited, and rounding."""
    state = folded(SEVENTEEN.polled([*SUBMITTED, *SEEN, 1199.0, 1200.0, 1230.0]))
    _, everything = reconcile(Costs(state))
    amounts = {line.cause: line.amount for line in everything.lines}
    assert set(amounts) <= {Cause.QUEUEING, Cause.ROUNDING, Cause.IDLE, Cause.TEAR_DOWN}
    assert abs(amounts.get(Cause.QUEUEING, 0)) <= money(17 * 0.6)
    assert sum(amounts.values()) == everything.ours - (everything.theirs or 0)


# -- at any thinning -------------------------------------------------------------------------------------------------


@st.composite
def truths(draw: st.DrawFn) -> Truth:
    """Any machine: short and long runs, calls to the cloud that take their time."""
    old = draw(st.booleans())
    call, ends = draw(st.sampled_from((0.05, 0.6, 3.8))), draw(st.sampled_from((0.0, 0.4, 6.0)))
    pause = draw(st.sampled_from((0.1, 2.0)))
    created = pause + call if old else pause
    tasks = [Task("run-0", 0.0, pause + call + BOOT, pause + call + BOOT + draw(st.integers(1, 60)))]
    for number in range(1, draw(st.integers(1, 6))):
        submitted = tasks[-1].finished + draw(st.sampled_from((-0.5, 1, 20, 90)))
        assigned = max(submitted, tasks[-1].finished) + draw(st.sampled_from((0.3, 1.5)))
        tasks.append(Task(f"run-{number}", submitted, assigned, assigned + draw(st.integers(1, 60))))
    terminating = tasks[-1].finished + draw(st.integers(2, 120))
    finished = terminating + 8.0
    return Truth(
        tasks=tasks,
        terminating=terminating,
        finished=finished,
        created=created,
        charged_from=pause + draw(st.sampled_from((0.0, 0.5, 1.0))) * call,
        charged_to=finished - ends,
        shown_from=pause + call,
        old=old,
    )


def moments_of(truth: Truth, every: float, kept: int, seed: int) -> list[float]:
    """Polls of a recording thinned to every tenth, or to a few, and the last two."""
    chosen = random.Random(seed)
    last = truth.finished + 5
    all_of_them = [chosen.random() + every * number for number in range(int(last / every))]
    some = all_of_them[::10] if kept == 0 else chosen.sample(all_of_them, min(kept, len(all_of_them)))
    return [*some, last]


@given(truths(), st.sampled_from((1.0, 2.5)), st.integers(0, 6), st.integers(0, 99), st.booleans())
@example(SEVENTEEN, 1.0, 1, 0, False)
def test_the_clouds_own_bill_is_within_the_bounds_at_any_thinning(
    truth: Truth, every: float, kept: int, seed: int, log: bool
) -> None:
    """Law: whatever of a history is polled, also at every moment on the way; and to the cent what it costs."""
    moments = sorted(moments_of(truth, every, kept, seed))
    world = Fold(READINGS)
    for number, poll in truth.polled(moments, log=log).polls():
        for _ in fold_polls(world, [(number, poll)]):
            pass
        for bill in Costs(world.state).bills().values():
            now = ((world.state.last_at or 0) - START) / SECOND
            charged_to = truth.finished if truth.charged_to is None else truth.charged_to
            charged = money(min(now, charged_to) - truth.charged_from)
            assert bill.low - 1 <= charged <= bill.high + 1
    bill, _ = billed(world.state)
    if not truth.old or kept == 0:
        assert abs(bill.cost - truth.ledger) <= 10_000
    assert sum(interval.cost for interval in bill.intervals) == bill.cost


@given(truths(), st.integers(0, 6), st.integers(0, 99), st.booleans())
def test_every_run_pays_its_time_at_any_thinning(truth: Truth, kept: int, seed: int, log: bool) -> None:
    """Law: never less than its own time on the machine, with the provider's log no more either; else at most from its
    submission, or the end of the run before.
    """
    state = folded(truth.polled(moments_of(truth, 1.0, kept, seed), log=log))
    bill, costs = billed(state)
    before = 0.0
    for task in truth.tasks:
        since = truth.created if task is truth.tasks[0] else task.assigned
        least = task.finished - since
        most = least if log and not truth.old else task.finished - max(min(since, task.submitted), before)
        assert money(least) - 2 <= costs[task.name] <= money(most) + 2
        before = task.finished
    assert sum(costs.values()) + sum(line.cost for line in charges(bill) if line.run_id is None) == bill.cost


@given(truths(), st.integers(1, 6), st.integers(0, 99), st.randoms(use_true_random=False))
def test_events_give_one_bill_in_whatever_order_they_arrive(
    truth: Truth, kept: int, seed: int, chosen: random.Random
) -> None:
    """Law: late, early, one by one, twice; also before any poll shows the machine."""
    moments = sorted(moments_of(truth, 1.0, kept, seed))
    whole = truth.polled(moments)
    entries = [machine_event(*words, at, "m") for at, *words in truth.changes()]
    whole.now += 1
    whole.logged(*entries)
    mixed = truth.polled(moments)
    chosen.shuffle(entries)
    for item in (*entries, *entries):
        line = DstackHistory(now=0).logged(item).lines[0]
        place = chosen.randint(0, len(mixed.lines))
        mixed.lines.insert(place, {**line, "t": mixed.lines[min(place, len(mixed.lines) - 1)]["t"]})
    mixed.lines.append(whole.lines[-1])
    assert billed(folded(mixed)) == billed(folded(whole))


# -- a machine that the cloud took away ------------------------------------------------------------------------------


def vanished(*, log: bool) -> DstackHistory:
    """Made at 0.5 s, gone at 19.5 s of its life; dstack notices at 28 s, gives the run up at 190 s, the machine idles
    out at 215 s.
    """
    story = DstackHistory()
    for now in (1.0, 10.0, 16.0, 22.0, 28.0, 100.0, 190.0, 200.0, 216.0, 230.0):
        story.now = now
        over = now >= 190
        job_status = "failed" if over else "running" if now >= 16 else "provisioning"
        attempt = submission(
            job_status,
            submitted=0,
            finished=190 if over else None,
            hostname=HOST,
            price=HOURLY,
            reason="instance_unreachable" if over else None,
        )
        cost = round(min(now, 190) * HOURLY / 3600, 4)
        story.listed(run_item("lost", "failed" if over else "running", job(attempt), cost=cost, reason="job_failed"))
        status = ["provisioning", "busy", "idle", "terminating"][sum(now >= moment for moment in (12, 190, 215))]
        story.machines(machine_item("m", status, created=0.5, unreachable=now >= 28))
        if log:
            story.logged(
                machine_event("pending", "provisioning", 0.5, "m"), machine_event("provisioning", "busy", 12, "m")
            )
    return story


def test_a_machine_the_cloud_took_away_has_the_truth_within_its_bounds() -> None:
    """It lived 19.5 s; dstack's run is charged 190 s."""
    for log in (False, True):
        bill, _ = billed(folded(vanished(log=log)))
        assert bill.low <= money(19.5) <= bill.high
    assert bill.low == money(11.5)  # dstack's log dates its last certain answer


def test_what_a_machine_that_fell_silent_is_billed_is_no_idle_time_and_no_runs() -> None:
    """Its presence is unknown: `unconfirmed`, and named so where dstack charges the run."""
    state = folded(vanished(log=True))
    bill, costs = billed(state)
    assert [interval.phase.value for interval in bill.intervals] == [
        "provisioning",
        "busy",
        "unconfirmed",
        "terminating",
    ]
    assert near(costs["lost"], 27.5)
    (run,), everything = reconcile(Costs(state))
    assert near(-{line.cause: line.amount for line in run.lines}[Cause.SILENT], 190 - 28)
    assert Cause.IDLE not in {line.cause for line in everything.lines}


def test_a_machine_that_answers_again_was_there_all_along() -> None:
    """Silent for a while, and then heard of: the time is the run's, and the low bound goes on."""
    story = DstackHistory()
    attempt = submission("running", submitted=0, hostname=HOST, price=HOURLY)
    for now, silent in ((1.0, False), (20.0, True), (40.0, False), (60.0, False)):
        story.now = now
        story.listed(run_item("flap", "running", job(attempt)))
        story.machines(machine_item("m", "busy", created=0.5, unreachable=silent))
    bill, costs = billed(folded(story))
    assert [interval.phase for interval in bill.intervals] == [Phase.BUSY]
    assert costs["flap"] == bill.cost
    assert near(bill.low, 59.5, within=0.6)
