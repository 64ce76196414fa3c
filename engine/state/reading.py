"""The port for reading answers: what a provider said, as facts in our own words.

A reading is pure: it gets a poll's path and request and the text of its answer. Unknown words, fields and types never
raise.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from steno.engine.state.facts import RunFacts, VmEvent, VmFacts
from steno.engine.state.run import Requirements
from steno.events.shape.shape import BodyShape

_KEEPS_IDLE: Final = b'"STENO_KEEP_IDLE":'  # a variable of a task; its value is a commitment


class Listing(StrEnum):
    """The kind of things that a question asks for."""

    RUNS = "runs"
    RUN = "run"  # one run, by id or name
    VMS = "vms"
    EVENTS = "events"  # the provider's own log
    OTHER = "other"  # nothing that is read


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The question of a poll: which list or thing, of whom, filtered how."""

    provider: str
    source: str  # `<provider>/<project>`, or `<provider>` if no single project is named
    listing: Listing
    endpoint: str = "other"  # the provider's name of the question, for display
    project: str | None = None
    watched: bool = False  # its polls show whether we are looking; False if only some servers answer
    only_active: bool = False
    filtered: bool = False  # by more than the project: absence from the answer means nothing
    page_after: str | None = None  # the id before the page; None: the first page
    limit: int = 1 << 62  # items of a full page; a shorter page is the last
    by_id: str | None = None
    by_name: str | None = None
    jobs_omitted: bool = False  # the answer has no job of any run
    attempts_limited: bool = False  # older attempts, and their cost, may be missing from the answer
    asked: bytes = b""  # the request, if items need it: the columns of a line
    witness: str | None = None  # the source among several that know different things of a run; see `together`
    covers: frozenset[str] | None = None  # runs this source has no more if unlisted (`*`: all); None: unknown


class Reading(ABC):
    """How one provider's answers are read. Its paths begin with `/<its name>/`, unless it is built in."""

    makes_all_vms: bool = False  # Steno made every machine of this provider
    own_machines: bool = False  # a run's machine ends with it: none is ever warm
    joins_items: bool = False  # several items of one answer can describe one run, for `joined`
    private: Mapping[str, str] = {}
    """Keys of answers and tasks (in text `Key=value`) → what an incident bundle may hide of their values: `names`,
    `commands` or `hosts`; `TYPE.KEY` is a key of an object with that `type`. What the facts have need not be here.
    """
    ids_recur: bool = False  # the provider gives an id again to another run: `is_same_run` tells them apart

    @abstractmethod
    def scope(self, path: str, req: bytes) -> Scope | None:
        """The question of a poll; None: the path is another provider's."""

    @abstractmethod
    def shape(self, path: str, req: bytes) -> BodyShape | None:
        """How the answer is cut into items; None: it is stored whole."""

    @abstractmethod
    def runs(self, item: bytes, scope: Scope) -> tuple[RunFacts, ...]:
        """The runs that one item of an answer shows, several for an array. Raises ValueError for an unreadable item."""

    @abstractmethod
    def vm(self, item: bytes, scope: Scope) -> VmFacts:
        """The machine that one item shows. Raises ValueError for an unreadable item."""

    # Below: defaults for a provider without the feature.

    def joined(self, rows: Sequence[RunFacts]) -> RunFacts:
        """A run as several items of an answer describe it, in order: its attempts, or what each source says of it.

        No item proves nothing: the source may not know the run, or not answer. Without `joins_items` the last item
        counts.
        """
        return rows[-1]

    def by_run(self, rows: Sequence[RunFacts]) -> Iterable[Sequence[RunFacts]]:
        """The items of one id in an answer, by run, in order of submission: with `ids_recur` they can be of several."""
        return (rows,)

    def is_same_run(
        self,
        known: RunFacts,
        seen: RunFacts,
        *,
        views: Mapping[str, RunFacts | None],
        listed: RunFacts | None,
        since: int | None,
    ) -> bool | None:
        """True if what an answer shows under the id of a known run (`views` as for `together`) is that run; None: only
        another source can say.

        `listed`: what the same source said of the known run `since` microseconds before; None: it did not list it.
        """
        return True

    def together(self, before: RunFacts, views: Mapping[str, RunFacts | None], *, back: bool) -> RunFacts:
        """A run by the newest answers of several sources; `before`: what was last known of it.

        `views`: by `Scope.witness`, in the order heard since one of them said something new; None: it is no longer
        listed. `back`: one of them was silent until a moment ago, and may answer what was true before.
        """
        return before

    def testimony(self, views: Mapping[str, RunFacts | None]) -> tuple[str, ...]:
        """A sentence for people for each source (`views` as for `together`): what it last said of a run, or that it is
        unknown.
        """
        return ()

    def title(self, path: str, req: bytes) -> str:
        """A question as text for people, if its path is long."""
        return path

    def machines(self, item: bytes, scope: Scope) -> tuple[VmFacts, ...]:
        """The machines that an item about runs shows, if each run has its own while it runs."""
        return ()

    def answered(self, path: str, req: bytes, status: int | None, body: bytes | None, error: str | None = None) -> bool:
        """True if the source answered: a 2xx. `error`: a command's error output."""
        return is_success(status, body)

    def says_not_exists(self, status: int | None, body: bytes | None) -> bool:
        return False

    def costs(self, item: bytes) -> Mapping[str, int | None]:
        """The provider's own cost of each run of an item: provider id → micro-dollars; None: it gives none."""
        return {}

    def configurations(self, item: bytes) -> Mapping[str, bytes]:
        """The configuration of each run of an item, as `terms` reads it: provider id → JSON text. Empty: not shown."""
        return {}

    def alternatives(self, facts: RunFacts) -> Iterable[tuple[str, RunFacts]]:
        """Answers that it could have given of a run instead, one change each: (`had the job exited 0`, the facts)."""
        return ()

    def quotes(self, item: bytes) -> Iterable[tuple[str, object]]:
        """Parts that `steno explain` quotes of a run's item: (`.jobs[0].exit_status`, the value), paths as in `jq`."""
        return ()

    def vm_event(self, item: bytes) -> VmEvent | None:
        """The status change of a machine that an item of the provider's log dates, if it dates one."""
        return None

    def terms(self, configuration: bytes, submitter: str, fallback: tuple[str, ...] = ()) -> Requirements:
        """The requirements of a task (JSON text); never raises. `fallback`: GPU models to ask for after those."""
        return Requirements(submitter=submitter, fallback=fallback)


class Readings:
    """The readings of all providers, found by the path of a poll."""

    def __init__(self, names: Iterable[str], of: Callable[[str], Reading | None]) -> None:
        """`names`: the built-in providers, tried in this order. `of`: the reading of a provider's present answers, by
        name; None: unknown name.
        """
        self._names = tuple(names)
        self.of = of
        self.asked = lru_cache(maxsize=4096)(self._ask)  # (path, request) → scope and reading, or None

    def _ask(self, path: str, req: bytes) -> tuple[Scope, Reading | None]:
        name = path.split("/", 2)[1] if path.startswith("/") else ""
        for provider in self._names if name in ("", "api") else (name, *self._names):
            reading = self.of(provider)
            scope = None if reading is None else reading.scope(path, req)
            if scope is not None:
                return scope, reading
        provider = path.partition(":")[0].strip("/") or "unknown"
        return Scope(provider=provider, source=provider, listing=Listing.OTHER), None

    def scope(self, path: str, req: bytes) -> Scope:
        """The question of a poll; `OTHER` for a path that no provider reads."""
        return self.asked(path, req)[0]

    def terms(
        self, provider: str, configuration: bytes, submitter: str, fallback: tuple[str, ...] = ()
    ) -> Requirements:
        reading = self.of(provider)
        if reading is None:
            return Requirements(submitter=submitter, fallback=fallback)
        terms = reading.terms(configuration, submitter, fallback)
        return replace(terms, keep_idle=True) if _KEEPS_IDLE in configuration else terms

    def source(self, path: str, req: bytes) -> str:
        return self.scope(path, req).source

    def title(self, path: str, req: bytes) -> str:
        """A question as text for people."""
        reading = self.asked(path, req)[1]
        return path if reading is None else reading.title(path, req)

    def shape(self, path: str, req: bytes) -> BodyShape | None:
        reading = self.asked(path, req)[1]
        return None if reading is None else reading.shape(path, req)

    def answered(self, path: str, req: bytes, status: int | None, body: bytes | None, error: str | None = None) -> bool:
        """True if the source answered; for a path that no provider reads, if it is a 2xx."""
        reading = self.asked(path, req)[1]
        return is_success(status, body) if reading is None else reading.answered(path, req, status, body, error)


def is_success(status: int | None, body: bytes | None) -> bool:
    """True if there is an answer, and it is a 2xx."""
    return status is not None and body is not None and 200 <= status < 300


class Seen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    facts: RunFacts
    cost: int | None = None
    """The provider's own figure, micro-dollars; changes at every poll. None too if it was not read yet."""


class Tick(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    position: int
    source: str  # who was asked, as the recorder named it
    scope: Scope
    started_at: int
    observed_at: int
    answered: bool
    runs: tuple[Seen, ...] = ()  # in the order of the answer, as `vms`
    vms: tuple[VmFacts, ...] = ()  # rows of machines, placeholders too
    events: tuple[VmEvent, ...] = ()  # status changes of machines that the provider dates
    not_exists: bool = False  # the source said `resource_not_exists`
    server_time: int | None = None
    """The provider's own clock (HTTP `Date`); used if something is shown for the first time."""
    odd: tuple[str, ...] = ()  # what of the answer could not be read
    imported: bool = False  # it was imported; asked of a source's first poll only
    archive: str | None = None  # its archive, filled in by the world; None: a live source
    unlike: Mapping[str, str] = {}
    """The provider's id → how its rows differ, of each thing with several rows in the answer; the world fills it in."""

    @property
    def asked(self) -> str:
        """The source that was asked, and which of the provider's own sources if it has several."""
        return self.source if self.scope.witness is None else f"{self.source} {self.scope.witness}"

    @property
    def ids(self) -> tuple[str, ...]:
        """The provider's ids of what the answer lists, in order."""
        return tuple([seen.facts.provider_id for seen in self.runs] or [facts.provider_id for facts in self.vms])
