"""Our own intents in the world: a requested run, its link to the provider's run, and who stopped it."""

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st
from stenotest.dstack_history import START, DstackHistory, Item, single
from stenotest.event_world import marked

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers.registry import READINGS
from steno.engine.state.changes import Moved
from steno.engine.state.run import Run
from steno.engine.state.world import dump, load
from steno.events import types
from steno.events.clock import SECOND, foreign_run_id

OURS = "11111111-2222-4333-8444-555555555555"
ITEM = single("a", "running", "running", submitted=2)


def requested(world: Fold, position: int = 1, at: int = START) -> None:
    world.apply_event(
        position,
        at,
        types.RunRequested(
            run_id=OURS, provider="dstack", project="main", name="a", configuration=b"{}", submitter="me"
        ),
    )


def shown(world: Fold, *items: object, position: int = 9, now: float = 5) -> None:
    ((_, poll),) = DstackHistory(now=now).listed(*items).polls()  # type: ignore[arg-type]
    assert poll is not None
    world.apply(PollReader(READINGS).read(position, poll))


def handed(world: Fold, position: int = 2) -> None:
    world.apply_event(position, START, types.SubmitIntended(run_id=OURS, provider="dstack", name="a", marked=True))


def odd(world: Fold) -> list[str]:
    return [anomaly.kind.value for anomaly in world.state.anomalies]


def submitted(world: Fold, position: int = 2) -> None:
    world.apply_event(
        position,
        START + SECOND,
        types.SubmitSucceeded(run_id=OURS, provider="dstack", provider_id=ITEM["id"], name="a"),
    )


def stop(world: Fold, by: Literal["user", "policy"]) -> None:
    world.apply_event(
        5,
        START,
        types.StopRequested(run_id=OURS, provider="dstack", name="a", by=by, submitter="me"),
    )


def only(world: Fold) -> Run:
    (run,) = world.state.runs.all()
    return run


def test_a_request_is_a_run_before_any_poll() -> None:
    """`requested`, with our id and the time it was asked for."""
    world = Fold(READINGS)
    requested(world)
    run = only(world)
    assert (run.run_id, run.state, run.requested_at, run.provider_id) == (OURS, "requested", START, None)


def test_the_outcome_links_the_providers_id_to_ours() -> None:
    """The poll that shows it moves our run."""
    world = Fold(READINGS)
    requested(world)
    submitted(world)
    shown(world, ITEM)
    assert (only(world).run_id, only(world).state) == (OURS, "running")
    assert only(world).transitions[0].before == "requested"


def test_a_run_that_carries_our_mark_is_ours_once_we_were_about_to_hand_it_over() -> None:
    """The answer to the call was lost; the list shows it all the same."""
    world = Fold(READINGS)
    requested(world)
    handed(world)
    shown(world, marked(ITEM))
    assert (only(world).run_id, only(world).provider_id, only(world).state) == (OURS, ITEM["id"], "running")
    submitted(world, position=10)
    assert only(world).run_id == OURS
    assert world.state.anomalies == []


def test_a_strangers_run_of_a_queued_requests_name_is_theirs() -> None:
    """It was submitted straight to the provider while ours waited: ours waits on, whatever becomes of theirs."""
    for held in (True, False):
        world = Fold(READINGS)
        requested(world)
        if held:
            world.apply_event(2, START, types.RunHeld(run_id=OURS, provider="dstack", why="cap"))
        shown(world, single("a", "done", "done", exit_status=0, submitted=2))
        ours, theirs = world.state.runs.all()
        assert (ours.run_id, ours.provider_id, ours.terminal) == (OURS, None, False)
        assert (theirs.run_id, theirs.state) == (foreign_run_id("dstack", ITEM["id"]), "succeeded")
        assert world.identify("dstack", theirs.facts) == theirs.run_id
        assert world.state.anomalies == []


def test_a_name_is_no_proof_while_we_hand_it_over() -> None:
    """A stranger was faster by a moment: without our mark the run is theirs, also where theirs carries another's."""
    for item in (ITEM, marked(ITEM, "00000000-0000-4000-8000-000000000000"), marked(ITEM, 7)):
        world = Fold(READINGS)
        requested(world)
        handed(world)
        shown(world, item)
        assert [run.provider_id for run in world.state.runs.all()] == [None, ITEM["id"]]
        assert "ambiguous_submission" not in odd(world)


def test_a_mark_that_does_not_fit_is_told_and_proves_nothing() -> None:
    """Forged or copied: of a request that was never handed over, of another project, under another name."""
    for handing, item, why in (
        (False, marked(ITEM), "has not been handed over"),
        (True, {**marked(ITEM), "project_name": "other"}, "of project main"),
        (True, marked(single("b", "running", "running", submitted=2)), "handed over as a"),
    ):
        world = Fold(READINGS)
        requested(world)
        if handing:
            handed(world)
        shown(world, item)
        ours, theirs = world.state.runs.all()
        assert (ours.provider_id, theirs.provider_id) == (None, item["id"])
        (anomaly,) = world.state.anomalies
        assert (anomaly.kind, anomaly.subject) == ("ambiguous_submission", f"run/{theirs.run_id}")
        assert why in anomaly.detail
        assert f"steno stop {theirs.provider_id}" in anomaly.detail
        shown(world, item, position=10, now=10)
        assert odd(world) == ["ambiguous_submission"]


def test_a_copy_of_a_linked_runs_mark_is_another_run() -> None:
    """Somebody submitted the configuration of our run once more, tags and all."""
    world = Fold(READINGS)
    requested(world)
    handed(world)
    submitted(world)
    shown(world, marked(ITEM))
    copy = marked(single("a", "running", "running", submitted=3, label="copy"))
    shown(world, copy, marked(ITEM), position=10, now=10)
    assert [run.provider_id for run in world.state.runs.all()] == [ITEM["id"], copy["id"]]
    assert odd(world) == ["ambiguous_submission"]


def test_a_mark_shown_twice_waits_for_the_outcome() -> None:
    """A copy is among the two, and the list does not say which; the provider's answer to the call does."""
    world = Fold(READINGS)
    requested(world)
    handed(world)
    copy = marked(single("a", "running", "running", submitted=3, label="copy"))
    shown(world, copy, marked(ITEM))
    assert world.state.runs[OURS].provider_id is None
    assert odd(world) == ["ambiguous_submission"] * 2
    submitted(world, position=10)
    assert world.state.runs[OURS].provider_id == ITEM["id"]
    assert len(world.state.runs) == 2


def test_the_providers_answer_outweighs_a_mark() -> None:
    """A run with our mark was shown first, and the provider says that ours is another: each is itself from then on."""
    world = Fold(READINGS)
    requested(world)
    handed(world)
    forged = marked(single("a", "done", "done", exit_status=0, submitted=1, label="forged"))
    shown(world, forged)
    assert only(world).state == "succeeded"
    submitted(world, position=10)
    shown(world, marked(ITEM), forged, position=11, now=10)
    ours, theirs = world.state.runs[OURS], world.state.runs[foreign_run_id("dstack", forged["id"])]
    assert (ours.provider_id, ours.state, theirs.state) == (ITEM["id"], "running", "succeeded")
    assert (theirs.requested_at, theirs.terms) == (None, None)
    assert odd(world) == ["ambiguous_submission"]
    assert set(world.state.runs.open_ids) == {OURS}


@given(st.data())
def test_no_polls_of_others_make_a_run_ours(data: st.DataObject) -> None:
    """Law: only our mark on a run we were handing over, or the provider's answer to the call, links a run of ours."""
    world = Fold(READINGS)
    events = [requested, handed, submitted]
    others = st.builds(
        single,
        st.sampled_from("ab"),
        st.sampled_from(["submitted", "running", "done"]),
        submitted=st.integers(-60, 60),
        label=st.sampled_from(["x", "y", "z"]),
    )
    known: dict[str, object] = {}
    for position in range(1, data.draw(st.integers(2, 13))):
        if events and data.draw(st.booleans()):
            events.pop(0)(world, position=position)
        else:
            items = data.draw(st.lists(others, max_size=3, unique_by=lambda item: item["id"]))
            marks = st.sampled_from([None, OURS if not events or events[0] is not submitted else None, "another"])
            items = [known.setdefault(item["id"], _with(item, data.draw(marks))) for item in items]
            shown(world, *items, position=position, now=position * 5)
        run = world.state.runs.get(OURS)
        if run is not None:
            assert run.provider_id == (None if events else ITEM["id"])
            assert world.state.runs[OURS].run_id == OURS
        for item_id in known:
            assert world.state.by_provider[f"dstack/{item_id}"] == foreign_run_id("dstack", item_id)


def _with(item: Item, mark: str | None) -> Item:
    return item if mark is None else marked(item, mark)


def test_a_run_seen_before_its_outcome_is_adopted() -> None:
    """A clock that differs may hide the link until the outcome says it: still one run, under our id, settled or not."""
    for item in (ITEM, single("a", "done", "done", exit_status=0, submitted=2)):
        world = Fold(READINGS)
        requested(world, at=START + 60 * SECOND)
        shown(world, item, now=61)
        submitted(world, position=10)
        run = only(world)
        assert (run.run_id, run.provider_id) == (OURS, ITEM["id"])
        assert list(world.state.runs.open_ids) == ([] if run.terminal else [OURS])
        shown(world, ITEM, position=11, now=70)
        assert len(world.state.runs) == 1


def test_a_refused_submission_ends_the_run() -> None:
    """There will be no poll to say so."""
    for why, reason in (("rejected", "rejected"), ("name_in_use", "rejected"), ("unreachable", "unreachable")):
        world = Fold(READINGS)
        requested(world)
        failure = types.SubmitFailed(run_id=OURS, provider="dstack", error="no", reason=why)  # type: ignore[arg-type]
        changes = world.apply_event(2, START, failure)
        assert (only(world).state, only(world).reason, only(world).evidence) == ("failed", reason, (2,))
        assert any(isinstance(change, Moved) and change.transition is not None for change in changes)
        assert (world.state.runs.open_ids, only(world).intended) == ({}, None)


def test_an_abandoned_request_ends_as_stopped_if_somebody_asked_for_that() -> None:
    """Else as rejected."""
    for by, wanted in (("user", "stopped_by_user"), ("policy", "stopped_by_policy"), (None, "rejected")):
        world = Fold(READINGS)
        requested(world)
        if by is not None:
            stop(world, by)
        world.apply_event(
            6, START, types.IntentAbandoned(run_id=OURS, provider="dstack", intent="submit", why="stopped")
        )
        assert only(world).reason == wanted


def test_a_stop_is_a_policys_only_if_our_newest_request_was() -> None:
    """By the user and by a policy; a request that comes after the end changes nothing."""
    ended = single("a", "terminated", "terminated", reason="stopped_by_user", submitted=2)
    for requests, reason in (
        (["user"], "stopped_by_user"),
        (["user", "policy"], "stopped_by_policy"),
        ([], "stopped_by_user"),
    ):
        world = Fold(READINGS)
        requested(world)
        submitted(world)
        for by in requests:
            stop(world, by)
        shown(world, ended)
        stop(world, "policy")
        shown(world, {**ended, "deleted": True}, position=10, now=10)
        assert (only(world).state, only(world).reason) == ("stopped", reason)


def test_a_world_is_written_down_and_taken_up_equal() -> None:
    """Also with requests open."""
    world = Fold(READINGS)
    requested(world)
    shown(world, single("b", "running", "running"))
    assert load(dump(world.state)) == world.state
