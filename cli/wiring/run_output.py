"""A run's output as people and programs want it: lines, the last of them, without the frames of a kernel; and a thread
that prints it while a run goes on.
"""

import codecs
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from queue import Queue
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import click

from steno.cli.render import paint, words
from steno.cli.render.paint import visible_output
from steno.cli.render.runs import costs, ended
from steno.cli.wiring.errors import say
from steno.cli.wiring.output import emit, emit_json, hint
from steno.cli.wiring.terminal import colour_wanted, columns
from steno.cli.wiring.view import moves_of, viewing
from steno.engine.errors import Conflict
from steno.engine.kernel.machine.framing import MARK
from steno.engine.objects import RunObject
from steno.events.clock import Clock, duration, format_time, parse_time
from steno.events.errors import StenoError

if TYPE_CHECKING:
    from steno.cli.wiring.app import App
    from steno.engine.state.run import Run
    from steno.events.store.store import Store

MOST_LINES: Final = 1_000  # that a search prints
LAST_WORDS: Final = 15.0  # seconds in which the rest of the output of an ended run may come
_FRAME: Final = MARK.encode()


class LineAbove(Protocol):
    """Where text is written above a progress line."""

    def above(self, write: Callable[[], None]) -> None: ...


def without_frames(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The output without its framed lines; only the first characters of a line are ever held back."""
    held, begins, drops = b"", True, False
    for piece in pieces:
        kept = []
        lines = (held + piece).split(b"\n")
        held = b""
        for number, line in enumerate(lines):
            last = number == len(lines) - 1
            if begins and last and _FRAME.startswith(line):  # it may become a frame; an empty rest too
                held = line
                continue
            if begins:
                drops = line.startswith(_FRAME)
            if not drops:
                kept.append(line if last else line + b"\n")
            begins = not last
        if kept:
            yield b"".join(kept)
    if held and not held.startswith(_FRAME):
        yield held


def lines_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The lines, without their ends; a line of any length is copied once."""
    begun: list[bytes] = []
    for piece in pieces:
        first, *more = piece.split(b"\n")
        begun.append(first)
        if more:
            yield b"".join(begun)
            yield from more[:-1]
            begun = [more[-1]]
    if any(begun):
        yield b"".join(begun)


def dated_lines(
    pieces: Iterable[tuple[int | None, bytes]],
    *,
    since: int | None,
    stamped: bool,
    framed: bool,
    arrival: Clock | None,
) -> Iterator[bytes]:
    """The whole lines written at `since` or later, each dated by its first piece; `stamped`: after that time and a
    space; `framed`: without frames. Undated pieces get the time of `arrival`; raises `Conflict` without that.
    """
    begun: list[bytes] = []
    first: int | None = None

    def line(text: bytes, at: int) -> Iterator[bytes]:
        if (since is None or at >= since) and not (framed and text.startswith(_FRAME)):
            yield (format_time(at).encode() + b" " if stamped else b"") + text + b"\n"

    for moment, piece in pieces:
        if moment is None and arrival is None:
            raise Conflict("this provider does not say when output was written: leave out --since and --timestamps")
        at = arrival.now() if moment is None and arrival is not None else moment or 0
        *whole, rest = piece.split(b"\n")
        for text in whole:
            yield from line(b"".join([*begun, text]), at if first is None else first)
            begun, first = [], None
        if rest:
            begun.append(rest)
            first = at if first is None else first
    if begun:
        yield from line(b"".join(begun), first or 0)


def last_lines(pieces: Iterable[bytes], count: int, known: int | None) -> Iterator[bytes]:
    """The last lines; of output that goes on, what follows the first `known - count` lines."""
    whole = (line + b"\n" for line in lines_of(pieces))
    return iter(deque(whole, count)) if known is None else islice(whole, max(0, known - count), None)


def printed(pieces: Iterable[bytes], place: LineAbove | None = None) -> None:
    """Write output to stdout: byte by byte into a file or pipe; on a terminal in whole lines, with its colours and
    nothing else that could steer it.
    """
    on_terminal = sys.stdout.isatty()
    decoded = codecs.getincrementaldecoder("utf-8")("replace")

    def written(data: bytes) -> None:
        sys.stdout.buffer.write(visible_output(decoded.decode(data)).encode() if on_terminal else data)
        sys.stdout.buffer.flush()

    if place is None or not on_terminal:
        for piece in pieces:
            written(piece)
        return
    for line in lines_of(pieces):
        place.above(partial(written, line + b"\n"))


def tasks_of(app: "App", run: str) -> list[str]:
    """A word for each task of an array; for another run its own."""
    with viewing(app) as (_, view, _):
        row = view.row(run)
        return [f"{run}[{task.task}]" for task in view.store.runs.tasks(row)] or [run]


def follow_outputs(app: "App", runs: Sequence[str], **options: Any) -> None:
    """Print the outputs of several runs as they are written, each line behind the name of its run, and their states on
    stderr.
    """
    writes = Queue[Callable[[], None] | None](MOST_LINES)  # threads read, this one prints

    def follow(run: str) -> None:
        try:
            print_output(app, run, follow=True, above=writes.put, **options)
        except StenoError as error:
            writes.put(partial(say, str(error)))
        writes.put(None)

    def watch() -> None:
        for now, run in moves_of(app, runs):
            writes.put(partial(hint, f"{words.moment(now)}  {ended(run)}"))

    for run in runs:
        threading.Thread(target=follow, args=(run,), daemon=True).start()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    left = len(runs)
    while left or not writes.empty():
        if (write := writes.get()) is not None:
            write()
            continue
        left -= 1
        if not left:
            watcher.join(LAST_WORDS)  # the verdicts may follow


def _run_of(app: "App", run: str, *, follow: bool) -> tuple["Run", "Store"]:
    """The run and the store that has its output; to follow it, once it is submitted or has ended."""
    with viewing(app) as (record, view, _):
        folded, store = view.row(run).decoded, record.store
    if not follow or folded.provider_id is not None or folded.terminal:
        return folded, store
    say(f"{folded.name or folded.run_id} waits to be submitted to its provider; its output follows then")
    next((None for _, moved in moves_of(app, (folded.run_id,)) if moved.provider_id is not None), None)
    return _run_of(app, run, follow=False)


def print_output(
    app: "App",
    run: str,
    *,
    follow: bool,
    tail: int | None,
    since: int | None,
    timestamps: bool,
    above: Callable[[Callable[[], None]], None] | None = None,
) -> None:
    """Print the output of one run, from its provider or from the record. `above`: prints lines among other runs'."""
    from steno.events.store.outputs import output_of

    folded, store = _run_of(app, run, follow=follow)
    name = folded.name or folded.run_id
    if folded.provider_id is None:
        raise Conflict(f"{name} has not been submitted to its provider, so it has no output; see `steno show {name}`")
    if app.several and not app.json and above is None:
        emit(f"==> {run if run.endswith(']') else name} <==")
    provider_id = folded.provider_id

    def live(*, going_on: bool) -> Iterator[bytes]:
        with closing(app.provider_of(folded, store)) as provider:
            if since is None and not timestamps:
                yield from provider.logs(provider_id, name, follow=going_on)
                return
            dated = provider.dated_logs(provider_id, name, follow=going_on)
            arrival = app.clock if follow and since is None else None
            framed = folded.said is not None
            yield from dated_lines(dated, since=since, stamped=timestamps, framed=framed, arrival=arrival)

    def read(*, going_on: bool) -> Iterator[bytes]:
        if since is not None or timestamps:
            return live(going_on=going_on)
        attempt = folded.run_id, provider_id
        pieces = output_of(
            partial(live, going_on=going_on), store, attempt, app.clock, lambda why: say(f"{name}: {why}")
        )
        return pieces if folded.said is None else without_frames(pieces)

    pieces = read(going_on=follow)
    if tail is not None:
        pieces = last_lines(pieces, tail, sum(1 for _ in lines_of(read(going_on=False))) if follow else None)
    if not app.json and above is None:
        printed(pieces)
        return
    front = f"{run if run.endswith(']') else name} | ".encode()
    for line in lines_of(pieces):
        at, _, text = line.partition(b" ") if timestamps else (b"", b"", line)
        value = {"text": text.decode("utf-8", "replace")} | ({"at": at.decode()} if timestamps else {})
        value = {"run": name, **value} if app.several else value
        write = partial(emit_json, value, lines=True) if app.json else partial(printed, (front + line + b"\n",))
        write() if above is None else above(write)


def print_lines_with(app: "App", text: str, runs: Sequence[str]) -> None:
    """Print the recorded lines that contain a text, of these runs or of all."""
    from steno.events.store.outputs import search

    with viewing(app) as (record, view, _):
        run_ids = [view.row(run).run_id for run in runs] or None
        matches = list(islice(search(record, text.encode(), run_ids), MOST_LINES + 1))
        for match in matches[:MOST_LINES]:
            name = view.run(match.run_id).name or match.run_id
            line = visible_output(match.line.decode("utf-8", "replace"))
            value = {"run": name, "run_id": match.run_id, "offset": match.offset, "text": line}
            emit_json(value, lines=True) if app.json else emit(f"{name}:{match.offset}: {line}")
    if len(matches) > MOST_LINES:
        say(f"these are the first {MOST_LINES:,} lines; name runs, or search for a longer text")
    elif not matches:
        say(f"no recorded line contains {text!r}")


def _ended(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """With an end of its last line: the verdict follows on a line of its own."""
    last = b"\n"
    for piece in pieces:
        last = piece or last
        yield piece
    if not last.endswith(b"\n"):
        yield b"\n"


class OutputPrinter:
    """Prints the output of one attempt of a run, in a thread, until the run has ended. `logs` reads it."""

    def __init__(self, logs: Callable[[], Iterator[bytes]], place: LineAbove) -> None:
        self._logs = logs
        self._place = place
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._print, name="output", daemon=True)
        self._thread.start()

    def end(self) -> str | None:
        """Wait for the rest; why the output may be incomplete, or None. Raises what writing to stdout raised."""
        self._thread.join(LAST_WORDS)
        if isinstance(self._trouble, StenoError):
            return str(self._trouble)
        if self._trouble is not None:
            raise self._trouble
        return f"it did not end within {LAST_WORDS:.0f} s" if self._thread.is_alive() else None

    def _print(self) -> None:
        try:
            printed(_ended(self._logs()), self._place)
        except (StenoError, OSError) as error:
            self._trouble = error


_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_BEAT = 0.1


class RunProgress:
    """Shows a run's progress on stderr. On a terminal, a thread updates the elapsed time; it shares only the last
    `show`.
    """

    def __init__(self, name: str, started_at: int, clock: Clock) -> None:
        self._name = name
        self._started_at = started_at
        self._clock = clock
        self._terminal = sys.stderr.isatty()
        self._colour = colour_wanted(self._terminal)
        self._run: RunObject | None = None
        self._observability = "fresh"
        self._queued: str | None = None
        self._said: tuple[object, ...] = ()
        self._stop = threading.Event()
        self._line = threading.Lock()  # of the terminal's last line
        self._thread = threading.Thread(target=self._spin, daemon=True)

    def __enter__(self) -> Self:
        if self._terminal:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._terminal:
            self._thread.join()
            click.echo("\r\x1b[K", err=True, nl=False)

    def show(self, run: RunObject | None, observability: str = "fresh", queued: str | None = None) -> None:
        """Show the current state and queue place; in a pipe, print a line only on a change."""
        self._run, self._observability, self._queued = run, observability, queued
        news = ("requested" if run is None else run.state, observability, 1 if run is None else run.attempts, queued)
        if self._terminal or news == self._said:
            return
        self._said = news
        click.echo(f"{words.moment(self._clock.now())} {self.text()}", err=True)

    def above(self, write: Callable[[], None]) -> None:
        """Call `write`, which writes whole lines, where the progress line stands; that is drawn again below."""
        with self._line:
            click.echo("\r\x1b[K", err=True, nl=False)
            write()

    def text(self) -> str:
        """`matmul-3f2a0  running  1 m 12 s  cold  $0.0398`, and whether the provider still answers."""
        run, now = self._run, self._clock.now()
        state = "requested" if run is None else run.state
        parts = [self._name, paint.state(state)]
        if run is not None and run.attempts > 1:
            parts.append(f"attempt {run.attempts}")
        if self._queued is not None:
            parts.append(self._queued)
        began = self._started_at
        if run is not None and run.submitted_at is not None:
            began = min(began, parse_time(run.submitted_at))
        parts.append(duration(max(0, now - began)))
        if run is not None and run.start is not None:
            parts.append(run.start)
        if run is not None and costs(run):
            parts.append(words.short(run.cost_usd))
        if self._observability != "fresh":
            parts.append(click.style(f"the provider does not answer ({self._observability})", fg="magenta"))
        text = "  ".join(parts)
        return paint.visible(text if self._colour else click.unstyle(text))

    def _spin(self) -> None:
        beat = 0
        while not self._stop.wait(_BEAT):
            beat += 1
            line = self.text()
            plain = click.unstyle(line)
            if len(plain) > columns() - 3:
                line = paint.cut(plain, columns() - 3)
            with self._line:
                click.echo(f"\r\x1b[K{_FRAMES[beat % len(_FRAMES)]} {line}", err=True, nl=False, color=self._colour)
