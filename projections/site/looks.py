"""One look at every record of a site, for reads that are made of all of them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import msgspec

from projections.api.parameters import Asked
from projections.api.problems import Problem
from projections.api.reads.read import look
from projections.models.reader_pool import Look
from projections.site.places import moments_of, positions_of, text_of
from projections.site.site import UNAVAILABLE, Member, RecordSet, refused


class SeenRecord(NamedTuple):
    """One record at the moment asked for."""

    member: Member
    look: Look
    asked: Asked  # the parameters, as this record alone takes them


class Looks(NamedTuple):
    """Every record that can be read, and why the others cannot."""

    seen: Sequence[SeenRecord]
    missing: dict[str, str]  # record → why it is left out

    def answer(self, body: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """An answer with its positions, and with what it lacks."""
        positions = {one.member.name: one.look.position for one in self.seen if one.member.name not in self.missing}
        records = [
            {"record": name, "position": positions.get(name), "trouble": self.missing.get(name)} for name in names
        ]
        return {**body, "position": text_of(positions), "records": records}


@contextmanager
def looks(site: RecordSet, asked: Asked) -> Iterator[Looks]:
    """Look at all records; blocks: call it in a worker thread. A record that cannot be read is left out and named.
    Raises `Problem`: 400 a wrong moment; 503 no record can be read.
    """
    names = site.names
    missing = {one.name: trouble for one in site.members if (trouble := one.trouble) is not None}
    there = [name for name in names if name not in missing]  # a position read meanwhile lacks the others
    at = {} if asked["at"] is None else moments_of(asked["at"], names, there)
    least = asked["min_position"]
    needed = {} if least is None else positions_of(least, names, "min_position", needed=())
    seen: list[SeenRecord] = []
    with ExitStack() as stack:
        for member in site.members:
            own = {**asked, "at": at.get(member.name), "min_position": needed.get(member.name)}
            if member.name in missing:
                continue
            try:
                seen.append(SeenRecord(member, stack.enter_context(look(member.service, own)), own))
            except Exception as error:  # noqa: BLE001 - sorted by what it says
                why = refused(error)
                if why is None:
                    raise _of(member, error) from None
                missing[member.name] = why
        if not seen:
            raise Problem(UNAVAILABLE, said(missing), headers=(("Retry-After", "1"),))
        yield Looks([one._replace(look=_at_once(one.look, seen)) for one in seen], missing)


def said(missing: Mapping[str, str]) -> str:
    return "; ".join(f"record {name}: {why}" for name, why in missing.items())


def _of(member: Member, error: Exception) -> Exception:
    """A problem that says which record has it."""
    if isinstance(error, Problem):
        error.detail = f"record {member.name}: {error.detail}"
    return error


def _at_once(found: Look, seen: Sequence[SeenRecord]) -> Look:
    """All records are seen from the same moment: the latest."""
    return msgspec.structs.replace(found, now=max(one.look.now for one in seen))
