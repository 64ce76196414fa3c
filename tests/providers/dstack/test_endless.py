"""Answers, pages and rows without end: the asker stops after a bounded time, size and number of pages."""

import itertools
import json
import socket
from collections.abc import Callable

import pytest
from stenolab.faulty_server import Answers, FaultyServer, respond

from steno.engine.errors import ProviderError
from steno.events.errors import StenoError


def test_an_endless_answer_is_given_up(bad: Callable[[Answers], FaultyServer], monkeypatch: pytest.MonkeyPatch) -> None:
    """More bytes than any answer has are not held."""
    monkeypatch.setattr("steno.engine.providers.dstack.client.LARGEST", 1000)

    (poll,) = bad(respond(200, b" " * 5000)).provider().poll([], since=None)

    assert (poll.status, poll.answered) == (None, False)


def test_a_server_that_gives_the_same_page_for_ever_does_not_hold_us(bad: Callable[[Answers], FaultyServer]) -> None:
    """Paging ends when a page brings nothing new; such a sweep is not complete, and does not prove absence."""
    page = [{"id": str(number), "submitted_at": "2026-01-01T00:00:00Z", "created": "x"} for number in range(100)]

    server = bad(respond(200, json.dumps(page).encode()))
    polls = list(server.provider().poll([], since=None))

    listed = [poll for poll in polls if poll.ep == "runs_list"]
    assert len(listed) <= 3
    assert not any(poll.complete for poll in listed)
    before = len(server.requests)
    with pytest.raises(ProviderError, match="does not end"):
        server.provider().find("name", 0)
    assert len(server.requests) == before + 2


def endless(size: int = 100) -> Answers:
    """Whatever is asked, another full page of things never seen before."""
    count = itertools.count()

    def answers(connection: socket.socket, request: bytes, before: int) -> bool:
        at = "2026-01-01T00:00:00Z"
        page = [{"id": f"i{next(count)}", "submitted_at": at, "created": at, "recorded_at": at} for _ in range(size)]
        body: object = page
        if b"/get" in request.partition(b" HTTP")[0]:
            body = {"id": "i0", "project_id": "p", "run_spec": {"run_name": "n"}, "jobs": ONE_JOB, "status": "done"}
        elif b"logs/poll" in request.partition(b" HTTP")[0]:
            body = {"logs": [], "next_token": str(next(count))}
        return respond(200, json.dumps(body).encode())(connection, request, before)

    return answers


ONE_JOB = [{"job_spec": {}, "job_submissions": [{"id": "s"}]}]


def test_pages_that_never_end_do_not_hold_us(
    bad: Callable[[Answers], FaultyServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list has at most so many pages, whatever they bring; the sweep is not complete, and the round goes on."""
    monkeypatch.setattr("steno.engine.providers.dstack.client.MOST_PAGES", 3)
    monkeypatch.setattr("steno.engine.providers.dstack.logs.EMPTY_PAGES", 3)
    provider = bad(endless()).provider()

    polls = list(provider.poll([], since=None))

    assert {ep: sum(poll.ep == ep for poll in polls) for ep in ("runs_list", "instances_list", "events_list")} == {
        "runs_list": 3,
        "instances_list": 3,
        "events_list": 3,
    }
    assert not any(poll.complete for poll in polls if poll.ep in ("runs_list", "instances_list"))
    assert list(provider.logs("i0", "n", follow=False)) == []
    with pytest.raises(ProviderError, match="does not end"):  # "no such run" would submit the task once more
        provider.find("name", 0)
    with pytest.raises(StenoError):
        provider.stop_vm("nobody")


def test_one_row_of_the_far_future_does_not_hide_what_came_since(bad: Callable[[Answers], FaultyServer]) -> None:
    """After a gap a look goes back to the newest row of the look before; a time of the year 9999 is not one."""
    at = "2026-01-01T00:00:00Z"
    known = [{"id": "odd", "submitted_at": "9999-12-31T23:59:59Z"}, {"id": "known", "submitted_at": at}]
    since = [{"id": f"new {number}", "submitted_at": "2026-01-02T00:00:00Z"} for number in range(150)]
    answers: list[list[dict[str, str]]] = [known, []]

    def answer(connection: socket.socket, request: bytes, before: int) -> bool:
        page = answers["prev_run_id" in request.decode()] if b"/api/runs/list" in request else []
        return respond(200, json.dumps(page).encode())(connection, request, before)

    provider = bad(answer).provider()
    list(provider.poll([], since=None))
    answers[:] = [[known[0], *since[:99]], [*since[99:], known[1]]]
    polls = list(provider.poll([], since=None))

    assert b"new 149" in b"".join(poll.body or b"" for poll in polls)
