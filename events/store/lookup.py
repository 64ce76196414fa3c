"""Values of a record by id, read when they are asked for: commitments of parts, names of streams."""

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, select

from events.store.schema import parts, streams

if TYPE_CHECKING:
    from sqlalchemy import Select

    from events.store.store import Session

_AHEAD: Final = 1_000  # rows read at once to look one up
_KEPT: Final = 200_000

_COMMITMENTS: Final = select(parts.c.id, parts.c.commitment).where(
    parts.c.id >= bindparam("first"), parts.c.id < bindparam("past")
)
_NAMES: Final = select(streams.c.id, streams.c.name).where(
    streams.c.id >= bindparam("first"), streams.c.id < bindparam("past")
)


class Lookup(dict[int, Any]):
    """Values by id, each read with those behind it. KeyError: there is none."""

    def __init__(self, session: "Session", query: "Select[Any]") -> None:
        super().__init__()
        self._session = session
        self._query = query

    @classmethod
    def commitments(cls, session: "Session") -> "Lookup":
        return cls(session, _COMMITMENTS)

    @classmethod
    def names(cls, session: "Session") -> "Lookup":
        return cls(session, _NAMES)

    def __missing__(self, key: int) -> Any:
        if len(self) > _KEPT:
            self.clear()
        found = dict(self._session.run(self._query, key, key + _AHEAD).fetchall())
        self.update(found)
        return found[key]
