"""Finds the names, commands and hosts that answers and events hold, and replaces them in an incident bundle.

Equal values have equal pseudonyms, everywhere: what was joined by a name is still joined, and the fold is the same.
"""

import hmac
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from itertools import product
from typing import Any, Final, Literal, get_origin

import msgspec

from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers.registry import READINGS
from steno.engine.rules.rule_file import digest_of, prefix_of
from steno.engine.state.facts import RunFacts, VmFacts
from steno.engine.state.reading import Seen
from steno.events.clock import foreign_run_id
from steno.events.errors import StenoError
from steno.events.shape.secrets import COMMITMENT
from steno.events.store.record import Record
from steno.events.subjects import OfFleet, OfRun, OfVm
from steno.events.types import PollEvent, RulesAdopted

KINDS: Final = ("names", "commands", "hosts")
_FIELDS: Final = {
    **dict.fromkeys(("name", "submitter", "slot", "by", "user"), "names"),
    **dict.fromkeys(("base", "sent"), "commands"),
    **dict.fromkeys(("from_owner", "to_owner"), "owner"),
}
_OURS: Final = {"owner": "owner"}  # private keys of our own texts: a limit's owner is `user/NAME`, a project or a label
_NOBODY: Final = frozenset({"", "none", "null", "n/a", "(null)", "unknown", "user", "policy", "steno"})
_SHORT: Final = 4  # letters; a command of fewer (`sh`, `-c`) says nothing, and is a part of many words
_DIGITS: Final = 12
_LITERAL: Final = re.compile(r"[-+.\deE]+|true|false|null")  # stands in JSON without quotes too
_NODES: Final = re.compile(r"([^,\[\]]+)\[([^\]]+)\]|[^,\[\]]+")
_RANGE: Final = re.compile(r"(?<![^,])(\d+)(?:-(\d+))?(?![^,])")
_KEY: Final = re.compile(rb'"([^"\\]{1,200}+)"\s*+:')
_PAIR: Final = re.compile(r"([A-Za-z_]++)=(\S++)")


class Redaction:
    """Replaces values by pseudonyms. A pseudonym is its kind and the first digits of a salted commitment."""

    def __init__(self, values: Mapping[str, str], keys: Collection[str], secret: bytes) -> None:
        """`values`: each with its kind; `keys`: those of the provider's answers, which stay; `secret`: makes the salts
        of this bundle alone, so that pseudonyms of two bundles cannot be compared.
        """
        self._secret = secret
        self._new: dict[bytes, bytes] = {}
        self.pseudonyms: list[str] = []
        known, patterns = frozenset(keys), list[tuple[int, bytes]]()
        words = "\n".join(sorted(known))
        for value, kind in sorted(values.items()):
            plain = _LITERAL.fullmatch(value) is not None
            if kind == "commands" and (len(value) < _SHORT or value in known or plain):
                continue
            if value in known:
                raise StenoError(f"{kind[:-1]} {value!r} is also a key of the answers, so it cannot be hidden.")
            salt = hmac.digest(secret, value.encode(), "sha256")
            commitment = sha256(salt + value.encode()).hexdigest()
            self.pseudonyms.append(f"{kind}:{commitment}")
            new = f"{kind[:-1]}_{commitment[:_DIGITS]}".encode()
            for form in _forms(value):
                self._new[form] = new
                text = re.escape(form)
                if plain:  # elsewhere it is a number
                    text = rb'(?<=")%s(?="(?!\s*:))' % text
                elif len(value) < _SHORT or value in words:  # a part of longer words
                    text = rb"(?<!\w)%s(?!\w)" % text
                patterns.append((len(form), text))
        self._pattern = _any(patterns)

    def also(self, ids: Mapping[str, str]) -> None:
        """Replace ids that are hashes over what is replaced."""
        self._new.update((old.encode(), new.encode()) for old, new in ids.items())
        old = [(len(each), re.escape(each.encode())) for each in ids]
        self._pattern = re.compile(b"|".join((self._pattern.pattern, _any(old).pattern)))

    def text(self, text: bytes) -> bytes:
        return self._pattern.sub(lambda match: self._new[match[0]], text)

    def event_id(self, given: bytes) -> bytes:
        return hmac.digest(self._secret, given, "sha256")[: len(given)]


def _any(patterns: list[tuple[int, bytes]]) -> re.Pattern[bytes]:
    """The longest of them counts: it may hold others."""
    return re.compile(b"|".join(text for _, text in sorted(patterns, reverse=True)) or b"(?!)")


def _forms(value: str) -> set[bytes]:
    """A value as it may stand in JSON, and in JSON inside JSON, with or without other letters than ASCII."""
    import json

    forms, texts = {value.encode()}, {value}
    for _ in range(2):
        texts = {json.dumps(text, ensure_ascii=ascii_)[1:-1] for text, ascii_ in product(texts, (True, False))}
        forms |= {text.encode() for text in texts}
    return forms


@cache
def _private_fields(event: type[msgspec.Struct]) -> Mapping[str, str]:
    """The fields of an event with a private value, each with its kind; `by` may also be a word of ours."""
    texts = {field.name for field in msgspec.structs.fields(event) if get_origin(field.type) is not Literal}
    own = {"name"} if event is RulesAdopted else set[str]()
    return {name: kind for name, kind in _FIELDS.items() if name in texts - own}


class Private:
    """Collects the values of some kinds, as answers and events of a record hold them."""

    def __init__(self, record: Record, kinds: Collection[str]) -> None:
        self._record = record
        self._kinds = frozenset(kinds)
        self._reader = PollReader(READINGS)
        self._seen: set[tuple[int | None, int]] = set()
        self.values: dict[str, str] = {}
        self.keys: set[str] = set()
        self._ids: dict[str, tuple[str, str]] = {}  # id of a run or machine → provider, provider's id
        self._adopted: list[tuple[str, ...]] = []  # texts of rule files

    def redaction(self, secret: bytes) -> Redaction:
        made = Redaction(self.values, self.keys, secret)
        ids = ((old, foreign_run_id(of, made.text(name.encode()).decode())) for old, (of, name) in self._ids.items())
        made.also({old: new for old, new in (*ids, *self._hashes(made)) if new != old})
        return made

    def _hashes(self, made: Redaction) -> Iterator[tuple[str, str]]:
        """Each hash of a rule file, as events and rules' names have it, with that of what is written in its place."""
        for texts in self._adopted:
            new = tuple(made.text(text.encode()).decode() for text in texts)
            yield digest_of(texts), digest_of(new)
            yield from ((prefix_of("", each), prefix_of("", other)) for each, other in zip(texts, new, strict=True))

    def read(self, position: int) -> None:
        """Note what the event at a position holds."""
        stored = self._record.at(position)
        if stored is None:
            return
        if not isinstance(data := stored.data, PollEvent):
            reading = READINGS.of(data.provider) if isinstance(data, OfRun | OfVm | OfFleet) else None
            for field, value in msgspec.structs.asdict(data).items():
                if isinstance(value, bytes):
                    self.search(value, _OURS if reading is None else reading.private)
                elif isinstance(value, str):
                    self._note(_private_fields(type(data)).get(field), value)
            if isinstance(data, RulesAdopted) and data.text:
                self._adopted.append((data.text, *data.extends))
            return
        scope = self._record.scope(stored.scope or 0)
        question, reading = READINGS.asked(scope.path, bytes(scope.req))
        private = {} if reading is None else reading.private
        self.search(bytes(scope.req), private)
        for item in () if stored.body is None else self._record.children(stored.body)[1]:
            if (stored.scope, item) in self._seen:
                continue
            self._seen.add((stored.scope, item))
            text = self._record.item(item)
            self.search(text, private)
            with suppress(ValueError):
                things = reading and self._reader.item(question, reading, item, self._record.item, costs=False)
                for thing in things or ():
                    if isinstance(thing, Seen | VmFacts):
                        self._facts(question.provider, thing.facts if isinstance(thing, Seen) else thing)

    def _facts(self, provider: str, facts: RunFacts | VmFacts) -> None:
        self._ids[foreign_run_id(provider, facts.provider_id)] = provider, facts.provider_id
        self._note("names", facts.name)
        if isinstance(facts, VmFacts):
            self._note("names", facts.fleet)
            self._hosts(facts.hostname)
            return
        self._note("names", facts.user)
        for attempt in facts.attempts:
            self._hosts(attempt.hostname)
            self._hosts(attempt.hosts)

    def _hosts(self, hosts: str | None) -> None:
        """A host, or a list as schedulers write it: `gpu[01-03,07]` is also `gpu01` to `gpu07`."""
        self._note("hosts", hosts)
        for match in _NODES.finditer(hosts or ""):
            for low, high in _RANGE.findall(match[2] or ""):
                for number in range(int(low), min(int(high or low), int(low) + 4096) + 1):
                    self._note("hosts", f"{match[1]}{number:0{len(low)}}")
            if match[2] is None:
                self._note("hosts", match[0])

    def search(self, text: bytes, private: Mapping[str, str]) -> None:
        """Note what a text holds under private keys. StenoError: it is nested too deep for that."""
        self.keys.update(key.decode("utf-8", "replace") for key in _KEY.findall(text))
        try:
            self._walk(msgspec.json.decode(text), private)
        except msgspec.DecodeError:  # an error page, or the lines of a log
            self._walk(text.decode("utf-8", "replace"), private)
        except RecursionError:
            raise StenoError("an answer is nested too deep to find what is to be hidden in it") from None

    def _walk(self, value: Any, private: Mapping[str, str], kind: str | None = None) -> None:
        """Note the texts under private keys, at any depth."""
        match value:
            case dict():
                typed = value.get("type")
                for key, each in value.items():
                    self._walk(each, private, private.get(key) or private.get(f"{typed}.{key}") or kind)
            case list() | tuple():
                for each in value:
                    self._walk(each, private, kind)
            case str():
                for key, text in _PAIR.findall(value):
                    self._note(private.get(key), text)
                self._note(kind, value)

    def _note(self, kind: str | None, value: str | None) -> None:
        value = (value or "").strip()
        if kind == "owner":
            kind, value = "names" if value.startswith("user/") else None, value.removeprefix("user/")
        if kind in self._kinds and value.lower() not in _NOBODY and COMMITMENT.fullmatch(value.encode()) is None:
            self.values.setdefault(value, str(kind))
