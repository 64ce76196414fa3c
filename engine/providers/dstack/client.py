"""One keep-alive HTTP client of one dstack server; whatever the server does, a call gives an `HttpAnswer`."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import IO, TYPE_CHECKING, Any

import msgspec

from engine.deadline import Deadline
from engine.providers.dstack.answer import HttpAnswer
from engine.providers.dstack.settings import Address
from events.clock import SECOND, Clock

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT = 5.0
"""Seconds to a connection."""
READ_TIMEOUT = 30.0
"""Seconds without a byte."""
POLL_TIMEOUT = 20.0
"""Seconds without a byte that a poll waits, and twice as long for all of it: whoever else is asked in the same round is
asked again before its source counts as stale."""
TOTAL_TIMEOUT = 120.0
"""Seconds for a question and its whole answer, a second try included."""
UPLOAD_TIMEOUT = 900.0
"""As `TOTAL_TIMEOUT`, where a file is sent."""
LARGEST = 32 * 1024 * 1024
"""Bytes of an answer we are ready to hold; a page of 100 runs has 0.6 MB."""
KEEP_ALIVE = 4.0
"""Seconds an idle connection is trusted; dstack's HTTP server closes it after 5."""


class Client:
    """Asks, with our token, without a version header: dstack checks versions only where a client names its own."""

    def __init__(
        self,
        address: Address,
        clock: Clock,
        *,
        read_timeout: float = READ_TIMEOUT,
        total_timeout: float | None = None,
    ) -> None:
        """`total_timeout`: seconds for a whole answer where that is less than `TOTAL_TIMEOUT`."""
        self.address = address
        self.clock = clock
        self._read_timeout = read_timeout
        self._total_timeout = total_timeout
        self._http: httpx.Client | None = None
        self._connection: Any = None

    def ask(self, path: str, body: object = None, *, again: bool = True, patience: float | None = None) -> HttpAnswer:
        """POST `body` (None: `{}`) as JSON.

        Args:
            path: `/api/...`.
            body: anything msgspec can encode.
            again: the question changes nothing at the server, so it is put once more if the connection was cut under
                it. With False a fresh connection is used and the question is put exactly once.
            patience: seconds without a byte to bear, where the server itself has to ask a cloud first.
        """
        content = msgspec.json.encode(body if body is not None else {})
        return self._send(path, content=content, again=again, patience=patience)

    def upload(self, path: str, file: IO[bytes], name: str, *, params: Mapping[str, str] | None = None) -> HttpAnswer:
        """POST one file as a form, the way `dstack apply` sends code and archives; putting it twice is harmless."""
        return self._send(path, file=(name, file), params=params, again=True)

    def close(self) -> None:
        """Drop the connection; the next question opens a new one."""
        if self._http is not None:
            self._http.close()
            self._http = None
            self._connection = None

    def _send(
        self,
        path: str,
        *,
        content: bytes | None = None,
        file: tuple[str, IO[bytes]] | None = None,
        params: Mapping[str, str] | None = None,
        again: bool,
        patience: float | None = None,
    ) -> HttpAnswer:
        import httpx

        if not again:
            self.close()
        started = self.clock.now()
        total = UPLOAD_TIMEOUT if file is not None else min(TOTAL_TIMEOUT, self._total_timeout or TOTAL_TIMEOUT)
        with Deadline(total, self._connection) as deadline:
            for last in (False, True) if again else (True,):
                try:
                    return self._once(path, content, file, params, started, patience or self._read_timeout, deadline)
                except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
                    self.close()
                    if deadline.passed:
                        return self._none(started, httpx.ReadTimeout(f"answer not whole after {total:g} s"))
                    if last or not isinstance(error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError):
                        return self._none(started, error)
                    if file is not None:
                        file[1].seek(0)
                finally:
                    self._connection = deadline.connection
        raise AssertionError("unreachable")

    def _once(
        self,
        path: str,
        content: bytes | None,
        file: tuple[str, IO[bytes]] | None,
        params: Mapping[str, str] | None,
        started: int,
        patience: float,
        deadline: Deadline,
    ) -> HttpAnswer:
        import httpx

        url = self.address.url + path
        build = partial(
            self._client().build_request,
            "POST",
            url,
            timeout=httpx.Timeout(patience, connect=CONNECT_TIMEOUT),
            extensions=deadline.extensions,
        )
        if file is not None:
            request = build(files={"file": file}, params=dict(params or {}))
        else:
            request = build(content=content, headers={"Content-Type": "application/json"})
        response = self._client().send(request, stream=True)
        try:
            coding = response.headers.get("content-encoding", "identity")
            if coding.strip().lower() not in ("", "identity"):
                # 18 kB of zstd unpack to 600 MB, in one piece; we ask for plain answers, so none is needed
                raise httpx.DecodingError(f"answer packed as {coding[:40]!r}, which we did not accept")
            whole = bytearray()
            for piece in response.iter_raw():
                whole += piece
                if len(whole) > LARGEST:
                    raise httpx.DecodingError(f"answer larger than {LARGEST} bytes")
            if deadline.passed:  # without a length, the cut looks like the end
                raise httpx.ReadTimeout("answer cut")
        finally:
            response.close()
        if response.status_code >= 500:
            # after a 500 dstack resets the connection under the next request
            self.close()
        return HttpAnswer(
            started_at=started,
            observed_at=self.clock.now(),
            status=response.status_code,
            body=self._without_token(bytes(whole)),
            server_time=_date(response.headers.get("date")),
        )

    def _none(self, started: int, error: Exception) -> HttpAnswer:
        import httpx

        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        reason = reason.replace(self.address.token, "***")[:300]
        sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.InvalidURL)
        return HttpAnswer(started_at=started, observed_at=self.clock.now(), status=None, error=reason, sent=sent)

    def _without_token(self, body: bytes) -> bytes:
        """A server (or a proxy's debug page) that repeats our token does not get it into a record."""
        token = self.address.token.encode()
        return body.replace(token, b"***") if len(token) >= 8 and token in body else body

    def _client(self) -> httpx.Client:
        if self._http is None:
            import httpx

            self._http = httpx.Client(
                headers={
                    "Authorization": f"Bearer {self.address.token}",
                    "Accept": "application/json",
                    "Accept-Encoding": "identity",
                },
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                limits=httpx.Limits(max_connections=2, max_keepalive_connections=1, keepalive_expiry=KEEP_ALIVE),
                follow_redirects=False,
                trust_env=not self.address.loopback,
            )
        return self._http


def _date(header: str | None) -> int | None:
    if not header:
        return None
    try:
        return int(parsedate_to_datetime(header).timestamp()) * SECOND
    except (ValueError, TypeError, OverflowError):
        return None
