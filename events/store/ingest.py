"""Polls into the record: secrets out, questions and answers to parts, and an observation event for whatever changed."""

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

import msgspec

from events.clock import foreign_run_id
from events.codec import CODES
from events.errors import IdConflict, PositionNotFound
from events.poll import Poll
from events.shape.cut import split
from events.shape.secrets import is_secret_name, scrub
from events.shape.shape import BodyShape, Node, Router, compile_answer
from events.shape.values import write_number
from events.store.answers import Answer, Answers
from events.store.append import Appender, StreamHead, event_id_bytes
from events.store.parts import Parts
from events.store.question import EarlierPoll, encode_data, scope_text
from events.store.read import Reader
from events.store.vault import Vault
from events.types import OBSERVED, PollFailed, PollRecorded

StreamOf = Callable[[str, str, bytes], str]
"""(kind, the provider's id, the item as the provider sent it) → the stream its observations go to."""

_SCOPES_KEPT: Final = 10_000
_IDS_KEPT: Final = 200_000
_OBSERVED: Final = {shown: CODES[kind] for shown, kind in OBSERVED.items()}
_RECORDED, _FAILED = CODES[PollRecorded], CODES[PollFailed]


class PollAppended(msgspec.Struct, frozen=True):
    """What became of one poll."""

    position: int
    changed: tuple[tuple[str, str, str], ...]
    """(kind, provider id, stream) of every item that was shown otherwise than before."""
    appended: bool
    """False if a poll of that id was there already."""


@dataclass(slots=True)
class _Scope:
    """What is remembered of one question."""

    id: int
    commitment: bytes
    shape: BodyShape | None
    answer: Answer | None = None
    listing: bytes = b""
    base: EarlierPoll | None = None
    observed: Answer | None = None
    """The answer whose items were last compared with their streams."""
    shown: dict[str, int] = field(default_factory=dict)
    """The part each item of that answer was shown as."""


class Ingest:
    """Appends polls for one record."""

    def __init__(self, appender: Appender, parts: Parts, vault: Vault, router: Router, reader: Reader) -> None:
        self._appender = appender
        self._parts = parts
        self._reader = reader
        self._replace = vault.replacement
        self._router = router
        self._answers = Answers(parts, vault.replacement)
        self._scopes: dict[Hashable, _Scope] = {}
        self._foreign: dict[tuple[str, str, str], str] = {}
        self._event_ids: set[bytes] = set()
        appender.on_rollback += (parts.forget, self._answers.forget, self._scopes.clear, self._event_ids.clear)

    def append_polls(
        self, polls: Sequence[Poll], now: int, *, ids: Sequence[str] | None, stream_of: StreamOf | None
    ) -> tuple[PollAppended, ...]:
        """Append polls in order, in one transaction."""
        results: list[PollAppended] = []
        new: dict[bytes, tuple[int, Poll]] = {}
        with self._appender.transaction(durable=False):
            for index, poll in enumerate(polls):
                event_id = None if ids is None else event_id_bytes(ids[index])
                position = None if event_id is None else self._known(event_id, poll, new)
                if position is not None:
                    results.append(PollAppended(position, (), appended=False))
                    continue
                results.append(self._append(poll, now, event_id, stream_of))
                if event_id is not None:
                    new[event_id] = (results[-1].position, poll)
        return tuple(results)

    def scrubbed(self, poll: Poll) -> Poll:
        """The poll with its secrets replaced, as `append_polls` stores it."""

        def clean(text: bytes, node: Node | None = None, *, secret: bool = False) -> bytes:
            return scrub(text, self._replace, node, secret=secret)

        node = compile_answer(self._router(poll.path, poll.req) if poll.answered else None)
        error = poll.error
        if error is not None:
            error = msgspec.json.decode(clean(msgspec.json.encode(error)), type=str)
        return msgspec.structs.replace(
            poll,
            req=clean(poll.req),
            body=None if poll.body is None else clean(poll.body, node),
            error=error,
            extra={
                key: msgspec.Raw(clean(bytes(value), secret=is_secret_name(key))) for key, value in poll.extra.items()
            },
        )

    def _known(self, event_id: bytes, poll: Poll, new: dict[bytes, tuple[int, Poll]]) -> int | None:
        """The position of a poll of that id, if it is there, or `new` in this transaction, and the same."""
        position, there = new.get(event_id, (None, None))
        if there is not None and there != poll:
            raise IdConflict(f"The event id {event_id.hex()} is given to two different polls: use a new id.")
        if position is None:
            position = self._reader.position_of(event_id)
            if position is not None and not self._is_same(position, poll):
                raise IdConflict(
                    f"The poll at position {position} has this event's id and is another: the record was changed by "
                    "hand (`steno verify`), or an id was given twice."
                )
        return position

    def _is_same(self, position: int, poll: Poll) -> bool:
        """Whether `poll`, its secrets replaced, is the one that is there."""
        try:
            return _comparable(self._reader.poll(position)) == _comparable(self.scrubbed(poll))
        except PositionNotFound:
            return False

    def _append(self, poll: Poll, now: int, event_id: bytes | None, stream_of: StreamOf | None) -> PollAppended:
        appender = self._appender
        scope, values = self._scope(poll)
        answer: Answer | None = None
        if poll.body is not None:
            answer = self._answer(scope, poll.body, values)
        listing = None if answer is None else answer.listing
        base = scope.base
        if base is not None and (base.listing != listing or len(base.values) != len(values)):
            base = None
        data, alone = encode_data(poll, values, base, appender.position + 1)
        commitments = b"".join((appender.commit(data), scope.commitment, b"" if answer is None else scope.listing))
        position = appender.add(
            appender.stream("source/" + poll.source),
            _RECORDED if poll.answered else _FAILED,
            poll.observed_at,
            poll.observed_at - poll.started_at,
            now,
            event_id,
            (scope.id, listing),
            data,
            commitments,
        )
        if alone and values:
            scope.base = EarlierPoll(position, listing, values)
        changed: list[tuple[str, str, str]] = []
        if answer is not None and answer is not scope.observed and answer.kind in OBSERVED:
            changed = self._observe(poll, scope, answer, position, now, stream_of)
        return PollAppended(position, tuple(changed), appended=True)

    def _scope(self, poll: Poll) -> tuple[_Scope, list[bytes]]:
        counts: list[bytes] = []
        key: Hashable = (
            poll.source, poll.path, poll.req, poll.status, poll.error, poll.text, poll.ep, poll.answered, poll.complete,
        )  # fmt: skip
        if poll.extra:
            text, counts = scope_text(poll)
            key = (poll.source, text)
        scope = self._scopes.get(key)
        if scope is None:
            text, counts = scope_text(self.scrubbed(msgspec.structs.replace(poll, body=None)))
            if len(self._scopes) > _SCOPES_KEPT:
                self._scopes.clear()
            part = self._parts.put(text, families=(("scope", poll.path), "scope"))
            shape = self._router(poll.path, poll.req) if poll.answered else None
            scope = self._scopes[key] = _Scope(part, self._parts.commitment(part), shape)
        return scope, counts

    def _answer(self, scope: _Scope, body: bytes, values: list[bytes]) -> Answer:
        last = scope.answer
        if last is not None:
            count = len(values)
            if last.match(body, values):
                return last
            del values[count:]
        answer, found = self._answers.understand(body, scope.shape, scope.id)
        values += found
        scope.answer = answer
        scope.listing = self._parts.commitment(answer.listing)
        return answer

    def _observe(
        self, poll: Poll, scope: _Scope, answer: Answer, position: int, now: int, stream_of: StreamOf | None
    ) -> list[tuple[str, str, str]]:
        changed: list[tuple[str, str, str]] = []
        raws: list[bytes] | None = None
        kind = answer.kind
        # What this question showed before is no news, even if another question has shown it otherwise since.
        before, scope.observed = scope.shown, answer
        scope.shown = {item.identity: item.item for item in answer.items}
        for index, item in enumerate(answer.items):
            if not item.identity or before.get(item.identity) == item.item:
                continue
            event_id = None
            if kind == "provider_event":
                event_id = sha256(f"{poll.source}\n{item.identity}".encode()).digest()[:16]
                name = "source/" + poll.source
            elif stream_of is not None:
                if raws is None:
                    found = split(poll.body or b"", scope.shape)
                    raws = [poll.body or b""] if found is None else found.items
                name = stream_of(kind, item.identity, raws[index])
            else:
                name = self._foreign_stream(poll.source, kind, item.identity)
            stream = self._appender.stream(name)
            if event_id is None:
                is_news = _is_news(stream, item.item, poll.started_at)
            else:
                is_news = self._is_first_sight(event_id)
            if is_news:
                self._add(stream, _OBSERVED[kind], poll, now, event_id, item.item, position, index)
                changed.append((kind, item.identity, name))
        return changed

    def _add(
        self,
        stream: StreamHead,
        kind: int,
        poll: Poll,
        now: int,
        event_id: bytes | None,
        item: int,
        position: int,
        index: int,
    ) -> None:
        appender = self._appender
        data = bytearray()
        write_number(data, appender.position + 1 - position)
        write_number(data, index)
        commitments = appender.commit(bytes(data)) + self._parts.commitment(item)
        took = poll.observed_at - poll.started_at
        appender.add(stream, kind, poll.observed_at, took, now, event_id, (None, item), bytes(data), commitments)

    def _is_first_sight(self, event_id: bytes) -> bool:
        """Whether the entry of the provider's log was in no answer before."""
        if event_id in self._event_ids:
            return False
        if len(self._event_ids) > _IDS_KEPT:
            self._event_ids.clear()
        self._event_ids.add(event_id)
        return self._reader.position_of(event_id) is None

    def _foreign_stream(self, source: str, kind: str, identity: str) -> str:
        key = (source, kind, identity)
        name = self._foreign.get(key)
        if name is None:
            if len(self._foreign) > _IDS_KEPT:
                self._foreign.clear()
            name = self._foreign[key] = f"{kind}/{foreign_run_id(source.partition('/')[0], identity)}"
        return name


def _is_news(stream: StreamHead, item: int, started_at: int) -> bool:
    """Whether the stream has not shown this last; an answer asked for before the newest one says nothing new."""
    if stream.item == item or (stream.since is not None and started_at < stream.since):
        return False
    stream.item, stream.since = item, started_at
    return True


def _comparable(poll: Poll) -> Poll:
    """The poll with its body without layout."""
    with suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        if poll.body is not None:
            return msgspec.structs.replace(poll, body=msgspec.json.format(poll.body, indent=-1))
    return poll
