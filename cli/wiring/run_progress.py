"""The progress of a run: one rewritten line on a terminal, one line per change in a pipe."""

import sys
import threading
from collections.abc import Callable
from typing import Self

import click

from cli.render import paint, words
from cli.render.runs import costs
from cli.wiring.terminal import colour_wanted, columns
from engine.objects import RunObject
from events.clock import Clock, parse_time

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
        parts.append(words.duration(max(0, now - began)))
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
