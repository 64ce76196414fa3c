"""A query for runs, and their order: one query for the command line, the API and the dashboard."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, Literal, NamedTuple
from zlib import crc32

import msgspec
from sqlalchemy import ColumnElement, Select, bindparam, func, or_, select, text, tuple_

from steno.engine.state.gpu_name import model_of
from steno.engine.state.states import Reason, State
from steno.engine.wire import Shape
from steno.events.errors import StenoError
from steno.projections.read_models.database import Database
from steno.projections.read_models.schema import RUN_GOES_ON, SHOWN, run_values, runs, vms

Sort = Literal["time", "name", "duration", "cost"]
SORTS: Final[tuple[Sort, ...]] = ("time", "name", "duration", "cost")
_LEAST_PREFIX: Final = 4  # characters of a machine's id that name it
NO_GPU: Final = "none"
_AFTER_ANY: Final = "\U0010ffff"
_NAMED: Final = 10  # known values that a message names
_SPECIAL: Final = re.compile(r"[*?[]")
_LONGEST: Final = 12_000  # characters of a search that are looked for; more make a pattern that SQLite refuses
_SHOWN: Final = 60  # characters of an unknown value that it repeats


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions that runs must all meet. Times are microseconds UTC, both included."""

    state: str | None = None
    reason: str | None = None
    user: str | None = None  # who submitted it
    project: str | None = None
    gpu: str | None = None  # `MI300X` or `MI300X:2`: what it got, else what it asked for; in any case
    machine: str | None = None  # its last machine: name, id, provider's id, or 4 or more first characters of the id
    source: str | None = None  # whose polls show it, or its archive
    name: str | None = None  # the whole name
    search: str = ""  # text in name, command or ids; in any case; no character is special
    since: int | None = None  # submitted, or else first seen
    until: int | None = None
    open_or_since: int | None = None  # has not ended (and is in no archive), or was submitted since then
    hidden: bool = False  # with runs of hidden archives
    sort: Sort = "time"
    turned: bool = False
    """False: newest, A to Z, longest or most expensive first; True: the other way round."""

    @property
    def filters(self) -> bool:
        """True if it has a condition, apart from `open_or_since` and `hidden`."""
        return any(value is not None for name, value in self.conditions() if name != "open_or_since")

    def conditions(self) -> Iterator[tuple[str, str | int | None]]:
        """(name, value) of every condition; None: it is not set."""
        yield from ((name, getattr(self, name)) for name in (*KNOWN, "name", "since", "until", "open_or_since"))
        yield "words", self.search.strip().lower() or None

    def checksum(self) -> int:
        """A number that differs for other runs and other orders."""
        return crc32(repr(msgspec.structs.replace(self, search=self.search.strip().lower())).encode())


KNOWN: Final = ("state", "reason", "user", "project", "gpu", "machine", "source")  # conditions with known values


class RowPlace(NamedTuple):
    """A run's place in an order."""

    key: int | str
    ordinal: int


class FilterValues(Shape, frozen=True, kw_only=True):
    """The values that a filter takes; of users, projects, GPUs and sources those that some run has or had."""

    states: tuple[str, ...]
    reasons: tuple[str, ...]
    users: tuple[str, ...]
    projects: tuple[str, ...]
    gpus: tuple[str, ...]
    sources: tuple[str, ...]


class UnknownValue(StenoError):
    """A filter names a value that no run has."""

    def __init__(self, filter_: str, sentence: str) -> None:
        super().__init__(sentence)
        self.filter = filter_


_INDEXED: Final = {"name", "since", "until", "open_or_since"}
_KEYS: Final[dict[Sort, ColumnElement[Any]]] = {  # what is unknown comes last, or first if turned
    "time": runs.c.sort_at,
    "name": func.substr(func.coalesce(runs.c.name, text("''")), text("1"), text("200")),
    "duration": func.coalesce(runs.c.took, text("-1")),
    "cost": func.coalesce(runs.c.cost, text("-1")),
}
_MACHINES: Final = select(vms.c.vm_id).where(
    or_(
        *(column == bindparam("machine") for column in (vms.c.name, vms.c.vm_id, vms.c.provider_id)),
        vms.c.vm_id.between(bindparam("machine_begins"), bindparam("machine_ends")),
    )
)
_CONDITIONS: Final[dict[str, ColumnElement[bool]]] = {
    **{name: runs.c[name] == bindparam(name) for name in ("state", "reason", "user", "project", "source", "name")},
    "gpu": func.instr(runs.c.gpu, bindparam("gpu")) > text("0"),
    "machine": runs.c.vm_id.in_(_MACHINES),
    "words": runs.c.words.op("GLOB")(bindparam("words")),  # half the time of `instr`, which compares letter by letter
    "since": runs.c.sort_at >= bindparam("since"),
    "until": runs.c.sort_at <= bindparam("until"),
    "open_or_since": or_(text(f"({RUN_GOES_ON})"), runs.c.sort_at >= bindparam("open_or_since")),
}


def find(database: Database, query: RunQuery, limit: int, behind: RowPlace | None = None) -> list[tuple[str, RowPlace]]:
    """(run id, place) of at most `limit` runs in the order of the query, after the place `behind`."""
    conditions, values = _given(query)
    if behind is not None:
        values |= {"behind_key": behind.key, "behind_ordinal": behind.ordinal}
    is_table = database.last_place is None
    statement = _statement(conditions, query.sort, query.turned, query.hidden, behind is not None, is_table)
    return [(row[0], RowPlace(row[1], row[2])) for row in database.execute(statement, limit=limit, **values)]


def filter_values(database: Database) -> FilterValues:
    """The values that conditions can have, apart from machines."""
    known: dict[str, list[str]] = {"user": [], "project": [], "gpu": [], "source": []}
    for kind, value in database.execute(_VALUES):
        known[kind].append(value.upper() if kind == "gpu" and value != NO_GPU else value)
    return FilterValues(
        states=tuple(state.value for state in State),
        reasons=tuple(reason.value for reason in Reason),
        **{f"{kind}s": tuple(dict.fromkeys(values)) for kind, values in known.items()},
    )


def check_known(database: Database, query: RunQuery) -> None:
    """Raises `UnknownValue` for the first condition whose value no run has; before the first run none is unknown."""
    values = filter_values(database)
    for name in KNOWN if values.sources else ():
        value = getattr(query, name)
        if value is None or _is_known(database, name, value, values):
            continue
        machines = [row[0] for row in database.execute(_VM_NAMES)] if name == "machine" else []
        there = machines if name == "machine" else getattr(values, f"{name}s")
        more = f" and {len(there) - _NAMED} more" if len(there) > _NAMED else ""
        listed = f"{', '.join(there[:_NAMED])}{more}" if there else "none"
        cut = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
        raise UnknownValue(name, f"unknown {name} {cut!r}; known: {listed}")


def _is_known(database: Database, name: str, value: str, values: FilterValues) -> bool:
    match name:
        case "machine":
            return database.first(_MACHINES, **_given(RunQuery(machine=value))[1]) is not None
        case "gpu":
            return model_of(value).partition(":")[0] in map(str.upper, values.gpus)
        case _:
            return value in getattr(values, f"{name}s")


_VM_NAMES: Final = (
    select(vms.c.name).where(vms.c.name.is_not(None)).group_by(vms.c.name).order_by(func.max(vms.c.ordinal).desc())
)
_VALUES: Final = select(run_values.c.kind, run_values.c.value).order_by(run_values.c.kind, run_values.c.value)


def _text(value: str) -> str:
    """Text that the database takes: a command line may hold bytes that are not text."""
    return value.encode("utf-8", "replace").decode()


def _given(query: RunQuery) -> tuple[tuple[str, ...], dict[str, str | int]]:
    """(the conditions that are set, their parameters)."""
    given = {name: value for name, value in query.conditions() if value is not None}
    parameters = {name: _text(value) if isinstance(value, str) else value for name, value in given.items()}
    if query.machine is not None:
        begins = _text(query.machine) if len(query.machine) >= _LEAST_PREFIX else _AFTER_ANY
        parameters |= {"machine_begins": begins, "machine_ends": begins + _AFTER_ANY}
    if "words" in parameters:
        parameters["words"] = _anywhere(str(parameters["words"]))
    if query.gpu is not None:
        parameters["gpu"] = f"\n{_text(model_of(query.gpu).lower())}\n"
    return tuple(given), parameters


def _anywhere(words: str) -> str:
    """The pattern of GLOB for a text that has this one in it. For GLOB a text ends at NUL, so that
    `search_words` writes U+FFFD for it.
    """
    literal = _SPECIAL.sub(r"[\g<0>]", words[:_LONGEST].replace("\0", "\ufffd"))
    return f"*{literal}*"


@cache
def _statement(
    conditions: tuple[str, ...], sort: Sort, turned: bool, hidden: bool, behind: bool, is_table: bool
) -> Select[Any]:
    place = (_KEYS[sort], runs.c.ordinal)
    down = turned if sort == "name" else not turned
    made = select(runs.c.run_id, *place).where(*(_CONDITIONS[name] for name in conditions))
    if not hidden:
        made = made.where(text(SHOWN))
    if behind:
        seen = tuple_(bindparam("behind_key"), bindparam("behind_ordinal"))
        made = made.where(tuple_(*place) < seen if down else tuple_(*place) > seen)
    # Reading all rows as they lie and sorting a few beats their order. A past moment is a view, without an index.
    if is_table and conditions and not _INDEXED.intersection(conditions):
        made = made.with_hint(runs, "NOT INDEXED", "sqlite")
    return made.order_by(*(key.desc() if down else key for key in place)).limit(bindparam("limit"))
