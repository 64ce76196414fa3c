"""Incident bundles of recorded traces, as files that tests read and change."""

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import zstandard

from steno.cli.wiring.errors import code_of
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.events import types
from steno.events.bundle import form
from steno.events.bundle.form import AnyLine, encoded
from steno.events.clock import SystemClock
from steno.events.store.record import Batch, Record
from stenotest.in_process import InProcess


def recorded(path: Path, trace: Path, *ours: types.Event) -> None:
    """The record that a recorder would have written of a trace, after events of our own about one run."""
    polls = [poll for _, poll in open_trace(trace) if poll is not None]
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        for source in sorted({poll.source for poll in polls}):
            record.append_many([Batch(f"source/{source}", (types.RecorderStarted(source=source, software="1"),))])
        record.append_many([Batch(f"run/{getattr(event, 'run_id', '')}", (event,)) for event in ours])
        record.append_polls(polls)


def lines_of(bundle: Path) -> list[bytes]:
    with bundle.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()


def written(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(zstandard.compress(b"\n".join(lines) + b"\n"))
    return path


def sealed(path: Path, lines: Iterator[AnyLine]) -> Path:
    """A bundle of other lines that somebody sealed again."""
    own, seal = [], ""
    for line in lines:
        own.append(form.sealed(line, seal))
        seal = own[-1].seal
    return written(path, list(map(encoded, own)))


def unpacked(bundle: Path) -> bytes:
    """All that a bundle holds, its events' own bytes too."""
    lines = lines_of(bundle)
    inner = [b64decode(text) for line in lines for text in re.findall(rb'"(?:data|raw)":"([^"]*)"', line)]
    return b"\n".join([*lines, *inner, *(line.encode() for line in map(str, map(json.loads, lines)))])


def refused(call: InProcess, *words: object, **variables: str) -> tuple[int, str]:
    """The exit code and the line of a command that fails."""
    done = call(*words, **variables)
    if done.exception is None or isinstance(done.exception, SystemExit):
        return done.exit_code or call.app.exit_code, done.stderr
    assert "\n" not in str(done.exception)
    return code_of(done.exception), str(done.exception)
