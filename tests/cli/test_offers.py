"""A task for which dstack's plan has no offer, through the genuine command."""

import json

import pytest
from stenotest.command_line import Steno, refused
from stenotest.dstack_api import DstackApi

pytestmark = pytest.mark.slow

WORDS = ("submit", "--provider", "dstack", "--name", "one", "--image", "x", "--gpu", "H100:8")


@pytest.fixture
def server(server: DstackApi) -> DstackApi:
    """Its plans have no offer."""
    server.offers = 0
    return server


def test_a_submission_says_that_there_is_no_offer_and_hands_nothing_over(
    steno: Steno, server: DstackApi, settings: dict[str, str]
) -> None:
    done = steno(*WORDS, "--", "true", **settings)
    assert (done.returncode, done.stdout) == (0, "one\n")
    assert "queued: position 1: dstack has no offer for it (gpu H100:8)" in done.stderr
    assert (server.count("/runs/get_plan"), server.count("/runs/apply")) == (1, 0)
    page = " ".join(steno("show", "one", **settings).stdout.split())
    assert "It waits in Steno's queue: dstack has no offer for it (gpu H100:8)" in page
    assert "it starts once there is one" in page
    assert "#1 in the queue, dstack has no offer for it (gpu H100:8)" in steno("ps", **settings).stdout
    (queued,) = json.loads(steno("ps", "--json", **settings).stdout)["queue"]
    assert queued["why"] == "offer"


def test_without_patience_a_submission_without_an_offer_is_exit_3(
    steno: Steno, server: DstackApi, settings: dict[str, str]
) -> None:
    error = refused(steno(*WORDS, "--wait", "--", "true", **settings, STENO_QUEUE_PATIENCE="0"), 3)
    assert "dstack has no offer for it (gpu H100:8), and `queue.patience` is 0" in error
    assert server.count("/runs/apply") == 0
    page = " ".join(steno("show", "one", **settings).stdout.split())
    assert "failed" in page
    assert "It never ran: dstack has no offer for it (gpu H100:8)" in page


def test_a_run_that_is_waited_for_ends_when_its_patience_does(
    steno: Steno, server: DstackApi, settings: dict[str, str]
) -> None:
    done = steno(*WORDS, "--wait", "--", "true", **settings, STENO_QUEUE_PATIENCE="3s")
    assert done.returncode == 1, done
    assert "dstack has no offer for it (gpu H100:8), and `queue.patience` is 3 s" in done.stdout
    assert server.count("/runs/get_plan") == 1


def test_with_an_offer_the_task_goes_out(steno: Steno, server: DstackApi, settings: dict[str, str]) -> None:
    server.offers = 2
    done = steno(*WORDS, "--", "true", **settings)
    assert "submitted to dstack" in done.stderr
    assert (server.count("/runs/get_plan"), server.count("/runs/apply")) == (1, 1)


def test_a_plan_that_cannot_be_had_holds_nothing_back(
    steno: Steno, server: DstackApi, settings: dict[str, str]
) -> None:
    """The server does not answer that question: the task goes out as if it had not been asked."""
    server.hangs = ("/runs/get_plan",)
    done = steno(*WORDS, "--", "true", **settings)
    assert done.returncode == 0, done.stderr
    assert (server.count("/runs/get_plan"), server.count("/runs/apply")) == (1, 1)
