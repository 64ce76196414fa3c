"""How the cloud behaves, in general and towards machines, images and runs of a certain name."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Times in seconds. The defaults are the fastest that still show every state a real machine goes through."""

    boot_s: float = 0.2  # from the order of a machine to its address
    shim_s: float = 0.1  # from then until dstack's agent answers
    pull_s: float = 0.2  # the image
    no_capacity: bool = False  # an order is refused as DigitalOcean refuses it
    create_error: int | None = None  # an order is answered with this HTTP status instead
    pull_error: bool = False  # the image cannot be pulled
    executor_error: bool = False  # the runner cannot set up the job's files
    ip: str | None = None  # the address of the next machine, to see one used again
    delete_s: float = 0.0  # how long the cloud takes to end the machine once told
    stubborn: bool = False  # the machine answers DELETE with 500: an orphan in the making


class Manners:
    """The general conduct and the rules of exception; safe to change and read from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._general = Behaviour()
        self._rules: dict[str, dict[str, Any]] = {}

    def configure(self, changes: dict[str, Any]) -> None:
        """Changes the general conduct.

        Raises:
            ValueError: there is no such trait.
        """
        _check(changes)
        with self._lock:
            self._general = replace(self._general, **changes)

    def rule(self, pattern: str, changes: dict[str, Any] | None) -> None:
        """Towards names that `pattern` finds (re.search), `changes` apply; None takes the rule back.

        Raises:
            ValueError: there is no such trait.
        """
        re.compile(pattern)
        _check(changes or {})
        with self._lock:
            if changes is None:
                self._rules.pop(pattern, None)
            else:
                self._rules[pattern] = {**self._rules.get(pattern, {}), **changes}

    def towards(self, name: str) -> Behaviour:
        """The conduct towards this droplet, container or run; a later rule wins over an earlier one."""
        with self._lock:
            conduct = self._general
            for pattern, changes in self._rules.items():
                if re.search(pattern, name):
                    conduct = replace(conduct, **changes)
            return conduct


TRAITS = frozenset(field.name for field in fields(Behaviour))


def _check(changes: dict[str, Any]) -> None:
    unknown = set(changes) - TRAITS
    if unknown:
        raise ValueError(f"no such trait: {', '.join(sorted(unknown))}; there are {', '.join(sorted(TRAITS))}")
