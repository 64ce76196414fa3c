"""The webhook: its address, what is sent to it, signed, and what it answers."""

import hashlib
import hmac
from dataclasses import dataclass, field

from engine.deadline import Deadline
from engine.settings.values import ALERTS
from events import types

TIMEOUT = 10.0  # seconds for each of connecting, writing and waiting for the answer
TOTAL = 30.0
"""Seconds for a whole attempt: at most four run at a time, and a slow answer would delay every other notice."""
Outcome = types.NoticeDelivered | types.NoticeFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Where notices go. The address may itself be a secret: it is never recorded or shown."""

    url: str = field(repr=False)
    secret: str | None = field(default=None, repr=False)  # the signing key; None: notices are not signed
    kinds: frozenset[str] = ALERTS  # the kinds of news it receives
    dashboard: str | None = None  # the address of our own service, for links; None: no links


def outcome_of(notice_id: str, attempt: int, status: int | None, error: str | None, *, final: bool) -> Outcome:
    """The outcome of an attempt as an event. `final`: a failed one is not retried."""
    if error is None:
        return types.NoticeDelivered(notice_id=notice_id, status=status or 200, attempt=attempt)
    return types.NoticeFailed(notice_id=notice_id, error=error, attempt=attempt, final=final)


def sign(secret: str, moment: int, body: bytes) -> str:
    """The value of `X-Steno-Signature`: `t=<unix seconds>,v1=<hex HMAC-SHA256 of "<t>.<body>">`."""
    digest = hmac.new(secret.encode(), b"%d." % moment + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={digest}"


def headers_of(webhook: Webhook, notice_id: str, body: bytes, now: int) -> dict[str, str]:
    """The headers of one attempt made `now` (seconds since the epoch), the signature among them."""
    headers = {"Content-Type": "application/json", "User-Agent": "steno", "X-Steno-Notice": notice_id}
    if webhook.secret is not None:
        headers["X-Steno-Signature"] = sign(webhook.secret, now, body)
    return headers


def send(url: str, body: bytes, headers: dict[str, str], who: str = "the webhook") -> tuple[int | None, str | None]:
    """(HTTP status, error); the address is not in the error, which calls it `who`."""
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
        return None, f"no answer ({type(error).__name__}: {error})".replace(url, who)
    return status, None if 200 <= status < 300 else f"{who} answered {status}"
