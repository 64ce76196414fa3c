"""The questions about a firing: dstack knows its schedule's id, of which the firing's submissions count."""

import base64
import json
import socket
from collections.abc import Callable

from stenolab.faulty_server import Answers, FaultyServer, respond
from stenotest.dstack_history import job, nightly, provider_id, submission


def test_the_output_of_a_firing_is_that_of_its_submissions(bad: Callable[[Answers], FaultyServer]) -> None:
    """The schedule's is that of all. Following a firing ends when the schedule waits again."""
    parts = [
        submission("done", num=0, submitted=901, finished=930, exit_status=0),
        submission("failed", num=1, submitted=1801, finished=1805, reason="failed_to_start_due_to_no_capacity"),
        submission("done", num=2, submitted=1821, finished=1850, exit_status=0),
    ]
    row = nightly("pending", job(*parts, retry=["no-capacity"]), due=2700)
    numbers = {part["id"]: part["submission_num"] for part in parts}

    def answers(connection: socket.socket, request: bytes, before: int) -> bool:
        asked_for = json.loads(request.partition(b"\r\n\r\n")[2])
        body = row
        if b"/logs/poll" in request:
            text = base64.b64encode(b"%d;" % numbers[asked_for["job_submission_id"]]).decode()
            body = {"logs": [{"timestamp": "2026-01-01T00:00:00Z", "message": text}]}
        elif asked_for.get("id") != provider_id("nightly"):
            return respond(400, b'{"detail": [{"msg": "Run not found", "code": "resource_not_exists"}]}')(
                connection, request, before
            )
        return respond(200, json.dumps(body).encode())(connection, request, before)

    provider = bad(answers).provider()

    def wrote(firing: str, *, follow: bool) -> bytes:
        return b"".join(provider.logs(f"{provider_id('nightly')}{firing}", "nightly", follow=follow))

    assert (wrote("", follow=False), wrote("#0", follow=True), wrote("#1", follow=True)) == (b"0;1;2;", b"0;", b"1;2;")
