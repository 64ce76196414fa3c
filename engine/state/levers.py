"""Levers that users pulled: which hold, which runs and machines each is about, and each in words."""

from collections.abc import Iterable

import msgspec

from steno.engine.state.run import Run
from steno.engine.state.vm import Vm
from steno.events.clock import format_second
from steno.events.levers import LeverPulled

SHORT = 8  # digits of a lever's id that are shown; a unique beginning names it
LONGEST_WHY = 500  # characters of a reason
_VERBS = {"pause": "paused", "drain": "began to drain", "stop": "stopped", "keep": "keeps"}


class Lever(msgspec.Struct, frozen=True, kw_only=True):
    """A lever that was not released."""

    position: int
    at: int
    pulled: LeverPulled

    def holds(self, moment: int) -> bool:
        """True if its time has not passed at a moment of record time."""
        return self.pulled.until is None or moment < self.pulled.until


def lasts(lever: LeverPulled) -> bool:
    """True if it also acts on what comes later; False: it stops what it matches, and that is all."""
    return lever.action != "stop" or (lever.state is None and lever.vm_id is None)


def is_of(lever: LeverPulled, source: str) -> bool:
    return lever.source in (None, source, source.partition("/")[0])


def matches(lever: LeverPulled, run: Run) -> bool:
    """True if it is about the run: never about a run that was not submitted through Steno."""
    terms = run.terms
    if terms is None or run.archive is not None or lever.action == "keep":
        return False
    models = {model.casefold() for model in (*terms.gpu, *terms.fallback)}
    return (
        lever.user in (None, terms.submitter)
        and (lever.gpu is None or lever.gpu.casefold() in models)
        and is_of(lever, f"{run.provider}/{run.project}" if run.project else run.provider)
        and lever.state in (None, run.state.value)
        and lever.vm_id in (None, run.vm_id)
    )


def stopped_by(lever: LeverPulled, runs: Iterable[Run]) -> list[Run]:
    """The runs that a stop matches, also those that may be submitted again for lack of capacity. A firing ends with its
    schedule, and a task with its array if that is matched.
    """
    open_ = (run for run in runs if (not run.terminal or run.unserved) and run.schedule is None)
    matched = {run.run_id: run for run in open_ if matches(lever, run)}
    return [run for run in matched.values() if run.array not in matched]


def holder(levers: Iterable[Lever], run: Run, moment: int) -> Lever | None:
    """The first lever because of which the run gets no place."""
    lasting = (lever for lever in levers if lever.holds(moment) and lasts(lever.pulled))
    return next((lever for lever in lasting if matches(lever.pulled, run)), None)


def drainer(levers: Iterable[Lever], vm: Vm, moment: int) -> Lever | None:
    """The first lever that ends the machine once it is idle."""
    drains = (lever for lever in levers if lever.pulled.action == "drain" and lever.holds(moment))
    return next((lever for lever in drains if is_of(lever.pulled, vm.source)), None)


def sentence(lever: Lever) -> str:
    """`ada paused runs of bob at 2026-11-20T14:05:00Z: maintenance`, with the command that releases it."""
    pulled = lever.pulled
    until = "" if pulled.until is None else f" until {format_second(pulled.until)}"
    what = f"{pulled.by} {_VERBS[pulled.action]} {scope(pulled)} at {format_second(lever.at)}{until}"
    release = f" (`steno resume {pulled.lever_id[:SHORT]}` releases it)" if lasts(pulled) else ""
    return f"{what}: {' '.join(pulled.why.split())}{release}"


def nothing_to_stop(lever: LeverPulled) -> str:
    return f"nothing to stop: no open run matches ({scope(lever)})"


def scope(lever: LeverPulled) -> str:
    """The runs or the machine that it is about, in words."""
    parts = (
        ("in state ", lever.state),
        ("of ", lever.user),
        ("for ", lever.gpu),
        ("of ", lever.source),
        ("on machine ", lever.vm_id and lever.vm_id[:SHORT]),
    )
    if lever.action == "keep":
        return f"machine {(lever.vm_id or '')[:SHORT]}"
    named = " ".join(f"{word}{value}" for word, value in parts if value is not None)
    return f"runs {named}" if named else "everything"
