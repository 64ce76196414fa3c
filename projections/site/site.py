"""The records of a site, each with its service, and what it spends of the site's one budget."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.types import ASGIApp

from engine.decide.budget import committed, spent
from engine.policy import Policy
from events.errors import StenoError
from projections.api.feed.feed import STARTING
from projections.api.problems import Problem, problem_of
from projections.api.service import Elsewhere, Service
from projections.api.submission import wait_for_feed

RECORD = "record"  # the parameter that names a record
UNAVAILABLE = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One record of the site."""

    name: str
    service: Service
    app: ASGIApp  # answers every route for this record alone

    @property
    def trouble(self) -> str | None:
        """Why this record cannot be read now; None: it can, as far as is known."""
        found = self.service.feed.trouble
        return None if found == STARTING else found


@dataclass(frozen=True, slots=True)
class RecordSet:
    members: tuple[Member, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.members)

    @property
    def first(self) -> Member:
        """The record that keeps the site's tokens."""
        return self.members[0]

    def named(self, name: str) -> Member:
        """Raises `Problem` 400 if the site has no such record."""
        found = next((one for one in self.members if one.name == name), None)
        if found is None:
            raise Problem(400, f"record is {name[:60]!r}; it must be one of {', '.join(self.names)}", field=RECORD)
        return found

    def asked(self, request: Request) -> Member | None:
        """The record that a request names; None: it names none. Raises `Problem` 400."""
        given = request.query_params.getlist(RECORD)
        if len(given) > 1:
            raise Problem(400, f"{RECORD} is given more than once", field=RECORD)
        return self.named(given[0]) if given else None

    def choose(self, why: str) -> Problem:
        """The problem of a request that has to name a record."""
        names = ", ".join(self.names)
        return Problem(400, f"{why}: name one with ?{RECORD}=, one of {names}", field=RECORD)


def refused(error: Exception) -> str | None:
    """Why a record cannot be read now, if that is what an error says; other errors are the request's, or ours."""
    if not isinstance(error, StenoError | Problem):
        return None
    problem = problem_of(error)
    return problem.detail if problem.status == UNAVAILABLE else None


# -- one budget --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Budget:
    """What the records of a site spend together. A submission holds the lock from its decision to its append, so that
    two of this process never both count on the same money.
    """

    services: dict[str, Service] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def beside(self, name: str) -> Elsewhere:
        """What all records but this one spend."""

        @contextmanager
        def elsewhere(policy: Policy) -> Iterator[int]:
            if policy.budget_total is None:
                yield 0
                return
            with self._lock:
                yield sum(_spends(other, service, policy) for other, service in self.services.items() if other != name)

        return elsewhere


def _spends(name: str, service: Service, policy: Policy) -> int:
    """Micro-dollars that one record spent or may still spend. Raises `Problem` 503 if it cannot be read now."""
    try:
        wait_for_feed(service, service.feed.head())
        with service.feed.state() as state:
            return spent(state) + committed(state, policy, service.clock.now())
    except (StenoError, Problem) as error:
        detail = f"the budget is shared, and what record {name} spends cannot be read: {problem_of(error).detail}"
        raise Problem(503, detail, headers=(("Retry-After", "5"),)) from None
