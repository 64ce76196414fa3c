"""Incident bundles: which events concern some runs, and the proof that they fold to the same verdicts."""

import hmac
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import BinaryIO, Final

import msgspec
import zstandard

from steno.engine.fold.chains import foreign_ids
from steno.engine.live.adopted_rules import STREAM
from steno.engine.objects import RunObject
from steno.engine.providers.registry import READINGS, every_rule_set
from steno.engine.replay.redaction import Private, Redaction
from steno.engine.replay.replay import replay_record
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm
from steno.events.bundle.form import VERSION, BundleEvent, BundleOutput, Checker, Manifest, position_of, raw_lines
from steno.events.bundle.pack import Choice, Packer, Progress
from steno.events.bundle.store import BundleStore
from steno.events.clock import SystemClock
from steno.events.errors import IdConflict, StenoError
from steno.events.installation import version
from steno.events.store.record import Record
from steno.events.store.store import Identity, is_bundle
from steno.events.types import RunObserved

_LEVEL: Final = 10


def export(
    record: Record,
    runs: Mapping[str, RunObject],
    folded: Collection[Run | Vm],
    file: BinaryIO,
    *,
    kinds: tuple[str, ...],
    bundle_id: str,
    progress: Progress,
) -> tuple[Manifest, int]:
    """Write a bundle of these runs; its manifest, with the digest of the whole as its seal, and its number of events.
    `folded`: the runs and their machines; `kinds`: what is redacted.

    Raises StenoError if no part of the record folds to the same runs, or the record is a bundle.
    """
    if is_bundle(record.store):
        raise StenoError(f"{record.store} is a bundle: export from the record, which has the keys of the proof.")
    why = ""
    with closing(record.store.open(write=False, create=False, check=True, clock=SystemClock())) as session:
        for choice in _choices(record, folded, output=not kinds):
            packer = Packer(session, choice)
            redaction = _redaction(record, packer.chosen, kinds, bundle_id, session.identity)
            manifest = Manifest(
                version=VERSION,
                bundle_id=bundle_id,
                record_id=record.id,
                created_at=session.identity.created_at,
                head=packer.head,
                first=choice.first,
                runs=tuple(_redacted(redaction, run) for run in runs),
                rules=tuple(every_rule_set()),
                software=version(),
                redacted=kinds,
                pseudonyms=() if redaction is None else tuple(redaction.pseudonyms),
            )
            file.seek(0)
            file.truncate()
            with zstandard.ZstdCompressor(_LEVEL, write_checksum=True).stream_writer(file, closefd=False) as packed:
                digest = packer.write(manifest, redaction, packed.write, progress)
            file.flush()
            why = _difference(BundleStore(file.name), runs, redaction)
            if not why:
                return msgspec.structs.replace(manifest, seal=digest), len(packer.chosen)
    raise StenoError(f"The bundle would not fold to the same runs ({why}): leave out --redact, or export a trace.")


def streams_of(run: Run) -> set[str]:
    """The streams on which events about a run may be."""
    ids = () if run.provider_id is None else foreign_ids(run.provider, run.provider_id, run.submitted_at)
    return {run.subject, *(f"run/{each}" for each in ids)}


def last_poll(record: Record, run: Run) -> int:
    """The newest poll that changed a run, or of an open one showed it."""
    last = max([run.first_position, *run.evidence, *(step.position for step in run.transitions)])
    for stream in streams_of(run):
        for stored in record.read(stream=stream, types={"RunObserved"}, backwards=True, limit=1):
            last = max(last, stored.data.poll if isinstance(stored.data, RunObserved) else 0)
    return last if run.terminal else max(last, run.last_position)


def _choices(record: Record, folded: Collection[Run | Vm], *, output: bool) -> Iterator[Choice]:
    """Parts of the record, from the smallest that may do to all of it."""
    runs = [thing for thing in folded if isinstance(thing, Run)]
    # A provider's own log, which dates what polls show, is of no project.
    names = {name for thing in folded for source in thing.started for name in (source, thing.provider)}
    sources = frozenset(f"source/{name}" for name in names)
    queues = (name.replace("source/", "queue/") for name in sources)
    own = sources.union(queues, (STREAM,), (thing.subject for thing in folded), *map(streams_of, runs))
    first, last = min(thing.first_position for thing in folded), max(last_poll(record, run) for run in runs)
    costed = max([last, *(run.cost_at or 0 for run in runs)])  # a provider may settle its own figure later
    printed = [
        stored.position
        for run in runs
        if output
        for stored in record.read(stream=run.subject, types={"OutputRecorded"}, backwards=True, limit=1)
    ]
    make = partial(Choice, output=output)
    for end in dict.fromkeys((max([last, *printed]), max([costed, *printed]))):
        yield make(first=first, last=end, polls=sources, own=own)
    yield make(first=1, last=max([costed, *printed]), polls=sources, own=None)
    yield make(first=1, last=record.head().position, polls=None, own=None)


def _redaction(
    record: Record, positions: Iterable[int], kinds: tuple[str, ...], bundle_id: str, identity: Identity
) -> Redaction | None:
    if not kinds:
        return None
    private = Private(record, kinds)
    for position in sorted(positions):  # a value that is of two kinds is always of the first
        private.read(position)
    return private.redaction(hmac.digest(identity.key, f"steno bundle {bundle_id}".encode(), "sha256"))


def _redacted(redaction: Redaction | None, text: str) -> str:
    return text if redaction is None else redaction.text(text.encode()).decode()


def _difference(bundle: BundleStore, runs: Mapping[str, RunObject], redaction: Redaction | None) -> str:
    """How the runs of a bundle differ from these; empty: they do not."""
    with Record.open(bundle, clock=SystemClock(), shapes=READINGS.shape) as unpacked:
        there = {run["run_id"]: run for run in replay_record(unpacked).to_json()["runs"]}
    for run in runs.values():
        wanted = msgspec.json.decode(_redacted(redaction, msgspec.json.encode(run).decode()))
        got = there.get(wanted["run_id"], {})
        for key in wanted.keys() | got.keys():
            if wanted.get(key) != got.get(key):
                return f"{run.name or run.run_id}: {key} is {got.get(key)}, not {wanted.get(key)}"
    return ""


def expect_same(record: Record, path: str, progress: Progress) -> None:
    """Raise IdConflict at the first line that this record would not have written into the bundle."""
    checker = Checker(path)
    lines, made, before = raw_lines(path), checker.manifest, 0
    chosen, outputs = set[int](), dict[int, bytes]()
    for part in checker.lines():
        if isinstance(part, BundleOutput):
            outputs[part.position] = part.data  # the record may have dropped it
        elif isinstance(part, BundleEvent) and part.data is not None:
            chosen.add(part.position)
    if made.record_id != record.id:
        raise IdConflict(f"{path} is of another record.")

    def compare(line: bytes) -> None:
        nonlocal before
        if next(lines, b"") + b"\n" != line:
            raise IdConflict(f"{path} is not what the record has behind position {before}: it was changed.")
        before = position_of(line) or before

    with closing(record.store.open(write=False, create=False, check=True, clock=SystemClock())) as session:
        packer = Packer(
            session, Choice(first=made.first, last=made.head.position, polls=None, own=None), chosen, outputs
        )
        packer.write(
            made, _redaction(record, chosen, made.redacted, made.bundle_id, session.identity), compare, progress
        )
