"""Our own intents in the world: a requested run, its link to the provider's, whose stop it was."""

from engine.testing.story import START, Story, single
from engine.world.change import Moved
from engine.world.reader import PollReader
from engine.world.runs import Run
from engine.world.state import dump, load
from engine.world.world import World
from events import types
from events.clock import SECOND, foreign_run_id

OURS = "11111111-2222-4333-8444-555555555555"
ITEM = single("a", "running", "running", submitted=2)


def requested(world: World, position: int = 1, at: int = START) -> None:
    world.apply_event(
        position,
        at,
        types.RunRequested(
            run_id=OURS, provider="dstack", project="main", name="a", configuration=b"{}", submitter="me"
        ),
    )


def shown(world: World, *items: object, position: int = 9, now: float = 5) -> None:
    ((_, poll),) = Story(now=now).listed(*items).polls()  # type: ignore[arg-type]
    assert poll is not None
    world.apply(PollReader().read(position, poll))


def submitted(world: World, position: int = 2) -> None:
    world.apply_event(
        position,
        START + SECOND,
        types.SubmitSucceeded(run_id=OURS, provider="dstack", provider_id=ITEM["id"], name="a"),
    )


def stop(world: World, by: str) -> None:
    world.apply_event(
        5,
        START,
        types.StopRequested(run_id=OURS, provider="dstack", name="a", by=by, submitter="me"),  # type: ignore[arg-type]
    )


def only(world: World) -> Run:
    (run,) = world.state.runs.values()
    return run


def test_a_request_is_a_run_before_any_poll() -> None:
    """`requested`, with our id and the time it was asked for."""
    world = World()
    requested(world)
    run = only(world)
    assert (run.run_id, run.state, run.requested_at, run.provider_id) == (OURS, "requested", START, None)


def test_the_outcome_links_the_providers_id_to_ours() -> None:
    """The poll that shows it moves our run."""
    world = World()
    requested(world)
    submitted(world)
    shown(world, ITEM)
    assert (only(world).run_id, only(world).state) == (OURS, "running")
    assert only(world).transitions[0].before == "requested"


def test_an_unknown_run_with_the_name_of_an_open_intent_and_a_later_submission_is_that_run() -> None:
    """The answer to the call was lost; the list shows it all the same."""
    world = World()
    requested(world)
    shown(world, ITEM)
    assert (only(world).run_id, only(world).provider_id) == (OURS, ITEM["id"])
    submitted(world, position=10)
    assert only(world).run_id == OURS


def test_an_older_run_of_the_name_is_another() -> None:
    """It was submitted before anybody asked."""
    world = World()
    requested(world, at=START + 60 * SECOND)
    shown(world, ITEM, now=70)
    assert [run.run_id for run in world.state.runs.values()] == [OURS, foreign_run_id("dstack", ITEM["id"])]


def test_a_run_of_another_project_is_another() -> None:
    """Names are one project's."""
    world = World()
    requested(world)
    shown(world, {**ITEM, "project_name": "other"})
    assert len(world.state.runs) == 2


def test_a_run_seen_before_its_outcome_is_adopted() -> None:
    """A clock that differs may hide the link until the outcome says it: still one run, under our id, settled or not."""
    for item in (ITEM, single("a", "done", "done", exit_status=0, submitted=2)):
        world = World()
        requested(world, at=START + 60 * SECOND)
        shown(world, item, now=61)
        submitted(world, position=10)
        run = only(world)
        assert (run.run_id, run.provider_id) == (OURS, ITEM["id"])
        assert list(world.state.unsettled) == ([] if run.terminal else [OURS])
        shown(world, ITEM, position=11, now=70)
        assert len(world.state.runs) == 1


def test_a_refused_submission_ends_the_run() -> None:
    """There will be no poll to say so."""
    for why, reason in (("rejected", "rejected"), ("name_in_use", "rejected"), ("unreachable", "unreachable")):
        world = World()
        requested(world)
        failure = types.SubmitFailed(run_id=OURS, provider="dstack", error="no", reason=why)  # type: ignore[arg-type]
        changes = world.apply_event(2, START, failure)
        assert (only(world).state, only(world).reason, only(world).evidence) == ("failed", reason, (2,))
        assert any(isinstance(change, Moved) and change.transition is not None for change in changes)
        assert world.state.unsettled == world.state.open_requests == {}


def test_an_abandoned_request_ends_as_stopped_if_somebody_asked_for_that() -> None:
    """Else as rejected."""
    for by, wanted in (("user", "stopped_by_user"), ("policy", "stopped_by_policy"), (None, "rejected")):
        world = World()
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
        world = World()
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
    world = World()
    requested(world)
    shown(world, single("b", "running", "running"))
    assert load(dump(world.state)) == world.state
