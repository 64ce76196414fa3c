"""Plain JSON over HTTP, a connection a request: the lab's servers come and go, and assertions want the raw answer."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer. `json` is None where the body is not JSON."""

    status: int
    text: str

    @property
    def json(self) -> Any:
        try:
            return json.loads(self.text)
        except ValueError:
            return None


class Refused(AssertionError):
    """The server answered with an error."""

    def __init__(self, path: str, answer: Answer) -> None:
        super().__init__(f"{path} → {answer.status} {answer.text[:500]}")
        self.answer = answer


def ask(
    port: int, path: str, body: object = None, *, token: str | None = None, method: str = "POST", timeout: float = 120
) -> Answer:
    """Sends a request to a port of this machine.

    Raises:
        OSError: no answer.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        connection.request(method, path, json.dumps({} if body is None else body), headers)
        response = connection.getresponse()
        return Answer(status=response.status, text=response.read().decode())
    except http.client.HTTPException as error:
        raise OSError(f"{path}: {error!r}") from error
    finally:
        connection.close()
