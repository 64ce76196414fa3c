"""The form of an incident bundle, lines of JSON packed by zstd, and its proof (ADR 75).

A manifest, the events with the parts that they use before them, an end. From `Manifest.first` on every event of the
record is there in the form that the chain hashes: of an event left out its header and commitments, of a `hidden` event
its hash alone. Each line has a seal: a hash of itself and of the seal before. Hashes, salts and ids are hexadecimal.
"""

import re
import struct
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec.structs import replace

from steno.events.codec import decode, type_of
from steno.events.errors import NotARecord, RecordDamaged, RecordNotFound, RecordTooNew, UnreadableInput
from steno.events.store.chain import Head, canonical_part, chained, subject
from steno.events.store.output_rows import unpack
from steno.events.store.verify import Damage, Verification
from steno.events.traces.trace import numbered_lines
from steno.events.types import OutputRecorded

VERSION: Final = 2  # 1 had no output of runs
_MOST: Final = 2 << 30  # bytes of an unpacked bundle
_SLACK: Final = 64 << 20  # bytes that any file may unpack to; above, 500 times its size
_RATIO: Final = 500
_POSITION: Final = re.compile(rb'"position":(\d{1,18})\b')


_Int = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]


class BundleLine(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="kind"
):
    seal: str = ""


class Manifest(BundleLine, frozen=True, kw_only=True, tag="manifest"):
    version: int
    bundle_id: str  # the salts of the pseudonyms are made of it and the record's key
    record_id: str
    created_at: int  # of the record
    head: Head  # the newest event of the bundle: the head that the record had then
    first: int  # every event from here to the head is in the bundle, or left out with its place in the chain
    runs: tuple[str, ...]  # ids
    rules: tuple[str, ...]  # the rule sets of the Steno that wrote it
    software: str
    redacted: tuple[str, ...] = ()
    pseudonyms: tuple[str, ...] = ()  # `kind:commitment`; a pseudonym is `kind_` and 12 digits of its commitment


class BundlePart(BundleLine, frozen=True, kw_only=True, tag="part"):
    part: int
    commitment: str
    text: str | None = None
    raw: bytes | None = None  # of a text that is not UTF-8
    parts: tuple[int, ...] = ()  # that it refers to
    salt: str | None = None  # None: the text is redacted, and its commitment stays closed

    @property
    def content(self) -> bytes:
        return (self.text or "").encode() if self.raw is None else self.raw


class BundleEvent(BundleLine, frozen=True, kw_only=True, tag="event"):
    position: _Int
    stream: str = ""
    version: _Int = 0
    type: _Int = 0  # the kind of its row
    id: str | None = None
    at: _Int = 0
    took: _Int = 0
    after: _Int = 0  # microseconds from `at` to its append
    clock: str | None = None
    has: int = 0  # what the chain hashes: 1 data, 2 scope, 4 body
    scope: int | None = None
    body: int | None = None
    data: bytes | None = None  # None: the event is left out
    salt: str | None = None  # of the data
    commitments: str = ""  # of the data if that has no salt; of all parts if the event is left out
    previous: str | None = None  # the hash before it, if the line before is not the event before
    hidden: bool = False  # its stream or id is redacted: the chain's hash cannot be made of it
    hash: str


class BundleOutput(BundleLine, frozen=True, kw_only=True, tag="output"):
    position: _Int  # of its `OutputRecorded`, the line before
    data: bytes  # as in the record


class End(BundleLine, frozen=True, kw_only=True, tag="end"):
    events: int  # those with data


AnyLine = Manifest | BundlePart | BundleEvent | BundleOutput | End
_L = TypeVar("_L", bound=BundleLine)
_line: Final = msgspec.json.Decoder(AnyLine)
encoded: Final = msgspec.json.Encoder().encode


class Proof(Verification, frozen=True, kw_only=True):
    linked: int  # events that the chain proves up to the head; the digest covers the others too
    digest: str  # the last seal: compare it with the digest that `export` printed
    redacted: tuple[str, ...]


def sealed(line: _L, before: str) -> _L:
    """The line with its seal behind the seal `before`."""
    plain = replace(line, seal="")
    return replace(plain, seal=sha256(before.encode() + encoded(plain)).hexdigest()[:32])


def position_of(raw: bytes) -> int | None:
    """The position that a line names, readable or not."""
    match = _POSITION.search(raw)
    return None if match is None else int(match[1])


def raw_lines(path: str | Path) -> Iterator[bytes]:
    """The lines of a bundle. Raises RecordNotFound, and RecordDamaged where it is cut, or unpacks to too much."""
    path = Path(path)
    if not path.exists():
        raise RecordNotFound(f"There is no bundle {path}.")
    total, most = 0, min(_MOST, max(_SLACK, _RATIO * path.stat().st_size))
    try:
        for _, raw in numbered_lines(path):
            total += len(raw)
            if total > most:
                raise RecordDamaged(f"{path} unpacks to over {most >> 20} MB: Steno did not write it.")
            yield raw
    except UnreadableInput as error:
        raise RecordDamaged(str(error)) from error


def read_manifest(path: str | Path) -> Manifest:
    """Raises NotARecord and RecordTooNew too."""
    first = next(raw_lines(path), b"")
    try:
        version = msgspec.json.decode(first, type=dict[str, msgspec.Raw]).get("version", b"")
        if bytes(version).isdigit() and int(bytes(version)) > VERSION:
            raise RecordTooNew(f"The bundle {path} has version {int(bytes(version))}: update steno.")
        line = _line.decode(first)
    except msgspec.MsgspecError as error:
        raise NotARecord(f"{path} is not an incident bundle, its manifest cannot be read: {error}.") from None
    if not isinstance(line, Manifest):
        raise NotARecord(f"{path} is not an incident bundle: it has no manifest.")
    return line


class Checker:
    """Reads a bundle and checks every line; `damage` is what was wrong so far."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self.manifest = read_manifest(path)
        self.damage: list[Damage] = []
        self._events = self._linked = self._last = 0
        self._hash: bytes | None = None  # of the last event; None: unknown
        self._seal = ""
        self._before: BundleEvent | None = None
        self._commitments: dict[int, bytes] = {}
        self._bad: dict[int, str] = {}  # parts, and how they or their parts differ

    def run(self) -> Proof:
        for _ in self.lines():
            pass
        made = self.manifest
        return Proof(
            ok=not self.damage, events=self._events, linked=self._linked, head=made.head, digest=self._seal,
            redacted=made.redacted, damage=tuple(self.damage),
        )  # fmt: skip

    def lines(self) -> Iterator[BundlePart | BundleEvent | BundleOutput]:
        """The parts, events and chunks of output in order, without those that cannot be read."""
        end: End | None = None
        try:
            for raw in raw_lines(self.path):
                line = self._line(raw) if end is None else None
                if line is None:
                    self._last, self._hash = position_of(raw) or self._last + 1, None
                    self._say(self._last, "page", "the line cannot be read, or does not belong there")
                elif isinstance(line, End):
                    end = line
                elif not isinstance(line, Manifest):
                    yield line
        except RecordDamaged as error:
            self._say(self._last + 1, "page", str(error))
            return
        if end is None or (end.events, self._last) != (self._events, self.manifest.head.position):
            self._say(self._last + 1, "missing", "the bundle is cut, or events are missing: get it again")

    def _say(self, position: int | None, kind: str, detail: str) -> None:
        if all(known.position != position for known in self.damage):
            self.damage.append(Damage(position=position, kind=kind, detail=detail))

    def _line(self, raw: bytes) -> AnyLine | None:
        """A line, checked; None: it is not a line of a bundle."""
        try:
            line: AnyLine = _line.decode(raw)
            changed = sealed(line, self._seal).seal != line.seal or encoded(line) != raw
            self._seal = line.seal
            if isinstance(line, BundlePart):
                self._part(line, changed=changed)
                return line
            if isinstance(line, BundleEvent):
                self._event(line)
                self._before = line
            if isinstance(line, BundleOutput):
                self._output(line)
        except (ValueError, LookupError, RecursionError, struct.error):
            return None
        except RecordTooNew:  # an unknown type of event; only the seal tells a later version from a changed byte
            if not changed:
                raise
            return None
        if changed:
            self._say(getattr(line, "position", None), "line", "the line was changed")
        return line

    def _part(self, part: BundlePart, *, changed: bool) -> None:
        if part.part in self._commitments:
            raise ValueError("a part is there twice")
        known = tuple([self._commitments[child] for child in part.parts])
        commitment = self._commitments[part.part] = bytes.fromhex(part.commitment)
        if part.salt is not None:
            content = canonical_part(part.content, known)
            changed = changed or sha256(bytes.fromhex(part.salt) + content).digest() != commitment
        elif not self.manifest.redacted:
            changed = True
        if changed or any(child in self._bad for child in part.parts):
            self._bad[part.part] = f"part {part.part}, or a part of it, was changed"

    def _event(self, event: BundleEvent) -> None:
        before, previous = self._last, self._hash
        if event.position <= before:
            raise ValueError("it is out of order")
        self._expect_open(event)
        self._last, self._hash = event.position, bytes.fromhex(event.hash)
        self._events += event.data is not None
        for part in (event.scope, event.body):
            if part is not None and self._commitments[part] and part in self._bad:
                self._say(event.position, "body", self._bad.pop(part))
        if event.previous is not None:
            previous = bytes.fromhex(event.previous)
        elif event.position != before + 1:
            self._say(before + 1, "missing", f"events up to position {event.position - 1} are missing")
            previous = None
        if previous is None or event.hidden or event.previous is not None:
            self._linked = 0  # the head does not prove anything before
        if event.position == self.manifest.head.position and event.hash != self.manifest.head.hash:
            self._say(event.position, "head", "the manifest names another hash of the newest event")
        if previous is None or event.hidden:
            return
        if self._digest(previous, event).hex() != event.hash:
            self._say(event.position, "chain", "the event or its hash was changed")
        self._linked += event.data is not None

    def _output(self, line: BundleOutput) -> None:
        event = decode(self._before.type, self._before.data or b"") if self._before is not None else None
        if self._before is None or not isinstance(event, OutputRecorded) or line.position != self._before.position:
            raise ValueError("it is out of order")
        try:
            unpack(line.data, event)
        except RecordDamaged:
            self._say(line.position, "output", "the output was changed")

    def _expect_open(self, event: BundleEvent) -> None:
        """A forger would close what was changed."""
        if event.data is not None and event.has != 1 | (event.scope is not None) << 1 | (event.body is not None) << 2:
            raise ValueError("it lacks a part")
        if not self.manifest.redacted and (event.hidden or (event.data is not None and event.salt is None)):
            self._say(event.position, "line", "it is not proven, though nothing is redacted")

    def _digest(self, previous: bytes, event: BundleEvent) -> bytes:
        own = bytes.fromhex(event.commitments)
        if event.data is not None:
            if event.salt is not None:
                own = sha256(bytes.fromhex(event.salt) + event.data).digest()
            own += b"".join([self._commitments[part] for part in (event.scope, event.body) if part is not None])
        event_id, clock = (None if text is None else bytes.fromhex(text) for text in (event.id, event.clock))
        return chained(
            previous, event.position, event.version, event.at, event.took, event.at + event.after, event_id, event.has,
            subject(event.stream, *type_of(event.type)), own, clock,
        )  # fmt: skip
