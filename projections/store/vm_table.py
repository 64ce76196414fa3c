"""The machines of an open store."""

from collections.abc import Iterator
from typing import Final

from sqlalchemy import func, select, text

from projections.store.row_table import RowTable
from projections.store.schema import SHOWN, VM_GOES_ON, VmRow, vms

_KINDS: Final = select(vms.c.kind, func.max(vms.c.last_at)).group_by(vms.c.kind)
_LIVE: Final = text("archive IS NULL")
_SPENT: Final = select(func.sum(vms.c.cost), func.min(vms.c.created)).where(_LIVE)
_SPANS: Final = select(vms.c.spans).where(_LIVE)
_PAID: Final = select(vms.c.ordinal, vms.c.vm_id, vms.c.name, vms.c.paid, vms.c.archive).where(text(SHOWN))


class VmTable(RowTable[VmRow]):
    """Machines, found by any word a person has for one."""

    row = VmRow
    table = vms
    key = "vm_id"
    live = VM_GOES_ON
    since = "ended_at"
    listed_by = "+ordinal"  # few of many: the indexes find them, and they are sorted

    def _named(self, name: str) -> VmRow | None:
        """The newest of that name, one that may be billed before one that is gone."""
        return self._first("name = :word AND billed = 1", word=name) or super()._named(name)

    def newest(self) -> VmRow | None:
        """The machine first seen last that is not hidden; one that is live before any of an archive."""
        return self._first(SHOWN)

    def kinds(self) -> tuple[VmRow, ...]:
        """Of each kind the machine that was seen last."""
        condition = "kind = :kind AND last_at = :last_at"
        pairs = self._database.execute(_KINDS).fetchall()
        return tuple(next(self._rows(condition, limit=1, kind=kind, last_at=last_at)) for kind, last_at in pairs)

    def spent(self) -> tuple[int, int | None]:
        """(micro-dollars of all live machines so far, when the first was created)."""
        total, first = self._database.first(_SPENT)
        return total or 0, first

    def spans(self) -> Iterator[bytes]:
        """What every live machine cost when, as `VmRow.spans`."""
        return (row[0] for row in self._database.execute(_SPANS))

    def paid(self) -> list[tuple[int, str, str | None, bytes, str | None]]:
        """(place, vm id, name, what its bill is made of, archive) of every machine that is not hidden, in order of
        first sight.
        """
        return sorted(self._database.execute(_PAID).fetchall(), key=lambda row: row[0])
