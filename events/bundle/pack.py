"""Writes a bundle: the events of a record that were chosen, and all that they rest on."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from steno.events.bundle.form import BundleEvent, BundleOutput, BundlePart, End, Manifest, encoded, sealed
from steno.events.codec import CODES, POLLS
from steno.events.errors import PositionNotFound, RecordDamaged, StenoError
from steno.events.store.chain import Head, canonical_part, committer, followed, mark, salt_of
from steno.events.store.output_rows import ONE
from steno.events.store.parts import WRITER_CACHE, Parts
from steno.events.store.poll_header import decode_data, read_numbers
from steno.events.store.rows import Lookup, Rows
from steno.events.store.store import Session
from steno.events.store.verify import Verifier
from steno.events.types import OBSERVED, OutputRecorded, PolicyAdopted, RulesAdopted

Progress = Callable[[int, int], None]
Put = Callable[[BundlePart | BundleEvent | BundleOutput], None]
_OUTPUT: Final = CODES[OutputRecorded]
_OBSERVED: Final = frozenset(CODES[kind] for kind in OBSERVED.values())
_SUBJECT: Final = re.compile(rb"[a-z]+/")  # of a stream
_LISTING: Final = re.compile(rb"(?:run|vm|provider_event|fleet|other|opaque)\n[^\n]*\n")  # of the part of an answer
_IN_FORCE: Final = (CODES[PolicyAdopted], CODES[RulesAdopted])
_RANDOM: Final = re.compile(r"[0-9a-f]*")  # a sweep as Steno names it


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The events of a bundle: those from `first` to `last` on these streams."""

    first: int
    last: int
    polls: frozenset[str] | None  # streams of sources; None: all
    own: frozenset[str] | None  # streams of events that are not polls, sources too; None: all
    output: bool = True  # with the output of runs


class Redactor(Protocol):
    def text(self, text: bytes, /) -> bytes:
        """The text with every hidden value replaced."""

    def event_id(self, given: bytes, /) -> bytes:
        """In place of an id that may be a hash of what was replaced."""


class Packer:
    """Writes the bundle of one choice, or of the events `chosen` from `choice.first` to `choice.last`."""

    def __init__(
        self,
        session: Session,
        choice: Choice,
        chosen: set[int] | None = None,
        outputs: Mapping[int, bytes] | None = None,
    ) -> None:
        """`outputs`: chunks by position; None: those that the record has."""
        self._session = session
        self._choice = choice
        self._rows, self._verifier = Rows(session), Verifier(session, None, None)
        self._commit = committer(session.identity)
        self._parts = Parts(session, self._commit.shared, cache=WRITER_CACHE)
        self._commitments, self._names = Lookup.commitments(session), Lookup.names(session)
        self._outputs = outputs
        self._written: set[int] = set()
        self._seal = ""
        self._redaction: Redactor | None = None
        self.chosen = chosen or self._choose(choice)
        self.head = Head(position=max(self.chosen), hash=self._digest(max(self.chosen)).hex())

    def _choose(self, choice: Choice) -> set[int]:
        """The positions of the events, of the polls to which they refer, and of policies and rules then in force."""
        chosen: set[int] = set()
        for stream in choice.own or ():
            pages = self._rows.pages(0, choice.first - 1, kinds=_IN_FORCE, stream=stream, backwards=True, most=1)
            chosen.update(row[0] for page in pages for row in page)
        for rows in self._rows.behind(choice.first - 1, choice.last):
            for row in rows:
                position, stream, kind = row[0], self._names[row[1]], row[3]
                if kind in POLLS:
                    takes = choice.polls is None or stream in choice.polls
                    base = decode_data(row[10], row[5], position).base if takes else None
                    chosen.update(() if base is None else (base,))
                elif kind in _OBSERVED:
                    takes = position - read_numbers(row[10], 0, 1)[0][0] in chosen
                else:
                    takes = (choice.own is None or stream in choice.own) and (choice.output or kind != _OUTPUT)
                chosen.update((position,) if takes else ())
        if not chosen:
            raise PositionNotFound(f"No event from position {choice.first} to {choice.last} is about these runs.")
        return chosen

    def write(
        self, manifest: Manifest, redaction: Redactor | None, out: Callable[[bytes], object], progress: Progress
    ) -> str:
        """Write all lines; the digest of the bundle."""

        def put(line: Manifest | BundlePart | BundleEvent | BundleOutput | End) -> None:
            line = sealed(line, self._seal)
            self._seal = line.seal
            out(encoded(line) + b"\n")

        self._redaction, first = redaction, self._choice.first
        put(manifest)
        for position in sorted(at for at in self.chosen if at < first):
            self._put(self._rows.raw(position), self._digest(position - 1), put, apart=True)
        previous = self._digest(first - 1)
        for rows in self._rows.behind(first - 1, self.head.position):
            for row in rows:
                previous = self._put(row, previous, put, apart=row[0] == first)
            progress(rows[-1][0] - first, self.head.position - first)
        put(End(events=len(self.chosen)))
        return self._seal

    def _digest(self, position: int) -> bytes:
        digest = self._verifier.hash_at(position)
        if digest is None:
            raise RecordDamaged(f"The record is damaged up to position {position}: run `steno verify`.")
        return digest

    def _followed(self, previous: bytes, row: Any) -> bytes:
        digest = followed(previous, row, self._names[row[1]], self._commit, self._commitments)
        if mark(row[0], digest) != row[11]:
            raise RecordDamaged(f"The record is damaged at position {row[0]}: run `steno verify`.")
        return digest

    def _put(self, row: Any, previous: bytes, put: Put, *, apart: bool) -> bytes:
        """Write an event behind the parts that it is the first to use; its hash."""
        digest = self._followed(previous, row)
        position, stream_id, version, kind, event_id, at, took, after, scope, body, data, _, clock = row
        name = self._names[stream_id]
        stream, is_poll = self._text(name.encode(), _SUBJECT).decode(), kind in POLLS
        chosen, parts = position in self.chosen, [part for part in (scope, body) if part is not None]
        hashed = (is_poll and event_id is not None) or (not chosen and name.startswith("fleet/"))
        hidden = stream != name or (self._redaction is not None and hashed)
        if hidden and self._redaction is not None and event_id is not None:
            event_id = self._redaction.event_id(event_id)
        event = BundleEvent(
            position=position, hash=digest.hex(), hidden=hidden, previous=previous.hex() if apart else None
        )
        if chosen or not hidden:
            event = replace(
                event, stream=stream, version=version, type=kind, id=event_id and event_id.hex(), at=at, took=took,
                after=after, clock=clock and clock.hex(), has=1 | (scope is not None) << 1 | (body is not None) << 2,
            )  # fmt: skip
        commitments = [self._commit.data(position, data), *(self._commitments[part] for part in parts)]
        if chosen:
            for part in parts:
                self._put_part(part, put)
            text = self._data(position, kind, data, at)
            event = replace(event, scope=scope, body=body, data=text)
            # With its salt or commitment, the hash over a hidden stream's name would let the name be guessed.
            if text == data and not hidden:
                event = replace(event, salt=salt_of(self._session.identity, data, position).hex())
            commitments = [] if hidden or event.salt is not None else commitments[:1]
        put(replace(event, commitments=b"".join(commitments if chosen or not hidden else []).hex()))
        if kind == _OUTPUT and chosen and (packed := self._output(position)) is not None:
            put(BundleOutput(position=position, data=packed))
        return digest

    def _output(self, position: int) -> bytes | None:
        if self._outputs is not None:
            return self._outputs.get(position)
        row = self._session.run(ONE, position).fetchone() if self._session.identity.keeps_output else None
        return None if row is None else bytes(row[0])

    def _put_part(self, part_id: int, put: Put) -> None:
        if part_id in self._written:
            return
        self._written.add(part_id)
        part, salt = self._parts.get(part_id), None
        for child in part.children:
            self._put_part(child, put)
        text = self._text(part.text, _LISTING)
        if text == part.text:
            known = tuple([self._commitments[child] for child in part.children])
            salt = salt_of(self._session.identity, canonical_part(text, known)).hex()
        line = BundlePart(part=part_id, commitment=part.commitment.hex(), parts=part.children, salt=salt, raw=text)
        with suppress(UnicodeDecodeError):
            line = replace(line, raw=None, text=text.decode())
        put(line)

    def _text(self, text: bytes, ours: re.Pattern[bytes] | None = None) -> bytes:
        """The text, redacted but for our own words at its start."""
        match = None if ours is None else ours.match(text)
        at = 0 if match is None else match.end()
        return text if self._redaction is None else text[:at] + self._redaction.text(text[at:])

    def _data(self, position: int, kind: int, data: bytes, at: int) -> bytes:
        """The data of an event, redacted."""
        if self._redaction is None or kind in _OBSERVED:
            return data
        if kind in POLLS:
            own = decode_data(data, at, position)  # its bytes hold a short name by chance
            sweep = b"" if own.sweep is None or _RANDOM.fullmatch(own.sweep) else own.sweep.encode()
            texts = [*own.values, *own.changed.values(), sweep]
            if any(self._text(text) != text for text in texts):  # numbers and times as a rule
                raise StenoError(f"The poll at position {position} has a value to hide where values always change.")
            return data
        fields = msgspec.msgpack.decode(data)
        redacted = self._value(fields)
        return data if redacted == fields else msgspec.msgpack.encode(redacted)

    def _value(self, value: Any) -> Any:
        match value:
            case str():
                return self._text(value.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
            case bytes():
                return self._text(value)
            case list():
                return [self._value(each) for each in value]
            case dict():
                return {key: self._value(each) for key, each in value.items()}
        return value
