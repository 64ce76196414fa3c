"""The cost of a job: the one formula of plan, budget and bill; GPUs without a rate; suspended time; runaway jobs."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.slurm_polls import START, clock, poll

from steno.engine.decide.budget import committed, worst_case
from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import Until
from steno.engine.fold.record_fold import RecordFold
from steno.engine.providers.registry import READINGS
from steno.engine.providers.slurm.allocation import price_of, units_of
from steno.engine.providers.slurm.cluster import Cluster, NodePool
from steno.engine.providers.slurm.plan import Request, make
from steno.engine.providers.slurm.reading import SlurmReading
from steno.engine.replay.replay import fold_polls, open_trace, replay_polls, replay_record, world_of
from steno.engine.replay.result import Replay
from steno.engine.state.changes import AnomalyKind
from steno.engine.state.policy import HOUR, Policy, Rate, list_price
from steno.engine.state.vm import Pause, paused
from steno.engine.state.world import World, dump, load
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND, SystemClock
from steno.events.poll import Poll
from steno.events.store.record import Record

HERE = Path(__file__).parent
RATES = '{"a100":100,"cpu":1,"usd":0.01}'
ENV = ("env", "STENO_CLUSTER=lab", f"STENO_RATES={RATES}")
SQUEUE = (*ENV, "squeue", "-h", "-o", "%i|%T|%r|%V|%N")
SACCT = (
    *ENV, "sacct", "-X", "-D", "-P", "-n", "-j", "7", "-o",
    "JobID,State,ExitCode,Submit,Start,End,Suspended,Timelimit,NodeList,AllocTRES",
)  # fmt: skip


# -- rates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tres", "dollars", "why"),
    [
        ("cpu=8,gres/gpu:A100=2,gres/gpu=2", "2.08", None),  # another case than the table's
        ("cpu=8,gres/gpu:a100=2,gres/gpu=2,billing=5", "2.08", None),
        ("billing=40,cpu=8,gres/gpu=2", "0.4", None),  # untyped: Slurm's own figure
        ("billing=40,cpu=8,gres/gpu:h200=2,gres/gpu=2", "0.4", None),
        ("billing=40,cpu=8,gres/gpu:a100=1,gres/gpu:h200=1,gres/gpu=2", "0.4", None),
        ("cpu=8,gres/gpu=2", None, "no rate for gpu"),
        ("cpu=8,gres/gpu:h200=2,gres/gpu=2", None, "no rate for h200"),
        ("cpu=8,gres/gpu:a100=1,gres/gpu=2", None, "no rate for gpu"),
        ("billing=40,cpu=8", "0.08", None),
        ("mem=4G,node=1", None, "no rate for cpu"),
    ],
)
def test_gpus_are_never_free_in_silence(tres: str, dollars: str | None, why: str | None) -> None:
    """A rate in any case; else Slurm's `billing`; else no price, and why. A rate of the CPUs alone prices no GPU."""
    pairs = dict(pair.split("=") for pair in tres.split(","))
    expected = None if dollars is None else round(float(dollars) * DOLLAR)
    assert price_of(pairs, RATES) == (expected, why)
    assert price_of(pairs, None) == (None, None)


_counts = st.dictionaries(st.sampled_from(["a100", "A100", "h200", "gpu"]), st.integers(0, 16), max_size=3)
_rates = st.dictionaries(st.sampled_from(["a100", "A100", "H200", "gpu", "cpu"]), st.integers(0, 1000), max_size=4)


@given(gpus=_counts, cpus=st.integers(0, 128), rates=_rates)
def test_the_list_price_is_the_sum_or_unknown(gpus: dict[str, int], cpus: int, rates: dict[str, float]) -> None:
    """Never less than any of its parts, and unknown where a GPU has no rate."""
    price = list_price(gpus, {"cpu": cpus}, rates)
    here = {
        name: rates.get(name, next((rates[known] for known in rates if known.lower() == name.lower()), None))
        for name in gpus
    }
    if any(rate is None and gpus[name] for name, rate in here.items()):
        assert price is None
    elif price is None:
        assert "cpu" not in rates
        assert not any(rate is not None for rate in here.values())
    else:
        assert price == cpus * rates.get("cpu", 0) + sum(gpus[name] * (rate or 0) for name, rate in here.items())


@given(
    gpu=st.sampled_from(["a100", "A100", "h200", "gpu"]),
    gpus=st.integers(1, 8),
    nodes=st.integers(1, 4),
    cpus=st.integers(1, 16),
    minutes=st.integers(1, 600).map(lambda tens: tens * 10),
)
def test_plan_budget_and_bill_agree(gpu: str, gpus: int, nodes: int, cpus: int, minutes: int) -> None:
    """For one job: the service units of its plan, the worst case of the budget, and what accounting is billed by."""
    table = {"a100": 100.0, "gpu": 7.0, "cpu": 1.5}
    task = {
        "commands": ["true"], "nodes": nodes, "max_duration": f"{minutes}m",
        "resources": {"gpu": f"{gpu}:{gpus}", "cpu": cpus},
    }  # fmt: skip
    terms = SlurmReading().terms(json.dumps(task).encode(), "me")
    policy = Policy(assumed=tuple(Rate(gpu=name, hourly=round(rate * DOLLAR)) for name, rate in table.items()))
    worst = worst_case(terms, policy, World(rules="current")).price
    typed = {} if gpu == "gpu" else {f"gres/gpu:{gpu}": str(gpus * nodes)}
    billed = units_of({"cpu": str(cpus * nodes), "gres/gpu": str(gpus * nodes), "node": str(nodes), **typed}, table)
    assert worst == (None if billed is None else round(billed * DOLLAR))
    pool = NodePool(partition="p", gpu=gpu, gpus_per_node=8, nodes=4, cpus=64, memory=512_000)
    (first, *_) = make(
        Request(gpus=gpus, minutes=minutes), Cluster(pools=(pool,), partitions=("p",)), (), table
    ).strategies
    planned = units_of(
        {"cpu": str(first.cpus), "gres/gpu": str(gpus), "node": "1", **{n: str(gpus) for n in typed}}, table
    )
    assert first.units == (None if planned is None else pytest.approx(planned * minutes / 60))
    assert (first.units is None) == first.why.endswith(f"no rate for {gpu}")


# -- bills of recordings --------------------------------------------------------------------------------------------


def row(state: str, end: str, suspended: str = "00:00:00", limit: str = "01:00:00") -> str:
    """The job began at 0 and has 36 A100 and a CPU."""
    return f"7|{state}|0:0|{clock(0)}|{clock(0)}|{end}|{suspended}|{limit}|n1|cpu=1,gres/gpu:A100=36,gres/gpu=36\n"


def replayed(polls: list[Poll]) -> Replay:
    return replay_polls(list(enumerate(polls, 1)))


HOURLY = 36_010_000
"""36 × 100 + 1 units of a cent: 10,002.8 micro-dollars a second."""


def test_a_table_in_lower_case_prices_upper_case_gpus() -> None:
    """The recording of two A100 for an hour: 208 units of a cent; with the CPUs' rate alone it had cost $0.08."""
    replay = replay_polls(list(open_trace(HERE / "rates-upper-case.jsonl")))
    (bill,) = replay.bills.values()
    assert (bill.cost, bill.low, bill.high) == (2_080_000, 2_080_000, 2_080_000)


def test_suspended_time_is_not_charged() -> None:
    """100 s, of which it was suspended from 20 to 60; its bill is that of 60 s, in intervals that sum exactly."""
    polls = []
    for second in range(0, 100, 10):
        away = max(0, min(second, 60) - 20)
        state = "SUSPENDED" if 20 < second <= 60 else "RUNNING"
        polls.append(poll(second, SQUEUE, f"7|{state}|None|{clock(0)}|n1\n"))
        polls.append(poll(second + 1, SACCT, row(state, "Unknown", f"00:00:{away:02}")))
    polls += [poll(101, SQUEUE, ""), poll(102, SACCT, row("COMPLETED", clock(100), "00:00:40"))]
    for count in range(2, len(polls) + 1, 2):
        (bill,) = replayed(polls[:count]).bills.values()
        assert sum(interval.cost for interval in bill.intervals) == bill.cost
        assert bill.low <= bill.cost <= bill.high
    (bill,) = replayed(polls).bills.values()
    assert bill.cost == bill.low == bill.high == round(60 * SECOND * HOURLY / HOUR)
    free = [interval for interval in bill.intervals if interval.hourly == 0]
    (stretch,) = free
    assert stretch.cost == 0
    assert stretch.until is not None
    assert stretch.until - stretch.since == 40 * SECOND
    assert abs(stretch.since - (START + 20 * SECOND)) <= 12 * SECOND, "it lies between the polls that show it"


def test_a_job_cancelled_while_suspended_ends_where_it_was_suspended() -> None:
    """22.05 dates its end back to that, and takes the suspended time back."""
    polls = [
        poll(0, SQUEUE, f"7|RUNNING|None|{clock(0)}|n1\n"),
        poll(1, SACCT, row("RUNNING", "Unknown")),
        poll(40, SACCT, row("SUSPENDED", "Unknown", "00:00:30")),
        poll(50, SQUEUE, ""),
        poll(51, SACCT, row("CANCELLED by 0", clock(10))),
    ]
    (bill,) = replayed(polls).bills.values()
    assert bill.cost == bill.low == bill.high == round(10 * SECOND * HOURLY / HOUR)


@given(data=st.data())
def test_pauses_last_as_long_as_the_provider_counts(data: st.DataObject) -> None:
    """However its count moves between polls, they lie within the life, in order and apart, and sum to the count."""
    since, until, known = 0, 0, ()
    for _ in range(data.draw(st.integers(1, 6))):
        low, until = until, until + data.draw(st.integers(1, 50))
        total = data.draw(st.integers(0, until + 5))
        known = paused(known, total, since=since, low=low, until=until)
        assert sum(pause.until - pause.since for pause in known) == min(total, until)
        edges = [edge for pause in known for edge in (pause.since, pause.until)]
        assert edges == sorted(set(edges))
        assert not edges or (edges[0] >= since and edges[-1] <= until)


def test_a_pause_goes_on_where_it_was() -> None:
    """Seen again with a greater count, it grows at its end; a pause that has ended does not."""
    first = paused((), 3, since=0, low=10, until=20)
    assert first == (Pause(since=17, until=20),)
    assert paused(first, 8, since=0, low=20, until=30) == (Pause(since=17, until=25),)
    assert paused(first, 8, since=0, low=21, until=40) == (Pause(since=17, until=20), Pause(since=35, until=40))


def runaway(until: int, *, back: int | None = None, heard: bool = True) -> list[Poll]:
    """Accounting says RUNNING for ever; the controller lists the job up to 60 s, and from `back` on."""
    polls = []
    for second in range(0, until, 20):
        listed = second <= 60 or (back is not None and second >= back)
        polls.append(poll(second, SQUEUE, f"7|RUNNING|None|{clock(0)}|n1\n" if listed else ""))
        polls.append(poll(second + 1, SACCT, row("RUNNING", "Unknown") if heard or second < 100 else None))
    return polls


def suspected(replay: Replay) -> list[str]:
    return [anomaly.detail for anomaly in replay.anomalies if anomaly.kind is AnomalyKind.ORPHAN_SUSPECTED]


def test_the_low_bound_of_a_runaway_job_stops_where_the_controller_last_listed_it() -> None:
    """Its bill goes on, and an anomaly says so after ten minutes: not for the usual lag of a second."""
    early = replayed(runaway(600))
    assert not suspected(early)
    replay = replayed(runaway(1200))
    assert suspected(replay) == [
        "still RUNNING, and its run has not been listed by the slurm/lab controller for 10 minutes"
    ]
    (bill,) = replay.bills.values()
    assert bill.open
    assert bill.low == round(60 * SECOND * HOURLY / HOUR)
    assert bill.cost > round(1100 * SECOND * HOURLY / HOUR)
    assert bill.high >= bill.cost
    assert sum(interval.cost for interval in bill.intervals) == bill.cost


@pytest.mark.parametrize("back", [None, 1000])
def test_a_record_finds_the_same_runaway(tmp_path: Path, back: int | None) -> None:
    """Its fold skips answers that only repeat, but none that ends the ten minutes; a snapshot continues it."""
    with Record.open(
        tmp_path / "record.db", clock=SystemClock(), write=True, create=True, shapes=READINGS.shape
    ) as record:
        polls = runaway(1600, back=back)
        at = [(added.position, poll) for added, poll in zip(record.append_polls(polls), polls, strict=True)]
        whole = replay_record(record).to_json()
        assert whole == replay_polls(at).to_json()
        assert len(whole["anomalies"]) == 1
        world = Fold(READINGS, state=load(dump(world_of(record, until=Until(position=at[40][0])).state)))
        RecordFold(record, world).run()
        assert Replay(world).to_json() == whole


def test_a_job_that_is_listed_again_is_no_runaway() -> None:
    """A controller that had lost its state for a while: its machine is busy as before, its low bound goes on."""
    replay = replayed(runaway(1600, back=1000))
    (vm,) = replay.vms
    (bill,) = replay.bills.values()
    assert vm.state.value == "busy"
    assert bill.low > round(1500 * SECOND * HOURLY / HOUR)


def test_silence_of_accounting_makes_no_runaway() -> None:
    """It says nothing, so it does not say that the job runs: its record of the end is to come."""
    assert not suspected(replayed(runaway(1200, heard=False)))


def test_what_ends_after_all_is_billed_by_its_end() -> None:
    """As after `sacctmgr show runawayjobs`: accounting's end is exact again."""
    polls = [*runaway(1200), poll(1300, SACCT, row("COMPLETED", clock(70)))]
    (bill,) = replayed(polls).bills.values()
    assert bill.cost == bill.low == bill.high == round(70 * SECOND * HOURLY / HOUR)


@pytest.mark.parametrize(
    ("limit", "left"), [("01:00:00", 3000), ("3-00:00:00", 258_600), ("UNLIMITED", 86_430), ("", 86_430)]
)
def test_a_foreign_job_commits_what_is_left_of_its_own_limit(limit: str, left: int) -> None:
    """It began ten minutes ago. Not the assumed 24 h with an idle timeout, unless it has no limit."""
    polls = [poll(0, SQUEUE, f"7|RUNNING|None|{clock(0)}|n1\n"), poll(1, SACCT, row("RUNNING", "Unknown", limit=limit))]
    world = Fold(READINGS)
    list(fold_polls(world, list(enumerate(polls, 1))))
    amount = committed(world.state, Policy(), START + 600 * SECOND)
    assert amount == pytest.approx(left * SECOND * HOURLY / HOUR, rel=1e-5)


# -- whose time it is --------------------------------------------------------------------------------------------------


def attempt_row(state: str, submitted: int, started: int | None = None, ended: int | None = None) -> str:
    start, end = ("Unknown" if at is None else clock(at) for at in (started, ended))
    has = "|" if started is None else "n1|cpu=1,gres/gpu:a100=1,gres/gpu=1"
    return f"7|{state}|0:0|{clock(submitted)}|{start}|{end}|00:00:00|01:00:00|{has}"


def test_an_attempt_is_on_its_own_machine_though_the_one_before_ended_as_it_was_submitted() -> None:
    """A requeue is submitted in the second in which the attempt before ended, on the same node."""
    first = attempt_row("NODE_FAIL", 0, 1, 31)
    later = [attempt_row("PENDING", 31), attempt_row("RUNNING", 31, 900), attempt_row("CANCELLED", 31, 900, 907)]
    answers = [attempt_row("RUNNING", 0, 1), *(f"{first}\n{line}" for line in later)]
    polls = [(number, poll(at, SACCT, answers[number])) for number, at in enumerate((5, 40, 903, 910))]
    replay = replay_polls(polls).to_json()
    (run,) = replay["runs"]
    assert [vm["runs"] for vm in replay["vms"]] == [[run["run_id"]]] * 2
    assert run["vm_id"] == replay["vms"][1]["vm_id"]


def test_a_job_of_less_than_a_second_has_a_machine_and_costs_nothing() -> None:
    """It began and ended in the second of its submission."""
    replay = replay_polls([(1, poll(9, SACCT, attempt_row("COMPLETED", 3, 3, 3)))]).to_json()
    assert (replay["runs"][0]["cost_usd"], replay["vms"][0]["runs"]) == ("0.000000", [replay["runs"][0]["run_id"]])
