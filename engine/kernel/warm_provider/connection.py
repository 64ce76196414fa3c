"""The engine's side of a listener: requests over a way through the provider beneath, and the list of its tasks."""

import threading
from collections.abc import Callable
from typing import Any, Final

import httpx

from steno.engine.errors import ProviderError, ProviderUnreachable
from steno.engine.providers.base import Way
from steno.events.clock import SECOND, Clock
from steno.events.errors import StenoError

WAIT: Final = 20.0  # seconds that a listener waits for news
_PATIENCE: Final = 10.0  # seconds for an answer
_AGAIN: Final = SECOND // 5  # microseconds after a failure
_SLOWEST: Final = 5 * SECOND


class Connection:
    """Requests to one listener. Thread-safe. Its tasks are followed once it is watched, from the first answer on."""

    def __init__(self, name: str, token: str, reach: Callable[[], Way]) -> None:
        self._name = name
        self._headers = {"Authorization": f"Bearer {token}"}
        self._reach = reach
        self._open: tuple[Way, httpx.Client] | None = None
        self._lock = threading.RLock()
        self._watched = self._over = False
        self.heard = False  # it has answered
        self.silent = False  # it does not answer now
        self.trouble = ""  # why not
        self.tasks: tuple[dict[str, Any], ...] = ()

    def ask(
        self, method: str, path: str, body: object = None, *, wait: float = 0.0, again: bool = False
    ) -> tuple[int, dict[str, Any]]:
        """Status and object of an answer. `again`: a second time if the first was lost, which does no harm.

        Raises:
            ProviderUnreachable, ProviderError: no answer, or no JSON.
        """
        try:
            response = self._client().request(method, path, json=body, timeout=_PATIENCE + wait)
            answer = response.json()
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: another thread closed the client
            self.close()
            if again:
                return self.ask(method, path, body, wait=wait)
            unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            why = str(error) or type(error).__name__
            raise ProviderUnreachable(f"no answer from the machine {self._name} ({why})", sent=not unsent) from None
        except ValueError:
            raise ProviderError(f"the machine {self._name} did not answer JSON ({response.status_code})") from None
        if response.status_code == 401:
            raise ProviderError(f"the machine {self._name} belongs to another engine: it refuses the token")
        return response.status_code, answer

    def watch(self, clock: Clock, changed: Callable[[], None]) -> None:
        """Follow its list of tasks in a thread; `changed` is called there. Nothing to do if it is followed already."""
        if not self._watched:
            self._watched = True
            threading.Thread(target=self._follow, args=(clock, changed), name="steno-listener", daemon=True).start()

    def end(self) -> None:
        """Watch no more; the last answers stay."""
        self._over = True
        self.close()

    def close(self) -> None:
        with self._lock:
            if self._open is not None:
                way, client = self._open
                client.close()
                way.close()
            self._open = None

    def _client(self) -> httpx.Client:
        with self._lock:
            if self._open is None or not self._open[0].open:
                self.close()
                way = self._reach()
                address = f"http://{way.host}:{way.port}"
                self._open = way, httpx.Client(base_url=address, headers=self._headers, trust_env=False)
            return self._open[1]

    def _follow(self, clock: Clock, changed: Callable[[], None]) -> None:
        version, failures = 0, 0
        while not self._over:
            before = (self.heard, self.silent, self.trouble, self.tasks)
            try:
                path = f"/tasks?known={version}&wait={WAIT if version else 0:g}"
                status, answer = self.ask("GET", path, wait=WAIT)
                if status != 200:
                    raise ProviderError(str(answer.get("detail")))
                version, failures, self.tasks = int(answer["version"]), 0, tuple(answer["tasks"])
                self.heard, self.silent, self.trouble = True, False, ""
            except (StenoError, KeyError, TypeError, ValueError) as error:
                version, failures = 0, failures + 1
                self.silent, self.trouble = failures > 1, str(error)
            if before != (self.heard, self.silent, self.trouble, self.tasks):
                changed()
            if failures:
                clock.sleep(min(_SLOWEST, _AGAIN * failures))
