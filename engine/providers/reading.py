"""The port for reading answers: what a provider said, as facts in our own words.

A reading is pure: it gets the path and the request of a poll and the text of its answer, and asks nobody. It never
raises on a word, field or type it does not know.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec

from engine.facts import RunFacts, VmEvent, VmFacts
from engine.requirements import Requirements
from events.shape.shape import BodyShape


class Listing(StrEnum):
    """What a question asks for."""

    RUNS = "runs"
    RUN = "run"  # one run, by id or name
    VMS = "vms"
    EVENTS = "events"  # the provider's own log
    OTHER = "other"  # nothing that is read


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The question of a poll: which list or thing, of whom, filtered how."""

    provider: str
    source: str  # `<provider>/<project>`, or `<provider>` where no single project is named
    listing: Listing
    endpoint: str = "other"  # the provider's own name of the question, for display
    project: str | None = None
    watched: bool = False
    """Its polls show whether we are looking. False for a question that not every server answers."""
    only_active: bool = False
    filtered: bool = False
    """Something beside the project narrows the list: absence from the answer means nothing."""
    page_after: str | None = None  # the id the page starts behind; None on the first page
    limit: int = 1 << 62  # items of a full page; a shorter page is the last one
    by_id: str | None = None
    by_name: str | None = None
    jobs_omitted: bool = False  # the answer shows no job of any run
    attempts_limited: bool = False
    """Older attempts may be missing from the answer, and with them their cost."""
    asked: bytes = b""
    """The request, where an item cannot be read without it: the columns of a line."""
    witness: str | None = None
    """Which of the provider's sources this is, where several know different things of one run; see `together`."""
    covers: frozenset[str] | None = None
    """Ids of runs that this source no longer has if its answer leaves them out (`*`: all); None: it proves nothing."""


class Reading(ABC):
    """How one provider's answers are read.

    The paths of a provider begin with `/<its name>/`, unless it is built in.
    """

    makes_all_vms: bool = False  # every machine of this provider was made by Steno
    own_machines: bool = False
    """Each run has a machine of its own, which ends with it: none is ever warm for the next."""
    joins_items: bool = False
    """Several items of one answer can describe one run: `joined` makes one run of them."""

    @abstractmethod
    def scope(self, path: str, req: bytes) -> Scope | None:
        """What a poll asked; None: the path is another provider's."""

    @abstractmethod
    def shape(self, path: str, req: bytes) -> BodyShape | None:
        """How the answer is cut into items; None: it is stored whole."""

    @abstractmethod
    def runs(self, item: bytes, scope: Scope) -> tuple[RunFacts, ...]:
        """The runs that one item of an answer shows: one, or as many as an array has.

        Raises:
            ValueError: the item cannot be read at all.
        """

    @abstractmethod
    def vm(self, item: bytes, scope: Scope) -> VmFacts:
        """The machine that one item shows.

        Raises:
            ValueError: the item cannot be read at all.
        """

    # What follows has an answer that suits a provider without it.

    def joined(self, rows: Sequence[RunFacts]) -> RunFacts:
        """One run, as several items of an answer describe it, in their order: its attempts, one a line, or what each
        of several sources says of it. A source that does not know the run, or could not be asked, has no item of it:
        that is not evidence of anything. Without `joins_items` the item that is furthest stands, as a contradiction.
        """
        return rows[-1]

    def together(self, before: RunFacts, views: Mapping[str, RunFacts | None], *, back: bool) -> RunFacts:
        """One run, as the newest answers of several sources describe it.

        Args:
            before: what was last known of it.
            views: by `Scope.witness`, in the order in which they were heard since one of them said something new; None:
                that source listed it, or another did, and it lists it no more.
            back: one of them was silent until a moment ago, and may answer what was true before.
        """
        return before

    def testimony(self, views: Mapping[str, RunFacts | None]) -> tuple[str, ...]:
        """Which of several sources says what of one run, and what remains unknown: a sentence each, for people.

        Args:
            views: as `together` gets them.
        """
        return ()

    def title(self, path: str, req: bytes) -> str:
        """A question as people read it, where its path is long."""
        return path

    def machines(self, item: bytes, scope: Scope) -> tuple[VmFacts, ...]:
        """The machines that an item about runs shows, where each run has its own while it runs."""
        return ()

    def answered(self, path: str, req: bytes, status: int | None, body: bytes | None, error: str | None = None) -> bool:
        """Whether the source told us something with this answer: a 2xx. `error`: what a command said instead."""
        return status is not None and body is not None and 200 <= status < 300

    def says_not_exists(self, status: int | None, body: bytes | None) -> bool:
        """Whether the answer says that the thing asked for does not exist."""
        return False

    def costs(self, item: bytes) -> Mapping[str, int | None]:
        """The provider's own cost of each run of an item: provider id → micro-dollars; None: it gives none."""
        return {}

    def alternatives(self, facts: RunFacts) -> Iterable[tuple[str, RunFacts]]:
        """What it could have said of a run instead, one thing changed each: (`had the job exited 0`, the facts)."""
        return ()

    def quotes(self, item: bytes) -> Iterable[tuple[str, object]]:
        """What `steno explain` quotes of a run's item: (`.jobs[0].exit_status`, the value), paths as `jq` has them."""
        return ()

    def vm_event(self, item: bytes) -> VmEvent | None:
        """The status change of a machine that an item of the provider's log dates; None: it dates none."""
        return None

    def terms(self, configuration: bytes, submitter: str, fallback: tuple[str, ...] = ()) -> Requirements:
        """What a task asks of its machine. Never raises.

        Args:
            configuration: the task as JSON text.
            fallback: the GPU models to ask for after the task's own.
        """
        return Requirements(submitter=submitter, fallback=fallback)


class Readings:
    """The readings of all providers. The path of a poll finds the one that reads it."""

    def __init__(
        self, readings: Mapping[str, Reading], installed: Callable[[str], Reading | None] = lambda _: None
    ) -> None:
        """
        Args:
            readings: of the built-in providers, by name. They are asked in this order whose path it is.
            installed: the reading of a provider of another package, by its name.
        """
        self._readings: Final = dict(readings)
        self._installed = installed
        self.asked = lru_cache(maxsize=4096)(self._ask)
        """(path, request) of a poll → what it asked, and the reading of its answer: None where nobody reads it."""

    def of(self, provider: str) -> Reading | None:
        """The reading of a provider's present answers; None: there is none of that name."""
        return self._readings.get(provider) or self._installed(provider)

    def _ask(self, path: str, req: bytes) -> tuple[Scope, Reading | None]:
        name = path.split("/", 2)[1] if path.startswith("/") else ""
        first = None if name in ("", "api") else self.of(name)
        for reading in (first, *self._readings.values()):
            scope = None if reading is None else reading.scope(path, req)
            if scope is not None:
                return scope, reading
        provider = path.partition(":")[0].strip("/") or "unknown"
        return Scope(provider=provider, source=provider, listing=Listing.OTHER), None

    def scope(self, path: str, req: bytes) -> Scope:
        """What a poll asked; `OTHER` for a path nobody reads."""
        return self.asked(path, req)[0]

    def terms(
        self, provider: str, configuration: bytes, submitter: str, fallback: tuple[str, ...] = ()
    ) -> Requirements:
        reading = self.of(provider)
        if reading is None:
            return Requirements(submitter=submitter, fallback=fallback)
        return reading.terms(configuration, submitter, fallback)

    def source(self, path: str, req: bytes) -> str:
        return self.scope(path, req).source

    def title(self, path: str, req: bytes) -> str:
        """A question as people read it."""
        reading = self.asked(path, req)[1]
        return path if reading is None else reading.title(path, req)

    def shape(self, path: str, req: bytes) -> BodyShape | None:
        reading = self.asked(path, req)[1]
        return None if reading is None else reading.shape(path, req)

    def answered(self, path: str, req: bytes, status: int | None, body: bytes | None, error: str | None = None) -> bool:
        """Whether the source told us something with this answer; of a path nobody reads, whether it is a 2xx."""
        reading = self.asked(path, req)[1]
        if reading is not None:
            return reading.answered(path, req, status, body, error)
        return status is not None and body is not None and 200 <= status < 300
