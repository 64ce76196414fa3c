"""Polls into the record: secrets out, questions and answers to parts, and an observation event for whatever changed."""

from collections.abc import Callable, Hashable, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from events.clock import foreign_run_id
from events.errors import IdConflict
from events.kinds import OBSERVED, POLL_FAILED, POLL_RECORDED
from events.poll import Poll
from events.secrets import Replace, is_secret_name, scrub
from events.shape.answer import Answer, Answers
from events.shape.items import split
from events.shape.shape import BodyShape, Router, compile_answer
from events.shape.values import write_number
from events.store.append import Appender, StreamHead, event_id_bytes
from events.store.parts import Parts
from events.store.question import EarlierPoll, encode_data, scope_text
from events.store.vault import Vault

StreamOf = Callable[[str, str, bytes], str]
"""(kind, the provider's id, the item as the provider sent it) → the stream its observations go to."""

_SCOPES_KEPT: Final = 10_000
_IDS_KEPT: Final = 200_000


class PollAppended(msgspec.Struct, frozen=True):
    """What became of one poll."""

    position: int
    changed: tuple[tuple[str, str, str], ...]
    """(kind, provider id, stream) of every item that was shown otherwise than before."""
    appended: bool
    """False if a poll of that id was there already."""


class _Scope:
    """What is remembered of one question."""

    __slots__ = ("answer", "base", "commitment", "id", "listing", "observed", "shape", "shown")

    def __init__(self, scope_id: int, commitment: bytes, shape: BodyShape | None) -> None:
        self.id = scope_id
        self.commitment = commitment
        self.shape = shape
        self.answer: Answer | None = None
        self.listing: bytes = b""
        self.base: EarlierPoll | None = None
        self.observed: Answer | None = None
        """The answer whose items were last compared with their streams."""
        self.shown: dict[str, int] = {}
        """The part each item of that answer was shown as."""


class Ingest:
    """Appends polls for one record."""

    def __init__(self, appender: Appender, parts: Parts, vault: Vault, router: Router) -> None:
        self._appender = appender
        self._parts = parts
        self._replace = vault.replacement
        self._router = router
        self._answers = Answers(parts, vault.replacement)
        self._scopes: dict[Hashable, _Scope] = {}
        self._foreign: dict[tuple[str, str, str], str] = {}
        self._event_ids: set[bytes] = set()
        appender.on_rollback += (parts.forget, self._answers.forget, self._forget)

    def append_polls(
        self,
        polls: Sequence[Poll],
        now: int,
        *,
        ids: Sequence[str] | None,
        stream_of: StreamOf | None,
        known: Callable[[bytes, Poll], int | None],
    ) -> tuple[PollAppended, ...]:
        """Append polls in order, in one transaction. `known` gives the position of a poll that is there already."""
        results: list[PollAppended] = []
        new: dict[bytes, tuple[int, Poll]] = {}
        with self._appender.transaction(durable=False):
            for index, poll in enumerate(polls):
                event_id = None if ids is None else event_id_bytes(ids[index])
                position = None
                if event_id is not None:
                    position = _again(new, event_id, poll) or known(event_id, poll)
                if position is not None:
                    results.append(PollAppended(position, (), appended=False))
                    continue
                results.append(self._append(poll, now, event_id, stream_of))
                if event_id is not None:
                    new[event_id] = (results[-1].position, poll)
        return tuple(results)

    def scrubbed(self, poll: Poll) -> Poll:
        """The poll with its secrets replaced, as `append_polls` stores it."""
        shape = self._router(poll.path, poll.req) if poll.answered else None
        node = compile_answer(shape)
        replace = self._replace
        return msgspec.structs.replace(
            poll,
            req=scrub(poll.req, replace),
            body=None if poll.body is None else scrub(poll.body, replace, node),
            error=None if poll.error is None else _in_text(poll.error, replace),
            extra={key: _in_member(key, value, replace) for key, value in poll.extra.items()},
        )

    def same(self, there: Poll, poll: Poll) -> bool:
        """Whether `poll`, its secrets replaced, is the one that is there."""
        new = self.scrubbed(poll)
        return (
            msgspec.structs.replace(there, body=None, extra={}) == msgspec.structs.replace(new, body=None, extra={})
            and {key: bytes(value) for key, value in there.extra.items()}
            == {key: bytes(value) for key, value in new.extra.items()}
            and (None if there.body is None else _compact(there.body))
            == (None if new.body is None else _compact(new.body))
        )

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
            POLL_RECORDED if poll.answered else POLL_FAILED,
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
        if answer is None or answer is scope.observed or answer.kind not in OBSERVED:
            return PollAppended(position, (), appended=True)
        changed = self._observe(poll, scope, answer, position, now, stream_of)
        return PollAppended(position, changed, appended=True)

    def _scope(self, poll: Poll) -> tuple[_Scope, list[bytes]]:
        counts: list[bytes] = []
        key: Hashable
        if poll.extra:
            text, counts = scope_text(poll)
            key = (poll.source, text)
        else:
            key = (
                poll.source, poll.path, poll.req, poll.status, poll.error, poll.text, poll.ep, poll.answered,
                poll.complete,
            )  # fmt: skip
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
    ) -> tuple[tuple[str, str, str], ...]:
        changed: list[tuple[str, str, str]] = []
        kind = answer.kind
        event = kind == "provider_event"
        raws = _Raws(poll.body or b"", scope.shape)
        # What this question showed before is no news, even if another question has shown it otherwise since.
        before, scope.observed = scope.shown, answer
        scope.shown = {item.identity: item.item for item in answer.items}
        for index, item in enumerate(answer.items):
            if not item.identity or before.get(item.identity) == item.item:
                continue
            event_id = None
            if event:
                event_id = sha256(f"{poll.source}\n{item.identity}".encode()).digest()[:16]
                if event_id in self._event_ids or self._is_there(event_id):
                    continue
                self._see(event_id)
                name = "source/" + poll.source
            elif stream_of is not None:
                name = stream_of(kind, item.identity, raws.item(index))
            else:
                name = self._default(poll.source, kind, item.identity)
            stream = self._appender.stream(name)
            if not event and not self._is_news(stream, item.item, poll.started_at):
                continue
            self._add(stream, OBSERVED[kind], poll, now, event_id, item.item, position, index)
            changed.append((kind, item.identity, name))
        return tuple(changed)

    def _is_news(self, stream: StreamHead, item: int, started_at: int) -> bool:
        """Whether the stream has not shown this last; an answer asked for before the newest one says nothing new."""
        if stream.item == item or (stream.since is not None and started_at < stream.since):
            return False
        stream.item, stream.since = item, started_at
        return True

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
        own = bytes(data)
        appender.add(
            stream,
            kind,
            poll.observed_at,
            poll.observed_at - poll.started_at,
            now,
            event_id,
            (None, item),
            own,
            appender.commit(own) + self._parts.commitment(item),
        )

    def _is_there(self, event_id: bytes) -> bool:
        there = self._appender.has_id(event_id)
        if there:
            self._see(event_id)
        return there

    def _see(self, event_id: bytes) -> None:
        if len(self._event_ids) > _IDS_KEPT:
            self._event_ids.clear()
        self._event_ids.add(event_id)

    def _default(self, source: str, kind: str, identity: str) -> str:
        key = (source, kind, identity)
        name = self._foreign.get(key)
        if name is None:
            if len(self._foreign) > _IDS_KEPT:
                self._foreign.clear()
            name = self._foreign[key] = f"{kind}/{foreign_run_id(source.partition('/')[0], identity)}"
        return name

    def _forget(self) -> None:
        self._scopes.clear()
        self._event_ids.clear()


def _again(new: dict[bytes, tuple[int, Poll]], event_id: bytes, poll: Poll) -> int | None:
    """The position of a poll of that id appended a moment ago."""
    found = new.get(event_id)
    if found is None:
        return None
    if found[1] != poll:
        raise IdConflict(f"The event id {event_id.hex()} is given to two different polls: use a new id.")
    return found[0]


def _in_text(text: str, replace: Replace) -> str:
    return msgspec.json.decode(scrub(msgspec.json.encode(text), replace), type=str)


def _in_member(key: str, value: msgspec.Raw, replace: Replace) -> msgspec.Raw:
    return msgspec.Raw(scrub(bytes(value), replace, secret=is_secret_name(key)))


def _compact(body: bytes) -> bytes:
    try:
        return msgspec.json.format(body, indent=-1)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return body


class _Raws:
    """The items of an answer as the provider sent them, found only if somebody asks."""

    def __init__(self, body: bytes, shape: BodyShape | None) -> None:
        self._body = body
        self._shape = shape
        self._found: list[bytes] | None = None

    def item(self, index: int) -> bytes:
        if self._found is None:
            found = split(self._body, self._shape)
            self._found = [self._body] if found is None else found.items
        return self._found[index]
