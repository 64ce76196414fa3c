"""One listener as its engine sees it: requests over a way through the provider beneath, and its list of tasks."""

import threading
from collections.abc import Callable
from typing import Any, Final

import httpx

from engine.errors import ProviderError, ProviderUnreachable
from engine.kernel.held_machine import HeldMachine
from engine.providers.base import Way
from events.clock import SECOND, Clock
from events.errors import StenoError

WAIT: Final = 20.0  # seconds that a listener waits for news
_PATIENCE: Final = 10.0  # seconds for an answer
_AGAIN: Final = SECOND // 5  # microseconds after a failure
_SLOWEST: Final = 5 * SECOND


class Connection:
    """Requests to one listener. Thread-safe."""

    def __init__(self, machine: HeldMachine, token: str, reach: Callable[[], Way]) -> None:
        self._machine = machine
        self._token = token
        self._reach = reach
        self._way: Way | None = None
        self._client: httpx.Client | None = None
        self._lock = threading.Lock()

    def ask(
        self, method: str, path: str, body: object = None, *, wait: float = 0.0, again: bool = False
    ) -> tuple[int, dict[str, Any]]:
        """Status and object of an answer. `again`: a second time if the first was lost, which does no harm.

        Raises:
            ProviderUnreachable, ProviderError: no answer, or no JSON.
        """
        name = self._machine.name
        try:
            answer = self._opened().request(method, path, json=body, timeout=_PATIENCE + wait)
            said = answer.json()
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: another thread closed the client
            self.close()
            if again:
                return self.ask(method, path, body, wait=wait)
            unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            why = str(error) or type(error).__name__
            raise ProviderUnreachable(f"no answer from the machine {name} ({why})", sent=not unsent) from None
        except ValueError:
            raise ProviderError(f"the machine {name} did not answer JSON ({answer.status_code})") from None
        if answer.status_code == 401:
            raise ProviderError(f"the machine {name} belongs to another engine: it refuses the token")
        return answer.status_code, said

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._way is not None:
            self._way.close()
        self._client = self._way = None

    def _opened(self) -> httpx.Client:
        with self._lock:
            if self._client is not None and self._way is not None and self._way.open:
                return self._client
            self._close()
            self._way = self._reach()
            headers = {"Authorization": f"Bearer {self._token}"}
            address = f"http://{self._way.host}:{self._way.port}"
            self._client = httpx.Client(base_url=address, headers=headers, trust_env=False)
            return self._client


class Watcher:
    """Follows the list of tasks of one listener in a thread of its own, from the first answer on."""

    def __init__(self, connection: Connection, clock: Clock, changed: Callable[[], None]) -> None:
        self._connection = connection
        self._clock = clock
        self._changed = changed
        self._over = False
        self.heard = False  # it has answered
        self.silent = False  # it does not answer now
        self.trouble = ""  # why not
        self.tasks: tuple[dict[str, Any], ...] = ()
        threading.Thread(target=self._watch, name="steno-listener-watch", daemon=True).start()

    def end(self) -> None:
        """Watch no more; what was heard stays."""
        self._over = True
        self._connection.close()

    def _watch(self) -> None:
        version, failures = 0, 0
        while not self._over:
            try:
                path = f"/tasks?known={version}&wait={WAIT if version else 0:g}"
                status, said = self._connection.ask("GET", path, wait=WAIT)
                if status != 200:
                    raise ProviderError(str(said.get("detail")))
                version, failures = int(said["version"]), 0
                self._note(tasks=tuple(said["tasks"]), heard=True, silent=False, trouble="")
            except (StenoError, KeyError, TypeError, ValueError) as error:
                failures, version = failures + 1, 0
                self._note(silent=failures > 1, trouble=str(error))
                self._clock.sleep(min(_SLOWEST, _AGAIN * failures))

    def _note(self, **found: Any) -> None:
        if any(getattr(self, name) != value for name, value in found.items()):
            for name, value in found.items():
                setattr(self, name, value)
            self._changed()
