"""Answers of real servers about a machine: its life, timers, and what they take back, one corner each."""

import msgspec
import pytest
from stenotest.dstack_history import START, DstackHistory, Item
from stenotest.event_world import SOURCE, TAKEN, VM, EventWorld, drain, intended, on
from stenotest.machines import machine_item, placeholder

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.money.bill import bill_vm
from steno.engine.money.prices import Book
from steno.engine.providers.registry import READINGS
from steno.engine.state.changes import AnomalyKind
from steno.engine.state.states import VmReason, VmState
from steno.engine.state.world import idle_evidence
from steno.events import types
from steno.events.clock import SECOND

# -- life --------------------------------------------------------------------------------------------------------------


def test_a_row_without_a_price_is_no_machine_and_becomes_one_with_its_price() -> None:
    """Placeholders come and go; the machine's life is counted from `created` all the same."""
    story = EventWorld().rows(placeholder())
    assert not story.world.state.vms
    story.rows(machine_item(status="provisioning", hostname=None))
    assert (story.vm.state, story.vm.created, story.vm.first_at) == ("provisioning", START, story.at(10.01))
    other = EventWorld().rows(placeholder()).rows()
    assert (len(other.world.state.vms), other.anomalies) == (0, [])


def test_a_machine_that_went_without_a_finished_at_ended_between_two_polls() -> None:
    """0.19.37: the first terminated poll, at the earliest when the poll before was asked."""
    story = (
        EventWorld()
        .rows(machine_item(old=True))
        .rows(machine_item(status="terminated", reason="Idle timeout", old=True))
    )
    assert (story.vm.finished_at, story.vm.finished_low) == (story.at(10.01), story.at(5))
    assert story.vm.reason is VmReason.IDLE_TIMEOUT


def test_a_machine_that_was_over_before_anybody_looked_is_not_billed_to_the_day_we_came() -> None:
    """0.19.37 lists machines that went months ago: they lived as long as the runs we know on them."""
    day = 86_400
    gone = machine_item(status="terminated", created=-90 * day, old=True)
    story = EventWorld().rows(gone)
    assert (story.vm.finished_at, story.vm.finished_low, story.vm.unseen_end) == (
        story.vm.created,
        story.vm.created,
        True,
    )
    story.runs(on("old", "done", submitted=-90 * day - 60, finished=-89 * day))
    assert story.vm.finished_at == story.vm.finished_low == story.at(-89 * day)
    assert story.vm.first_at == story.at(5.01)


def test_a_price_that_changes_holds_from_the_poll_that_shows_it() -> None:
    """The first from `created` on."""
    story = EventWorld().rows(machine_item()).rows(machine_item(price=2.5)).rows(machine_item(price=2.5))
    assert [(price.at, price.low_at, price.hourly) for price in story.vm.prices] == [
        (START, START, 1_990_000),
        (story.at(10.01), story.at(5), 2_500_000),
    ]


def test_absurd_prices_are_no_prices() -> None:
    """Below zero, beyond reason, no number: named, and the last good one stands."""
    for price in (-1, 1e300, "free"):
        story = EventWorld().rows({**machine_item(), "price": price})
        assert (len(story.world.state.vms), story.anomalies) == (0, ["schema_drift"])
        story.rows(machine_item()).rows({**machine_item(), "price": price})
        assert [step.hourly for step in story.vm.prices] == [1_990_000]
        assert "schema_drift" in story.anomalies


@pytest.mark.parametrize("word", ["hibernating", "", None, 7])
def test_a_priced_machine_of_unknown_status_from_the_start_is_billed(word: object) -> None:
    """Its life is counted from `created` to its newest poll; that anything was charged is not certain."""
    odd = {**machine_item(), "status": word}
    story = EventWorld().rows(odd, after=60).rows(odd, after=3540)
    assert story.vm.state is VmState.UNCONFIRMED
    assert story.anomalies == ([] if word is None else ["schema_drift"])
    bill = bill_vm(story.vm, until=story.at(3600), book=Book())
    assert (bill.cost, bill.low, bill.high) == (1_990_000, 0, 1_990_000)


@pytest.mark.parametrize("status", ["provisioning", "idle", "busy", "terminating", "terminated"])
def test_the_first_known_status_places_a_machine_whose_status_was_unknown(status: str) -> None:
    """As if it had been shown so at first: nothing contradicts."""
    story = EventWorld().rows(machine_item(status="hibernating")).rows(machine_item(status=status))
    assert (story.vm.state, story.anomalies) == (VmState(status), ["schema_drift"])


def test_a_pending_row_with_a_price_is_no_machine_yet_and_costs_nothing() -> None:
    """A known word; an unknown one after it is billed."""
    story = EventWorld().rows(machine_item(status="pending"))
    assert (story.vm.state, story.vm.billed) == (VmState.REQUESTED, False)
    story.rows(machine_item(status="hibernating"))
    assert (story.vm.state, story.vm.billed) == (VmState.UNCONFIRMED, True)


def test_a_machine_that_does_not_answer_is_a_span_that_ends_only_where_it_answers() -> None:
    """A machine that is ending does not answer."""
    story = EventWorld().rows(machine_item(unreachable=True)).rows(machine_item())
    assert [(span.since, span.until) for span in story.vm.unreachable] == [(story.at(5.01), story.at(10.01))]
    story.rows(machine_item(unreachable=True)).rows(machine_item(status="terminating"))
    assert story.vm.unreachable[-1].until is None


# -- time --------------------------------------------------------------------------------------------------------------


def test_idle_evidence_leaves_out_blind_time_and_ends_at_the_last_look() -> None:
    """A gap in which we recorded nothing advances no timer; nor do answers about other things."""
    story = EventWorld().rows(machine_item()).watch(2, machine_item())
    assert idle_evidence(story.world.state, story.vm) == 120 * SECOND
    story.rows(machine_item(), after=3600)
    assert idle_evidence(story.world.state, story.vm) == 120 * SECOND
    story.runs(after=30)
    assert idle_evidence(story.world.state, story.vm) == 120 * SECOND
    story.rows(machine_item(), after=10)
    assert idle_evidence(story.world.state, story.vm) == 160 * SECOND


def test_a_machine_told_to_go_and_not_seen_gone_for_fourteen_answered_minutes_is_unconfirmed() -> None:
    """Not a poll earlier; from then on the low bound stands still."""
    going = machine_item(status="terminating", reason="idle_timeout")
    story = EventWorld().rows(machine_item()).rows(going).watch(13.5, going)
    assert story.vm.state is VmState.TERMINATING
    story.watch(0.5, going)
    assert (story.vm.state, story.anomalies, story.vm.billed) == ("unconfirmed", ["orphan_suspected"], True)
    story.watch(3, going)
    assert (story.vm.state, len(story.anomalies)) == ("unconfirmed", 1)
    story.rows(machine_item(status="terminated", reason="idle_timeout", finished=900))
    assert (story.vm.state, story.vm.finished_at) == ("terminated", story.at(900))


def test_the_grace_counts_from_the_outcome_of_our_own_stop_too() -> None:
    """The provider took it and goes on listing it as if nothing were."""
    story = EventWorld().rows(machine_item()).event(drain()).event(intended()).event(TAKEN).watch(14, machine_item())
    assert (story.vm.state, story.vm.reason) == ("unconfirmed", VmReason.IDLE_TIMEOUT)
    story.rows(machine_item(status="busy"))
    assert (story.vm.state, story.vm.ending_from, story.vm.told) == ("busy", None, None)


def test_a_machine_no_longer_listed_is_unconfirmed_after_ten_answered_minutes() -> None:
    """Its last sight is where the doubt begins at the earliest; listed again it has its state back."""
    story = EventWorld().rows(machine_item(status="busy")).watch(10)
    assert story.vm.state is VmState.BUSY
    story.watch(0.5)
    step = story.vm.steps[-1]
    assert (story.vm.state, step.low_at, story.anomalies) == ("unconfirmed", story.at(5.01), ["orphan_suspected"])
    story.rows(machine_item(status="busy"))
    assert (story.vm.state, story.vm.missing) == ("busy", None)


@pytest.mark.parametrize("req", [{"only_active": True}, {"fleet_ids": ["f"]}, {"limit": 1}, {"prev_id": "x"}])
def test_a_filtered_or_partial_list_shows_no_absence(req: Item) -> None:
    """Only a complete sweep does."""
    story = EventWorld().rows(machine_item())
    rows = [machine_item("other")] if "limit" in req else []
    for _ in range(30):
        story.story.wait(30).poll("/api/instances/list", {"project_names": ["main"], **req}, rows)
    story._fold()
    assert (story.vm.state, story.vm.missing) == ("idle", None)


def test_a_list_with_a_row_that_cannot_be_read_shows_no_absence() -> None:
    """It may be that machine."""
    story = EventWorld().rows(machine_item()).watch(12, {"no": "id"})
    assert (story.vm.state, story.anomalies) == ("idle", ["schema_drift"])


# -- what the provider takes back --------------------------------------------------------------------------------------


def test_a_machine_that_lives_after_its_end_is_a_contradiction_and_billed_again() -> None:
    """terminated, then busy."""
    gone = machine_item(status="terminated", reason="idle_timeout", finished=9)
    story = EventWorld().rows(machine_item()).rows(gone).rows(machine_item(status="busy"))
    assert (story.vm.state, story.vm.finished_at, story.vm.reason) == ("busy", None, None)
    assert (story.anomalies, list(story.world.state.vms.open_ids)) == (["contradiction"], [VM])


def test_a_machine_that_comes_back_from_going_is_an_illegal_transition_and_believed() -> None:
    """Whoever is on it would be hit else."""
    story = EventWorld().rows(machine_item(status="terminating")).rows(machine_item(status="busy"))
    assert (story.vm.state, story.anomalies, story.vm.ending_from) == ("busy", ["illegal_transition"], None)


def test_a_machine_shown_behind_where_it_was_stays() -> None:
    """idle, then provisioning."""
    story = EventWorld().rows(machine_item()).rows(machine_item(status="provisioning"))
    assert (story.vm.state, story.anomalies) == ("idle", ["illegal_transition"])


def test_an_unknown_word_is_drift_and_moves_nothing() -> None:
    """Once per wording."""
    story = (
        EventWorld()
        .rows(machine_item())
        .rows(machine_item(status="zombie"))
        .rows(machine_item(status="zombie", price=3))
    )
    assert (story.vm.state, story.anomalies) == ("idle", ["schema_drift"])


def test_somebody_who_saw_it_gone_ends_it_whatever_the_provider_goes_on_saying() -> None:
    """And a new word of life is a contradiction."""
    going = machine_item(status="terminating")
    confirmed = types.VmGoneConfirmed(vm_id=VM, provider="dstack", ended_at=START + 3 * SECOND, submitter="me")
    story = (
        EventWorld().rows(going).event(confirmed).rows(going).rows(machine_item(status="terminating", unreachable=True))
    )
    assert (story.vm.state, story.vm.finished_at, story.vm.finished_low) == ("terminated", story.at(3), story.at(3))
    story.rows(machine_item(status="terminated", finished=99))
    assert (story.vm.finished_at, story.anomalies) == (story.at(3), [])
    story.rows(machine_item())
    assert (story.vm.state, story.anomalies) == ("idle", ["contradiction"])


# -- clocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "took", "told_of"),
    [
        (0, 10, None),
        (2, 10, None),
        (-2, 10, None),
        (4, 10, "its clock is 4 s ahead of ours"),
        (3600, 10, "its clock is 3600 s ahead of ours"),
        (-80, 10, "its clock is 78 s behind ours"),
        (-60, 10, None),
        (-4, 4000, None),
        (4, 4000, None),
    ],
)
def test_a_clock_that_is_not_ours_is_told_where_its_times_are_first_met(
    ahead: int, took: int, told_of: str | None
) -> None:
    """More than 2 s apart for certain: the date may be old, and was taken at any time before the end of the answer."""
    world, reader = Fold(READINGS), PollReader(READINGS)
    story = (
        DstackHistory().machines(machine_item()).wait(60).machines(machine_item()).wait(60).machines(machine_item("b"))
    )
    for number, poll in story.polls():
        assert poll is not None
        date = poll.started_at + ahead * SECOND
        late = msgspec.structs.replace(poll, server_time=date, observed_at=poll.started_at + took * 1000)
        world.apply(reader.read(number, late))
    anomalies = [(anomaly.kind, anomaly.subject, anomaly.position, anomaly.detail) for anomaly in world.state.anomalies]
    assert anomalies == ([] if told_of is None else [(AnomalyKind.CLOCK_SKEW, f"source/{SOURCE}", 1, told_of)])


def test_times_of_another_clock_are_shifted_to_ours() -> None:
    """A machine made now by a server an hour ahead was not made in an hour; who is cold stays cold. The date may be two
    seconds old, and the question took 10 ms.
    """
    hour = 3600
    story = DstackHistory(now=100).machines(machine_item(created=hour + 90))
    story.wait(1).listed(on(submitted=hour + 80, status="done", exit_status=0, finished=hour + 99))
    world, reader = Fold(READINGS), PollReader(READINGS)
    for number, poll in story.polls():
        assert poll is not None
        world.apply(reader.read(number, msgspec.structs.replace(poll, server_time=poll.observed_at + hour * SECOND)))
    (vm,), (run,) = world.state.vms.all(), world.state.runs.all()
    early = 2 * SECOND + 10_000
    assert (vm.created, run.submitted_at, run.finished_at) == tuple(START + at * SECOND - early for at in (90, 80, 99))
    assert (run.start, vm.occupancies[0].until) == ("cold", START + 99 * SECOND - early)
    assert [anomaly.kind for anomaly in world.state.anomalies] == [AnomalyKind.CLOCK_SKEW]
