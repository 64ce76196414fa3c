"""A dstack that is down or slow, through the genuine command: what is said, when, and what becomes of requests."""

import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest
from stenotest.command_line import Background, Steno, refused
from stenotest.dstack_api import DstackApi
from stenotest.waiting import wait

from steno.engine.providers.registry import READINGS
from steno.events.clock import SystemClock
from steno.events.errors import RecordNotFound
from steno.events.store.record import Record

pytestmark = pytest.mark.slow

WORDS = ("submit", "--provider", "dstack", "--name", "one", "--image", "x", "--gpu", "MI300X:1", "--", "true")


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where connections are refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def kinds(place: str, *wanted: str) -> list[str]:
    """The types of the record's events, those wanted; none while there is no record."""
    try:
        with Record.open(place, clock=SystemClock(), shapes=READINGS.shape) as record:
            return [stored.type for stored in record.read(types=wanted or None)]
    except RecordNotFound:
        return []


def test_a_server_that_is_down_is_named_and_the_request_ends(
    steno: Steno, place: str, settings: dict[str, str], nobody: str
) -> None:
    """Exit 3: nothing was handed over, and nothing will be by this request."""
    error = refused(steno(*WORDS, **settings | {"STENO_DSTACK_URL": nobody}), 3)
    assert f"no answer from {nobody}" in error
    assert "one was not submitted: submit it again" in error
    assert kinds(place)[-1] == "SubmitFailed"


@pytest.mark.ci
def test_a_silent_server_is_told_of_while_it_is_waited_for(
    background: Background, place: str, server: DstackApi, settings: dict[str, str]
) -> None:
    """A line after seconds, and exit 3 after one question: another would only take as long again."""
    server.hangs = ("/runs/list",)
    with background(*WORDS, err=subprocess.PIPE, **settings) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert "no answer from dstack/main since" in first
        assert process.poll() is None
        assert "no answer from dstack/main (ReadTimeout" in process.stderr.read()
        assert process.wait() == 3
    assert (server.count("/runs/list"), server.count("/runs/apply")) == (1, 0)
    assert kinds(place)[-1] == "SubmitFailed"


def test_whoever_waits_for_a_recorder_without_answers_is_told_and_the_request_stays(
    steno: Steno,
    background: Background,
    place: str,
    settings: dict[str, str],
    nobody: str,
) -> None:
    """It used to wait for a minute, and then said that the process with the lease had not acted."""
    down = settings | {"STENO_DSTACK_URL": nobody}
    background("record", "--provider", "dstack", "--interval", "1", **down)
    wait(lambda: kinds(place, "PollFailed"))
    error = refused(steno(*WORDS, **down), 3)
    assert "dstack/main does not answer the process that records it (ConnectError" in error
    assert "one stays requested: `steno up` submits it later" in error
    assert not kinds(place, "SubmitFailed", "IntentAbandoned")


@pytest.fixture
def submitting(
    background: Background,
    place: str,
    server: DstackApi,
    settings: dict[str, str],
) -> subprocess.Popen[str]:
    """A recorder whose submission hangs at the server; its submitter has gone."""
    server.hangs = ("/runs/apply",)
    controller = background("record", "--provider", "dstack", "--interval", "0.2", out=subprocess.PIPE, **settings)
    wait(lambda: kinds(place, "PollRecorded"))
    submission = background(*WORDS, **settings)
    wait(lambda: server.count("/runs/apply"))
    submission.kill()
    return controller


def test_polls_go_on_while_a_submission_hangs_and_its_answer_is_awaited_at_the_end(
    submitting: subprocess.Popen[str], place: str, server: DstackApi
) -> None:
    """Rounds follow one another beside it; on SIGTERM the answer is still written down, and the exit code is 0."""
    before = server.count("/runs/list")
    wait(lambda: server.count("/runs/list") >= before + 5)
    submitting.send_signal(signal.SIGTERM)
    assert submitting.stdout is not None
    assert any("stopped by SIGTERM" in line for line in submitting.stdout)
    server.gate.set()
    assert submitting.wait() == 0
    assert kinds(place, "SubmitIntended", "RecorderStopped", "SubmitSucceeded") == [
        "SubmitIntended",
        "RecorderStopped",
        "SubmitSucceeded",
    ]
    assert server.count("/runs/apply") == 1


def test_a_submission_without_an_answer_at_the_end_is_looked_for_by_the_next(
    submitting: subprocess.Popen[str],
    background: Background,
    place: str,
    server: DstackApi,
    settings: dict[str, str],
) -> None:
    """The process ends though the server does not answer; the run that came of it is found, and not made twice."""
    submitting.send_signal(signal.SIGTERM)
    assert submitting.wait() == 0
    assert not kinds(place, "SubmitSucceeded", "SubmitFailed")
    server.gate.set()
    wait(lambda: server.runs)
    background("record", "--provider", "dstack", "--interval", "0.2", **settings)
    wait(lambda: kinds(place, "SubmitSucceeded"))
    assert server.count("/runs/apply") == len(server.runs) == 1
