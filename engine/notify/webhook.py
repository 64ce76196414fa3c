"""Posts a notice to a webhook in a thread of its own: a server that hangs blocks nothing."""

import hashlib
import hmac
import threading
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from engine.deadline import Deadline
from engine.settings.values import ALERTS

TIMEOUT = 10.0
"""Seconds for each of connecting, writing and waiting for the answer."""
TOTAL = 30.0
"""Seconds for a whole attempt: at most four run at a time, and a slow answer would hold back every other notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Where notices go. The address may itself be a secret: it is never recorded or shown."""

    url: str = field(repr=False)
    secret: str | None = field(default=None, repr=False)
    """The signing key; None: notices are not signed."""
    kinds: frozenset[str] = ALERTS
    """The kinds of news it receives."""
    dashboard: str | None = None
    """The address of our own service, for links; None: notices have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """The outcome of one attempt."""

    notice_id: str
    attempt: int
    status: int | None
    error: str | None
    """None: the webhook accepted it."""


def sign(secret: str, moment: int, body: bytes) -> str:
    """The value of `X-Steno-Signature`: `t=<unix seconds>,v1=<hex HMAC-SHA256 of "<t>.<body>">`."""
    digest = hmac.new(secret.encode(), b"%d." % moment + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={digest}"


class Poster:
    """Posts in the background, one thread each; `answers` gives the outcomes."""

    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook
        self._answers: SimpleQueue[DeliveryResult] = SimpleQueue()
        self._threads: dict[str, threading.Thread] = {}

    @property
    def busy(self) -> frozenset[str]:
        """Notices whose attempt is under way, or whose outcome was not collected yet."""
        return frozenset(self._threads)

    def post(self, notice_id: str, body: bytes, *, attempt: int, now: int) -> None:
        """Start one attempt. `now`: seconds since the epoch, part of what is signed."""
        headers = headers_of(self._webhook, notice_id, body, now)
        # A daemon: a process that ends does not wait for a server that hangs; the notice is then sent again.
        thread = threading.Thread(target=self._run, args=(notice_id, body, headers, attempt), daemon=True)
        self._threads[notice_id] = thread
        thread.start()

    def answers(self) -> list[DeliveryResult]:
        """The outcomes since the last call."""
        found: list[DeliveryResult] = []
        while True:
            try:
                answer = self._answers.get_nowait()
            except Empty:
                return found
            self._threads.pop(answer.notice_id).join()
            found.append(answer)

    def wait(self, seconds: float) -> None:
        """Wait until no attempt is under way, at most this long for each."""
        for thread in tuple(self._threads.values()):
            thread.join(seconds)

    def _run(self, notice_id: str, body: bytes, headers: dict[str, str], attempt: int) -> None:
        status, error = send(self._webhook.url, body, headers)
        self._answers.put(DeliveryResult(notice_id=notice_id, attempt=attempt, status=status, error=error))


def headers_of(webhook: Webhook, notice_id: str, body: bytes, now: int) -> dict[str, str]:
    """The headers of one attempt made `now` (seconds since the epoch), the signature among them."""
    headers = {"Content-Type": "application/json", "User-Agent": "steno", "X-Steno-Notice": notice_id}
    if webhook.secret is not None:
        headers["X-Steno-Signature"] = sign(webhook.secret, now, body)
    return headers


def send(url: str, body: bytes, headers: dict[str, str]) -> tuple[int | None, str | None]:
    """(HTTP status, error); the address is not in the error."""
    import httpx

    try:
        with (
            Deadline(TOTAL) as deadline,
            httpx.Client(timeout=TIMEOUT) as client,
            client.stream("POST", url, content=body, headers=headers, extensions=deadline.extensions) as answer,
        ):
            status = answer.status_code  # the body is not read
    except httpx.RemoteProtocolError as error:
        # its text quotes what the server sent, which may repeat the address
        return None, f"no answer ({type(error).__name__}: not a proper answer)"
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return None, f"no answer ({type(error).__name__}: {error})".replace(url, "the webhook")
    return status, None if 200 <= status < 300 else f"the webhook answered {status}"
