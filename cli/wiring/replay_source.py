"""What `replay` folds: a record or a trace, told apart by what the file holds."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.wiring.app import App
    from engine.replay.result import Replay
    from engine.replay.step import Step
    from engine.replay.until import Until
    from events.store.record import Record

_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class TraceHistory:
    """The polls of a trace; positions are its line numbers."""

    path: str
    lenient: bool
    broken: set[int] = field(default_factory=set)
    """Lines a fold left out."""

    def replay(self, rules: str, until: Until | None) -> Replay:
        """Fold it all.

        Raises:
            UnreadableInput: a line is broken and not forgiven.
        """
        from engine.replay.trace import replay_trace

        return replay_trace(self.path, rules, until, lenient=self.lenient, broken=self.broken.add)

    def steps(self, rules: str, until: Until | None) -> Iterator[Step]:
        """Fold it poll by poll."""
        from engine.replay.trace import step_trace

        return step_trace(self.path, rules, until, lenient=self.lenient)


@dataclass(frozen=True, slots=True)
class RecordHistory:
    """The polls and intents of a record."""

    record: Record

    def replay(self, rules: str, until: Until | None) -> Replay:
        """Fold it all."""
        from engine.replay.record import replay_record

        return replay_record(self.record, rules, until)

    def steps(self, rules: str, until: Until | None) -> Iterator[Step]:
        """Fold it poll by poll."""
        from engine.replay.record import step_record

        return step_record(self.record, rules, until)


History = TraceHistory | RecordHistory


@contextmanager
def opened(app: App, what: str | None, *, lenient: bool) -> Iterator[History]:
    """The history a person names: a trace file, `-`, a record's path or URL; None is the record of the settings.

    Raises:
        RecordNotFound, NotARecord, RecordDamaged, RecordTooNew: as they say.
    """
    from cli.stores import reading

    if what == "-":
        with _spooled() as path:
            yield (trace := TraceHistory(path, lenient))
        _tell(trace.broken)
        return
    if what is not None and not _names_a_record(what):
        from cli.inputs import existing

        yield (trace := TraceHistory(existing(what), lenient))
        _tell(trace.broken)
        return
    if what is not None:
        app.flags["record"] = what
    with reading(app) as record:
        yield RecordHistory(record)


def _tell(broken: set[int]) -> None:
    """Say which lines of a trace were left out."""
    if broken:
        from cli.render.words import count
        from cli.wiring.output import warn

        first = f"line {min(broken)}" if len(broken) == 1 else f"the first is line {min(broken)}"
        warn(f"{count(len(broken), 'broken line')} skipped: {first}")


def _names_a_record(what: str) -> bool:
    if "://" in what:
        return True
    path = Path(what)
    if not path.is_file():
        return path.suffix not in {".jsonl", ".zst", ".json"}
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE or path.suffix in {".db", ".sqlite"}


@contextmanager
def _spooled() -> Iterator[str]:
    """Standard input as a file, so that it can be folded more than once."""
    import shutil
    import sys
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="steno-", suffix=".jsonl") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        yield file.name
