"""Routes: where notices go, which of them, and when; and their delivery by apprise, for what is not a web address."""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import unescape
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec

from steno.engine.errors import NotConfigured
from steno.engine.settings.values import ALERTS, DAY_MINUTES, QuietHours
from steno.events.clock import SECOND
from steno.events.installation import installing

if TYPE_CHECKING:
    from apprise import NotifyBase

TIMEOUT = 15.0  # seconds for each of connecting, writing and waiting for the answer
_TITLE, _REASON = 100, 300  # characters of a subject, and of a reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where notices go, and which. The address may itself be a secret: it is never recorded or shown."""

    url: str = field(repr=False)
    name: str = ""  # as in the settings; "": the webhook of `alerts.webhook`
    secret: str | None = field(default=None, repr=False)  # the signing key; None: notices are not signed
    kinds: frozenset[str] = ALERTS  # the kinds of news it receives
    dashboard: str | None = None  # the address of our own service, for links; None: no links
    owner: str | None = None  # it gets news of the runs of this user only; None: of all
    quiet: QuietHours | None = None  # when it gets urgent news only; None: never
    patience: int | None = None  # a run that waited for longer than this (microseconds) is news; None: it is not

    @property
    def posts(self) -> bool:
        """True if notices are posted there, signed; else apprise delivers them."""
        return self.url.startswith(("http://", "https://"))

    @property
    def who(self) -> str:
        """The name of its receiver in messages."""
        return f"the receiver of {self.name}" if self.name else "the webhook"

    @property
    def marks(self) -> frozenset[str]:
        """The kinds it receives, as `AlertsAdopted` names them."""
        return frozenset(f"{self.name}/{kind}" if self.name else kind for kind in self.kinds)


def quiet_left(quiet: QuietHours | None, now: int) -> int:
    """Microseconds until the quiet hours are over that `now` is in; 0: it is in none."""
    if quiet is None:
        return 0
    local = datetime.fromtimestamp(now / SECOND, UTC).astimezone(quiet.zone)
    passed = (60 * local.hour + local.minute) * 60 * SECOND + local.second * SECOND + local.microsecond
    day = DAY_MINUTES * 60 * SECOND
    left, length = ((quiet.until * 60 * SECOND - begin) % day for begin in (passed, quiet.since * 60 * SECOND))
    return left if left <= length else 0


# -- apprise


class _Content(msgspec.Struct):
    """The part of the body of a notice that people read."""

    text: str
    notice_id: str
    at: str
    lines: tuple[str, ...] = ()  # of a digest


def check_route(route: Route) -> None:
    """Raise NotConfigured if apprise is not installed or does not understand the address, which is not shown."""
    if route.posts:
        return
    if find_spec("apprise") is None:
        raise NotConfigured(f"notify.{route.name}.url needs apprise: `{installing('notices')}`")
    if _service(route) is None:
        raise NotConfigured(
            f"apprise does not understand notify.{route.name}.url ({route.url.partition('://')[0]}://…); compare it "
            f"with mailto://user:password@server?from=steno@example.org&to=you@example.org"
        )


def deliver(route: Route, body: bytes) -> tuple[int | None, str | None]:
    """(0, None) if apprise delivered the notice, else (None, error); no secret of the address is in the error."""
    import apprise

    service, sender = _service(route), apprise.Apprise()
    assert service is not None  # noqa: S101 - `check_route` refuses others
    sender.add(service)
    content = msgspec.json.decode(body, type=_Content)
    text = unescape(content.text)
    try:
        result = sender.notify(
            title=text if len(text) <= _TITLE else text[: _TITLE - 1] + "…",
            body="\n".join((text, *content.lines, "", f"notice {content.notice_id}, {content.at[:19]}Z")),
            body_format=apprise.NotifyFormat.TEXT,
        )
    except Exception as error:  # noqa: BLE001 - apprise has a hundred plugins, and any may raise anything
        return None, f"not delivered; {type(error).__name__}"
    if result:
        return 0, None
    reason = [entry.message for entry in result.logs()][-1:]
    # Of a mail server only the password is secret; in other addresses a token may stand anywhere.
    secrets = [service.password] if route.url.startswith("mailto") else re.split(r"[/:@?&=]+", route.url)[1:]
    for secret in filter(None, secrets):
        reason = [line.replace(str(secret), "…") for line in reason]
    return None, "; ".join(["not delivered", *(line[:_REASON] for line in reason)])


def _service(route: Route) -> "NotifyBase | None":
    """The service of apprise at the address; None: it does not understand it."""
    import apprise

    apprise.logger.propagate = False  # its lines may show parts of the address
    service = apprise.Apprise.instantiate(route.url, suppress_exceptions=True)
    if service:
        service.socket_connect_timeout = service.socket_read_timeout = TIMEOUT
    return service or None
