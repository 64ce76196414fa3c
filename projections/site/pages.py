"""One page of a list over all records, in the list's own order."""

from typing import Any

import msgspec

from projections.api.parameters import Asked
from projections.api.problems import Problem
from projections.api.reads.read import PageRow, Read, RowPage
from projections.site.looks import Looks, SeenRecord
from projections.site.places import places_of, text_of
from projections.site.site import RECORD, refused
from projections.store.run_query import KNOWN


def merged_page(read: Read, looks: Looks, asked: Asked, names: tuple[str, ...]) -> dict[str, Any]:
    """Pages of every record, merged by the keys of their first rows, so that each record keeps its own order. The
    cursor has one place a record: behind the last row shown of it.
    """
    before = dict.fromkeys(names, "") if asked["cursor"] is None else places_of(asked["cursor"], names, "cursor")
    pages: dict[str, RowPage] = {}
    unknown: dict[str, Problem] = {}
    for seen in looks.seen:
        name = seen.member.name
        try:
            pages[name] = _page(read, seen, before[name])
        except Problem as problem:
            if problem.field not in KNOWN:
                raise
            unknown[name] = problem  # a value that this record does not know, and another one may
        except Exception as error:
            if (why := refused(error)) is None:
                raise
            looks.missing[name] = why
    if not pages and unknown:
        raise Problem(400, _everywhere(unknown), field=next(iter(unknown.values())).field)
    shown, places, more = _merged(pages, before, asked["limit"])
    beside = _beside(pages, is_first=asked["cursor"] is None)
    following = text_of(places) if more else None
    name = next((page.name for page in pages.values()), "")
    return {name: [marked(record, row.row) for record, row in shown], **beside, "next": following}


def _page(read: Read, seen: SeenRecord, behind: str) -> RowPage:
    cursor = next(one for one in read.parameters if one.name == "cursor")
    place = cursor.read(behind) if behind else None
    if behind and place is None:
        raise Problem(400, f"cursor is wrong for record {seen.member.name}: use the previous `next`", field="cursor")
    found = read.answer(seen.member.service, seen.look, {**seen.asked, "cursor": place})
    assert isinstance(found, RowPage)  # noqa: S101 - only lists are read here
    return found


def _merged(
    pages: dict[str, RowPage], before: dict[str, str], limit: int
) -> tuple[list[tuple[str, PageRow]], dict[str, str], bool]:
    """(rows with their records, the place behind the last row of each record, whether more follow)."""
    down = any(page.down for page in pages.values())
    ahead = {name: list(reversed(page.rows)) for name, page in pages.items()}
    places = dict(before)
    shown: list[tuple[str, PageRow]] = []
    while len(shown) < limit:
        if any(not ahead[name] and page.next is not None for name, page in pages.items()):
            break  # this record's next row is not known: it may come first
        heads = [(name, rows[-1]) for name, rows in ahead.items() if rows]
        if not heads:
            break
        first = (max if down else min)(heads, key=lambda head: head[1].key)  # of equal ones the first record's
        ahead[first[0]].pop()
        places[first[0]] = first[1].place
        shown.append(first)
    for name, page in pages.items():
        if not ahead[name] and page.next is not None:
            places[name] = page.next  # it may lie behind rows that were looked through and not shown
    more = any(ahead[name] or page.next is not None for name, page in pages.items())
    return shown, places, more


def _beside(pages: dict[str, RowPage], *, is_first: bool) -> dict[str, Any]:
    """What is answered beside the rows: the gaps of all records, else what the first one says."""
    found: dict[str, Any] = {}
    for name, page in pages.items():
        for key, value in page.beside.items():
            if key == "blind":
                found[key] = [*found.get(key, ()), *(marked(name, one) for one in value if is_first)]
            else:
                found.setdefault(key, value)
    return found


def _everywhere(unknown: dict[str, Problem]) -> str:
    return "; ".join(f"record {name}: {problem.detail}" for name, problem in unknown.items())


def marked(record: str, row: Any) -> Any:
    """A row, as JSON values or text, that names its record."""
    if isinstance(row, msgspec.Raw):
        return msgspec.Raw(naming(record, bytes(row)))
    return {RECORD: record, **(row if isinstance(row, dict) else msgspec.to_builtins(row))}


def naming(record: str, text: bytes) -> bytes:
    """The text of a JSON object that is not empty, with its record as the first key."""
    return b'{"%b":"%b",' % (RECORD.encode(), record.encode()) + text.lstrip()[1:]
