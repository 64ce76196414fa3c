"""Poll rounds on the genuine servers: what is asked, how far back, and what counts as answered."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stenolab.lab import Lab
from stenolab.versions import NEWEST

from steno.engine.providers.dstack.provider import DstackProvider
from steno.events.clock import parse_time
from steno.events.poll import Poll

pytestmark = pytest.mark.slow

Connect = Callable[..., DstackProvider]
MANY = 104


def items(poll: Poll) -> list[dict[str, Any]]:
    assert poll.body is not None
    rows = json.loads(poll.body)
    assert isinstance(rows, list)
    return rows


def endpoints(polls: list[Poll]) -> Counter[str | None]:
    return Counter(poll.ep for poll in polls)


@pytest.fixture(scope="module")
def crowded(dstack: Lab) -> Iterator[tuple[Lab, str, str]]:
    """(server, project, id of its oldest run): a run that goes on, and more than a page of later runs that ended."""
    project = dstack.project()
    dstack.fleet(project)
    oldest = dstack.submit(project, "oldest", ["sleep 7200"])["id"]
    dstack.submit(project, "later", ["true"], resources={"gpu": "H100:8"})
    dstack.wait(lambda: len(_active(dstack, project)) == 1, what="the later one to end")
    dstack.repeat_run(project, "later", MANY - 1)
    yield dstack, project, oldest
    dstack.stop_run(project, "oldest", abort=True)


def test_a_round_asks_each_endpoint_once(dstack: Lab, connect: Connect) -> None:
    """With up to a page of runs nothing is asked twice; a server without events is asked for them once in our life."""
    project = dstack.project()
    dstack.fleet(project)
    for name in ("aa", "bb"):
        dstack.submit(project, name, ["true"])
    provider = connect(dstack, project)
    ids = [run["id"] for run in dstack.runs(project)]

    first = list(provider.poll(ids, since=None))
    second = list(provider.poll(ids, since=None))

    every = {"runs_list": 1, "instances_list": 1, "fleets_list": 1}
    assert endpoints(first) == {**every, "events_list": 1}
    assert endpoints(second) == (every if dstack.version.startswith("0.19") else {**every, "events_list": 1})
    for poll in first:
        assert poll.source == f"dstack/{project}"
        assert poll.answered == (poll.status == 200)
        assert poll.complete == poll.answered
        assert poll.server_time is not None
        assert poll.started_at <= poll.observed_at
    assert first[0].sweep != first[1].sweep


def test_first_contact_reads_the_whole_history_and_later_rounds_one_page(
    crowded: tuple[Lab, str, str], connect: Connect
) -> None:
    """The pages of a sweep share its id, hold every run once, and only the last of all of them is complete."""
    lab, project, oldest = crowded
    provider = connect(lab, project)

    first = [poll for poll in provider.poll([oldest], since=None) if poll.ep == "runs_list"]
    later = [poll for poll in provider.poll([], since=None) if poll.ep.startswith("runs")]

    listed = [run["id"] for poll in first for run in items(poll)]
    assert len(listed) == len(set(listed)) == MANY + 1
    assert {poll.sweep for poll in first} == {first[0].sweep}
    assert [poll.complete for poll in first] == [False] * (len(first) - 1) + [True]
    assert [len(items(poll)) for poll in later] == [100]
    assert not later[0].complete


def test_since_bounds_first_contact(crowded: tuple[Lab, str, str], connect: Connect) -> None:
    """Pages wholly older than `since` are not asked for."""
    lab, project, _ = crowded
    newest = parse_time(lab.runs(project)[0]["submitted_at"])

    polls = [poll for poll in connect(lab, project).poll([], since=newest) if poll.ep == "runs_list"]

    assert len(polls) == 1
    assert not polls[0].complete


def test_an_old_run_we_follow_costs_one_request_more(crowded: tuple[Lab, str, str], connect: Connect) -> None:
    """Beyond the first page it is found among the active runs; a run in no list is asked for by its id."""
    lab, project, oldest = crowded
    ended = next(run["id"] for run in lab.api("/api/runs/list", _page(lab, project)) if run["status"] == "failed")
    provider = connect(lab, project)
    list(provider.poll([], since=None))

    polls = [poll for poll in provider.poll([oldest], since=None) if poll.ep.startswith("runs")]
    both = [poll for poll in provider.poll([oldest, ended], since=None) if poll.ep.startswith("runs")]

    assert [poll.ep for poll in polls] == ["runs_list", "runs_list_active"]
    assert oldest in {run["id"] for run in items(polls[1])}
    assert [poll.ep for poll in both] == ["runs_list", "runs_list_active", "runs_get"]
    assert both[2].body is not None
    assert json.loads(both[2].body)["id"] == ended


def test_a_gap_is_read_back_to_where_we_were(crowded: tuple[Lab, str, str], connect: Connect) -> None:
    """A run that came and went while nobody looked is seen, though it is not on the first page any more."""
    lab, project, _ = crowded
    provider = connect(lab, project)
    known = parse_time(lab.api("/api/runs/list", _page(lab, project))[0]["submitted_at"])
    list(provider.poll([], since=None))
    provider._rounds._reached["runs_list"] = known

    polls = [poll for poll in provider.poll([], since=None) if poll.ep == "runs_list"]

    assert len(polls) == 2


def test_a_run_the_server_does_not_have_is_asked_for_by_id(dstack: Lab, connect: Connect) -> None:
    """`resource_not_exists` is an answer; many unknown runs are taken in turn, a few a round."""
    provider = connect(dstack, dstack.project())
    nobody = [f"00000000-0000-4000-8000-00000000000{digit}" for digit in range(9)]

    rounds = [[poll for poll in provider.poll(nobody, since=None) if poll.ep == "runs_get"] for _ in range(3)]

    assert [len(polls) for polls in rounds] == [4, 4, 4]
    assert {json.loads(poll.req)["id"] for polls in rounds for poll in polls} == set(nobody)
    assert all(poll.answered and poll.status == 400 for polls in rounds for poll in polls)


def test_events_come_each_at_least_once_and_in_pages(dstack_22: Lab, connect: Connect) -> None:
    """Reading forward with an overlap gives every event the server has, over pages and rounds."""
    project = dstack_22.project()
    provider = connect(dstack_22, project)
    events: set[str] = set()
    for batch in range(3):
        for number in range(10):
            dstack_22.submit(project, f"e{batch}-{number}", ["true"], resources={"gpu": "H100:8"})
        events |= {
            event["id"] for poll in provider.poll([], since=None) if poll.ep == "events_list" for event in items(poll)
        }
    dstack_22.wait(lambda: all(run["status"] == "failed" for run in dstack_22.runs(project)), what="all to fail")

    def all_found() -> bool:
        """True if a new reader finds the events that were read by and by; the last events may come late."""
        whole = list(connect(dstack_22, project).poll([], since=None))
        pages = [items(poll) for poll in whole if poll.ep == "events_list"]
        assert len(pages) > 1
        events.update(
            event["id"] for poll in provider.poll([], since=None) if poll.ep == "events_list" for event in items(poll)
        )
        return {event["id"] for page in pages for event in page} <= events

    dstack_22.wait(all_found, what="every event to be read")


def test_a_project_we_cannot_see_is_a_failed_poll_somewhere(dstack: Lab, connect: Connect) -> None:
    """Lists answer `200 []` for it; the project's own route does not, and that poll has failed."""
    polls = {poll.ep: poll for poll in connect(dstack, "nowhere").poll([], since=None)}

    assert polls["runs_list"].answered
    assert (polls["fleets_list"].status, polls["fleets_list"].answered) == (404, False)


def test_a_wrong_token_ends_the_round(dstack: Lab, connect: Connect) -> None:
    """One failed poll says it; the other endpoints would say the same."""
    polls = list(connect(dstack, "main", token="wrong").poll([], since=None))

    assert [(poll.ep, poll.status, poll.answered) for poll in polls] == [("runs_list", 403, False)]


@pytest.mark.ci
@pytest.mark.suffices(NEWEST)
def test_a_restarting_server_is_failed_polls_and_then_answers(dstack: Lab, connect: Connect) -> None:
    """Nothing is raised while it is away, and the same provider goes on when it is back."""
    provider = connect(dstack, dstack.project())
    assert next(provider.poll([], since=None)).answered
    dstack.stop()
    try:
        (away,) = provider.poll([], since=None)
    finally:
        dstack.start()

    assert (away.status, away.answered, away.body) == (None, False, None)
    assert away.error is not None
    assert all(poll.answered or poll.ep == "events_list" for poll in provider.poll([], since=None))


def _active(lab: Lab, project: str) -> list[dict[str, Any]]:
    active: list[dict[str, Any]] = lab.api("/api/runs/list", {"project_name": project, "only_active": True})
    return active


def _page(lab: Lab, project: str) -> dict[str, object]:
    """The request for the page after the first hundred."""
    last = lab.runs(project)[-1]
    return {"project_name": project, "limit": 100, "prev_submitted_at": last["submitted_at"], "prev_run_id": last["id"]}
