"""Changes in a range: every end in one group, every micro-dollar with one user, and machines that vanish."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from stenotest.dstack_history import START, job, run_item, submission
from stenotest.machines import MachineHistory, machine_histories
from stenotest.telling import STEP, Telling

from steno.engine.state.policy import Billing, OwnerLimit, Policy, Rate
from steno.events.clock import SECOND, parse_time
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections.answers.changes import ChangeRow, Changes, changes, policy_words
from steno.projections.answers.costs import costs
from steno.projections.answers.explain import explain
from steno.projections.answers.incidents import incidents
from steno.projections.answers.output_cause import OutputCauses
from steno.projections.read_models.projector import caught_up
from steno.projections.read_models.reader_pool import Look
from steno.projections.read_models.run_query import UnknownValue
from steno.projections.read_models.store import ProjectionStore
from steno.projections.read_models.view import View

Polls = Callable[[str], tuple[Poll, ...]]
Recorded = Callable[[Path, Sequence[Poll]], Record]


def look_at(record: Record, store: ProjectionStore) -> Look:
    view = View(store)
    return Look(record=record, view=view, position=view.position, now=(view.last_at or START) + SECOND)


def of_kind(answer: Changes, kind: str) -> list[ChangeRow]:
    return [row for row in answer.changes if row.kind == kind]


def subjects_of(answer: Changes) -> list[str]:
    """The runs that ended."""
    return [subject for row in of_kind(answer, "run") for subject in row.subjects]


@settings(max_examples=20)
@given(machine=machine_histories(), cuts=st.lists(st.integers(0, 60 * STEP), max_size=4))
def test_ranges_side_by_side_sum_to_the_bills(machine: MachineHistory, cuts: list[int]) -> None:
    """The money that a shorter range leaves out was spent before it: nothing is counted twice or lost, whoever pays."""
    with tempfile.TemporaryDirectory() as folder, Telling(Path(folder) / "record.db") as telling:
        for number, row in enumerate(machine.items):
            run = submission("running", hostname=row.get("hostname"), submitted=STEP)
            telling.look([run_item("a-run", "running", job(run), submitted=STEP)] if number else (), [row])
        look = look_at(telling.record, telling.caught_up())
        whole = changes(look, 0)
        assert whole.total_usd == costs(look.view.store, "vm").report.total.total_usd
        spending = {row.name: row.cost_usd for row in of_kind(whole, "money")}
        assert whole.total_usd == sum(spending.values())
        spent = [changes(look, START + cut * SECOND).total_usd for cut in sorted(cuts)]
        assert [whole.total_usd, *spent] == sorted([whole.total_usd, *spent], reverse=True)
        for user in (name for name in spending if not name.startswith("(")):
            mine = changes(look, 0, user)
            assert mine.total_usd == spending[user] == sum(row.cost_usd or 0 for row in of_kind(mine, "machine"))


@settings(max_examples=20)
@given(
    ends=st.lists(
        st.tuples(st.sampled_from(["train", "eval"]), st.sampled_from([0, 1, 2]), st.sampled_from(["admin", "bob"])),
        max_size=8,
    ),
    since=st.integers(0, 50 * STEP),
)
def test_every_end_is_in_one_group_and_users_part_them(ends: list[tuple[str, int, str]], since: int) -> None:
    with tempfile.TemporaryDirectory() as folder, Telling(Path(folder) / "record.db") as telling:
        telling.look()
        for number, (name, status, user) in enumerate(ends):
            over = submission("failed" if status else "done", exit_status=status, finished=number)
            words = {"status": "failed", "reason": "job_failed"} if status else {"status": "done"}
            item = run_item(name, words["status"], job(over), label=str(number), reason=words.get("reason"))
            telling.look([{**item, "user": user}])
        look = look_at(telling.record, telling.caught_up())
        begin = START + since * SECOND
        answer = changes(look, begin)
        ids = subjects_of(answer)
        ended = {f"run/{row.run_id}" for row in look.view.store.runs.all() if row.ended}
        assert len(ids) == len(set(ids))
        assert set(ids) <= ended
        assert since or set(ids) == ended
        states = [row.state == "succeeded" for row in of_kind(answer, "run")]
        assert states == sorted(states), "those without success come first"
        of_users = [changes(look, begin, user) for user in {user for _, _, user in ends}]
        assert sum(part.runs_submitted for part in of_users) == answer.runs_submitted
        assert sorted(subject for part in of_users for subject in subjects_of(part)) == sorted(ids)


@pytest.fixture(scope="module")
def vanished(recording: Polls, recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A genuine server lost its machine at 13:41:56 and said so a minute later."""
    return recorded(tmp_path_factory.mktemp("changes") / "record.db", recording("dstack-0.22.5/unreachable"))


def since(record: Record, moment: str, user: str | None = None) -> Changes:
    with caught_up(record) as store:
        return changes(look_at(record, store), parse_time(moment), user)


def test_a_machine_that_vanished_is_named_with_when_it_was_last_reached(vanished: Record) -> None:
    answer = since(vanished, "2026-11-20T13:00:00Z")
    (machine,) = of_kind(answer, "machine")
    assert (machine.state, machine.user) == ("vanished", "admin")
    assert "vanished at 2026-11-20T13:41:56Z, last reached at 2026-11-20T13:41:55Z" in machine.what
    assert machine.what.endswith("still billed")
    assert [(note.state, note.name) for note in of_kind(answer, "anomaly")] == [("unreachable", "lab-fleet-0")]
    (run,) = of_kind(answer, "run")
    assert (run.name, run.state) == ("spot-run", "failed")
    assert "lost the connection" in run.what


def test_a_machine_whose_health_check_fails_is_news_and_explains_its_run(
    recording: Polls, recorded: Recorded, tmp_path: Path
) -> None:
    """A genuine record in which the server says so while a run is on the machine."""
    bad = b'"status":"busy","unreachable":false,"health_status":"failure"'
    polls = recording("dstack-0.22.5/success")
    ill = [replace(poll, body=(poll.body or b"").replace(bad.replace(b"failure", b"healthy"), bad)) for poll in polls]
    record = recorded(tmp_path / "record.db", ill)
    answer = since(record, "2026-11-01")
    (note,) = of_kind(answer, "anomaly")
    assert (note.state, note.what) == ("unhealthy", "the health check of its provider says failure")
    with caught_up(record) as store:
        look = look_at(record, store)
        (run,) = look.view.store.runs.all()
        explained = explain(record, look.view, run, look.now, OutputCauses(None))
    assert [anomaly.kind for anomaly in explained.anomalies] == ["unhealthy"]


def test_what_came_before_the_range_is_left_out(vanished: Record) -> None:
    answer = since(vanished, "2026-11-20T13:45:30Z")
    assert answer.runs_submitted == 0
    assert {row.kind for row in answer.changes} == {"money"}
    assert 0 < answer.total_usd < since(vanished, "2026-11-20T13:00:00Z").total_usd
    with pytest.raises(UnknownValue, match="known: admin"):
        since(vanished, "2026-11-20T13:00:00Z", "nobody")


def test_incidents_of_a_range_and_of_a_user_are_those_of_the_whole_list(vanished: Record) -> None:
    with caught_up(vanished) as store:
        look = look_at(vanished, store)
        whole = incidents(look)
        assert whole.anomalies == incidents(look, since=0).anomalies == incidents(look, user="admin").anomalies
        for note in whole.anomalies:
            assert note in incidents(look, since=note.at).anomalies
            assert note not in incidents(look, since=(note.at or 0) + 1).anomalies


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (Policy(), ""),
        (Policy(idle_timeout=300 * SECOND), "vms.idle_timeout 10m → 5m"),
        (Policy(max_vms=None, budget_total=5_000_000), "vms.max 3 → no limit, budget.total off → $5.00"),
        (Policy(thresholds=(500, 900)), "budget.alerts 80% → 50% 90%"),
        (Policy(rates=(Rate(gpu="MI300X", hourly=2_500_000),)), "rates off → MI300X $2.50/h"),
        (
            Policy(limits=(OwnerLimit(owner="label/team=a/b", budget=5_000_000, runs=2),)),
            "limits.label.team=a/b.budget off → $5.00, limits.label.team=a/b.runs off → 2",
        ),
        (
            Policy(billing=(Billing(backend="hotaisle", minimum=60 * SECOND),)),
            "billing.hotaisle.minimum off → 1m, billing.hotaisle.granularity off → 0s",
        ),
        (Policy(free=True, mode="pool"), "vms.mode provider → pool, free machines False → True"),
    ],
)
def test_settings_are_named_as_users_write_them(after: Policy, words: str) -> None:
    assert policy_words(Policy(), after) == words


def test_of_limits_only_those_that_changed_are_named() -> None:
    ada, bob = (OwnerLimit(owner=f"user/{name}", machines=2, daily=20_000_000) for name in ("ada", "bob"))
    before, after = Policy(limits=(ada, bob)), Policy(limits=(ada, replace(bob, machines=3, daily=None)))
    assert policy_words(before, after) == "limits.user.bob.daily $20.00 → off, limits.user.bob.machines 2 → 3"


def test_a_setting_that_changed_is_listed_once_with_its_time() -> None:
    with tempfile.TemporaryDirectory() as folder, Telling(Path(folder) / "record.db") as telling:
        policies = [Policy(), replace(Policy(), max_vms=5), replace(Policy(), max_vms=5, share="user")]
        for policy in policies:
            telling.look()
            telling.adopted(policy)
        telling.look()
        answer = changes(look_at(telling.record, telling.caught_up()), START)
        settings_then = of_kind(answer, "setting")
        assert [row.what for row in settings_then] == ["vms.share any → user", "vms.max 3 → 5"]
        late = changes(look_at(telling.record, telling.store), settings_then[0].at or 0)
        assert [row.what for row in of_kind(late, "setting")] == ["vms.share any → user"]
