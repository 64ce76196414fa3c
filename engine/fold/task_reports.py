"""What a task says of itself, line by line: its phase, and why it fails. Only its provider says that it has ended."""

from typing import Final

import msgspec

from engine.fold.run import PhaseStep, ReportedPhase, Said
from engine.kernel.mark import read_frame, read_mark
from engine.states import Reason

_PHASES: Final = {
    "COMPILING": ReportedPhase.COMPILING,
    "CHECKING": ReportedPhase.CHECKING,
    "BENCHMARKING": ReportedPhase.BENCHMARKING,
}
_ERRORS: Final = {
    "COMPILE_ERROR": Reason.COMPILE_ERROR,
    "WRONG_ANSWER": Reason.WRONG_ANSWER,
    "RUNTIME_ERROR": Reason.RUNTIME_ERROR,
}
_LAST: Final = frozenset({*_ERRORS, "ERROR", "BENCHMARKED"})
"""After these nothing comes; nor after CHECKED, where only a check was asked for."""


def heard(said: Said, seq: int, line: bytes, *, last: bool, position: int, at: int) -> Said:
    """What is known of a task once it said one thing more; a line nobody can read counts as said."""
    said = msgspec.structs.replace(said, frames=seq, over=last)
    frame = None if last else read_frame(line)
    if frame is None:
        return said
    if frame.status == "COMPILING":
        said = msgspec.structs.replace(unheard(said), over=False)
    phase = _PHASES.get(frame.status)
    if phase is not None:
        step = PhaseStep(phase=phase, position=position, at=at)
        said = msgspec.structs.replace(said, phases=(*said.phases, step))
    error = _ERRORS.get(frame.status)
    if error is not None:
        said = msgspec.structs.replace(said, error=error, error_position=position)
    if frame.status in _LAST or (frame.status == "CHECKED" and only_checks(said)):
        said = msgspec.structs.replace(said, ended=True)
    return said


def unheard(said: Said) -> Said:
    """The same task restarts: its earlier reports do not count."""
    return Said(mark=said.mark, frames=said.frames)


def only_checks(said: Said) -> bool:
    """Whether nothing is to be timed."""
    mark = read_mark(said.mark)
    return mark is not None and mark.endpoint == "checker"
