"""The record: everything that happened, in order, for ever.

A poll goes in without secrets, question and answer as parts, with an observation event for each change.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from itertools import repeat
from typing import Final, Self

import msgspec

from steno.events.clock import SECOND, Clock, foreign_run_id
from steno.events.codec import CODES
from steno.events.errors import IdConflict, PositionNotFound
from steno.events.poll import Poll
from steno.events.shape.secrets import is_secret_name, scrub
from steno.events.shape.shape import BodyShape, Node, Router, compile_answer, no_shapes
from steno.events.store.answers import Answer, Answers
from steno.events.store.append import ANY, Appender, Batch, StreamHead, Unless, When, event_id_bytes
from steno.events.store.chain import Head
from steno.events.store.poll_header import EarlierPoll, encode_data, scope_text, write_number
from steno.events.store.read import Row, Stored
from steno.events.store.store import Session, Store, Where, store_at
from steno.events.store.vault import Vault
from steno.events.store.verify import Verification, Verifier
from steno.events.store.verify_pieces import ApartVerifier, WorkPool
from steno.events.types import OBSERVED, PollFailed, PollRecorded

__all__ = ["ANY", "Batch", "Head", "PollAppended", "Record", "Row", "Stored", "Unless", "Verification"]

StreamOf = Callable[[str, str, int], str]  # (kind, provider id, part of the item) → stream of observations

_QUESTIONS_KEPT: Final = 10_000
_IDS_KEPT: Final = 100_000
_LATEST: Final = 60 * SECOND
_WAIT_STEP = SECOND // 50
_OBSERVED: Final = {item_kind: CODES[kind] for item_kind, kind in OBSERVED.items()}
_RECORDED, _FAILED = CODES[PollRecorded], CODES[PollFailed]


class PollAppended(msgspec.Struct, frozen=True):
    position: int
    changed: tuple[tuple[str, str, str], ...]  # (kind, provider id, stream) of every item that changed
    appended: bool  # False if a poll of that id existed already


@dataclass(slots=True)
class _Question:
    id: int
    commitment: bytes
    shape: BodyShape | None
    answer: Answer | None = None
    listing: bytes = b""
    base: EarlierPoll | None = None
    observed: Answer | None = None  # the answer last compared with the streams of its items
    items: dict[str, int] = field(default_factory=dict)  # each item's part in that answer


class Record(Appender):
    """One open record; used by one thread at a time, shared with any number of other processes."""

    def __init__(self, session: Session, store: Store, clock: Clock, router: Router, *, write: bool) -> None:
        super().__init__(session, store, clock, write=write)
        self.vault = Vault(store.blob("vault"), write=write)
        self._router = router
        self._answers = Answers(self._parts, self.vault.replacement)
        self._questions: dict[Hashable, _Question] = {}
        self._event_ids: set[bytes] = set()
        self.on_rollback += (self._answers.forget, self._questions.clear, self._event_ids.clear)

    @staticmethod
    def open(
        where: Where,
        *,
        clock: Clock,
        write: bool = False,
        create: bool = False,
        check: bool = True,
        shapes: Router = no_shapes,
    ) -> "Record":
        """Open the record of a store, to be read or (`write`) appended to.

        `clock` says when events are recorded; `create`, with `write`, makes a missing record and its folder; `check`
        expects the newest events to be there (`verify` looks for itself); `shapes` gives the form of each endpoint's
        answers. RecordNotFound, NotARecord, RecordDamaged, RecordTooNew, RecordTooOld, RecordNotWritable and
        RecordLocked mean that nothing was written.
        """
        store = store_at(where)
        session = store.open(write=write, create=create, check=check, clock=clock)
        return Record(session, store, clock, shapes, write=write)

    @property
    def id(self) -> str:
        """The record's own id, a UUID."""
        return self._session.identity.record_id

    def append_polls(
        self, polls: Sequence[Poll], *, ids: Sequence[str] | None = None, stream_of: StreamOf | None = None
    ) -> tuple[PollAppended, ...]:
        """Append polls in one transaction, each with an observation event for every item that changed.

        Secrets are replaced first. A poll whose id exists already is skipped. `stream_of` names the stream of a run or
        machine, by default `run/` or `vm/` and `foreign_run_id`. IdConflict, RecordLocked, RecordNotWritable and
        RecordDamaged mean that nothing was appended.
        """
        return self._appended(lambda: tuple(self._add_polls(polls, ids, stream_of)), durable=False)

    def _add_polls(
        self, polls: Sequence[Poll], ids: Sequence[str] | None, stream_of: StreamOf | None
    ) -> Iterator[PollAppended]:
        new: dict[bytes, tuple[int, Poll]] = {}
        for poll, event_id in zip(polls, map(event_id_bytes, ids or repeat(None, len(polls))), strict=True):
            position = None if event_id is None else self._known(event_id, poll, new)
            if position is not None:
                yield PollAppended(position, (), appended=False)
                continue
            appended = self._append(poll, event_id, stream_of)
            if event_id is not None:
                new[event_id] = (appended.position, poll)
            yield appended

    def scrubbed(self, poll: Poll) -> Poll:
        """The poll with its secrets replaced, as it would be stored: what a trace may show."""

        def clean(text: bytes, node: Node | None = None, *, secret: bool = False) -> bytes:
            return scrub(text, self.vault.replacement, node, secret=secret)

        node = compile_answer(self._router(poll.path, poll.req) if poll.answered else None)
        error = msgspec.json.decode(clean(msgspec.json.encode(poll.error)), type=str | None)
        return msgspec.structs.replace(
            poll,
            req=clean(poll.req),
            body=None if poll.body is None else clean(poll.body, node),
            error=error,
            extra={key: msgspec.Raw(clean(bytes(raw), secret=is_secret_name(key))) for key, raw in poll.extra.items()},
        )

    def verify(
        self,
        *,
        expect: Head | None = None,
        after: Head | None = None,
        progress: Callable[[int, int], None] | None = None,
        pool: WorkPool | None = None,
    ) -> Verification:
        """Check that every byte that carries data is as written; `expect` and `after` are heads saved earlier. What
        came before `after` is not read again; without it, a pool may prove a record whole in pieces.
        """
        if pool is not None and after is None:
            whole = ApartVerifier(self._session, expect, None).apart(self.store.url, pool, progress)
            if whole is not None:
                return whole
        return Verifier(self._session, expect, progress, after).run()

    def wait(self, after: int, timeout: int) -> bool:
        """True if the record goes beyond position `after` within `timeout` microseconds."""
        end = self._clock.now() + timeout
        while self.head().position <= after:
            left = end - self._clock.now()
            if left <= 0:
                return False
            self._clock.sleep(min(_WAIT_STEP, left))
        return True

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _known(self, event_id: bytes, poll: Poll, new: dict[bytes, tuple[int, Poll]]) -> int | None:
        """The position of a poll of that id, if the same poll is in the record, or `new` in this transaction."""
        position, there = new.get(event_id, (None, None))
        if there is not None and there != poll:
            raise IdConflict(f"The event id {event_id.hex()} is given to two different polls: use a new id.")
        if position is None:
            position = self._rows.position_of(event_id)
            same = position is None
            with suppress(PositionNotFound):
                same = same or _comparable(self.poll(position or 0)) == _comparable(self.scrubbed(poll))
            if not same:
                raise IdConflict(
                    f"The poll at position {position} has this event's id and is another: the record was changed by "
                    "hand (`steno verify`), or an id was given twice."
                )
        return position

    def _append(self, poll: Poll, event_id: bytes | None, stream_of: StreamOf | None) -> PollAppended:
        took = poll.observed_at - poll.started_at
        if event_id is None:
            when = self._time(poll.observed_at, took)
        else:  # imported: its clocks were read elsewhere
            when = (poll.observed_at, took, self._clock.now(), poll.stamp)
        if when[0] != poll.observed_at:
            poll = msgspec.structs.replace(poll, started_at=when[0] - took, observed_at=when[0])
        scope, values = self._question(poll)
        answer = None if poll.body is None else self._answer(scope, poll.body, values)
        listing = None if answer is None else answer.listing
        base = scope.base
        if base is not None and (base.listing != listing or len(base.values) != len(values)):
            base = None
        data, alone = encode_data(poll, values, base, self._position + 1)
        chain = b"".join(
            (self._commit.data(self._position + 1, data), scope.commitment, b"" if answer is None else scope.listing)
        )
        stream, kind = self._stream("source/" + poll.source), _RECORDED if poll.answered else _FAILED
        position = self._add(stream, kind, when, event_id, (scope.id, listing), data, chain)
        if alone and values:
            scope.base = EarlierPoll(position, listing, values)
        changed: list[tuple[str, str, str]] = []
        if answer is not None and answer is not scope.observed and answer.kind in OBSERVED:
            changed = self._observe(poll, scope, answer, position, when, stream_of)
        return PollAppended(position, tuple(changed), appended=True)

    def _question(self, poll: Poll) -> tuple[_Question, list[bytes]]:
        counts: list[bytes] = []
        key: Hashable = (
            poll.source, poll.path, poll.req, poll.status, poll.error, poll.text, poll.ep, poll.answered, poll.complete,
        )  # fmt: skip
        if poll.extra:
            text, counts = scope_text(poll)
            key = (poll.source, text)
        scope = self._questions.get(key)
        if scope is None:
            text, counts = scope_text(self.scrubbed(msgspec.structs.replace(poll, body=None)))
            if len(self._questions) > _QUESTIONS_KEPT:
                self._questions.clear()
            part = self._parts.put(text, families=(("scope", poll.path), "scope"))
            shape = self._router(poll.path, poll.req) if poll.answered else None
            scope = self._questions[key] = _Question(part, self._parts.commitment(part), shape)
        return scope, counts

    def _answer(self, scope: _Question, body: bytes, values: list[bytes]) -> Answer:
        last = scope.answer
        if last is not None:
            count = len(values)
            if last.match(body, values):
                return last
            del values[count:]
        answer, new = self._answers.understand(body, scope.shape, scope.id)
        values += new
        scope.answer = answer
        scope.listing = self._parts.commitment(answer.listing)
        return answer

    def _observe(
        self, poll: Poll, scope: _Question, answer: Answer, position: int, when: When, stream_of: StreamOf | None
    ) -> list[tuple[str, str, str]]:
        changed: list[tuple[str, str, str]] = []
        kind = answer.kind
        # What this question showed before is not news, even if another question showed it otherwise since.
        before, scope.observed = scope.items, answer
        scope.items = {item.identity: item.item for item in answer.items}
        for index, item in enumerate(answer.items):
            if not item.identity or before.get(item.identity) == item.item:
                continue
            event_id = None
            if kind == "provider_event":
                event_id = sha256(f"{poll.source}\n{item.identity}".encode()).digest()[:16]
                name = "source/" + poll.source
            elif stream_of is not None:
                name = stream_of(kind, item.identity, item.item)
            else:
                name = _foreign_stream(poll.source, kind, item.identity)
            stream = self._stream(name)
            news = self._is_first_sight(event_id) if event_id else _is_news(stream, item.item, poll.started_at)
            if not news:
                continue
            data = bytearray()
            write_number(data, self._position + 1 - position)
            write_number(data, index)
            own, part = bytes(data), item.item
            chain = self._commit.data(self._position + 1, own) + self._parts.commitment(part)
            self._add(stream, _OBSERVED[kind], when, event_id, (None, part), own, chain)
            changed.append((kind, item.identity, name))
        return changed

    def _is_first_sight(self, event_id: bytes) -> bool:
        """True if no earlier answer had this entry of the provider's log."""
        if event_id in self._event_ids:
            return False
        if len(self._event_ids) > _IDS_KEPT:
            self._event_ids.clear()
        self._event_ids.add(event_id)
        return self._rows.position_of(event_id) is None


@lru_cache(maxsize=_IDS_KEPT)
def _foreign_stream(source: str, kind: str, identity: str) -> str:
    return f"{kind}/{foreign_run_id(source.partition('/')[0], identity)}"


def _is_news(stream: StreamHead, item: int, started_at: int) -> bool:
    """True if the stream showed something else last; an answer to a question older than the newest is not news, unless
    it seems so late that the clock was set back.
    """
    if stream.item == item or (stream.since is not None and 0 < stream.since - started_at <= _LATEST):
        return False
    stream.item, stream.since = item, started_at
    return True


def _comparable(poll: Poll) -> Poll:
    """The poll with its body without layout."""
    with suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        if poll.body is not None:
            return msgspec.structs.replace(poll, body=msgspec.json.format(poll.body, indent=-1))
    return poll
