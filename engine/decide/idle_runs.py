"""When a run is stopped whose GPUs are idle: idle too long by its samples → warned → still idle by newer samples →
stopped. The idle time is that between two samples, by the clock that measured them: a time without samples is unknown
and begins it again, so a wall clock that jumps stops nothing.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from steno.engine.decide.idle_policy import STENO, stop_request
from steno.engine.decide.placement import Plan
from steno.engine.state.gpu_use import idle_since
from steno.engine.state.kernel_mark import gpu_kept
from steno.engine.state.policy import MINUTE
from steno.engine.state.run import Run
from steno.engine.state.states import State
from steno.events.clock import SECOND
from steno.events.types import RunIdleWarned, StopRequested

NOTICE: Final = 10 * MINUTE  # from the warning to the stop; of a timeout below 20 minutes its half
STALE: Final = 15 * MINUTE  # nobody has measured since: what the GPUs do is unknown


def idle_runs(plan: Plan) -> Iterator[RunIdleWarned | StopRequested]:
    """A warning for each run whose GPUs are idle for too long, and later its stop."""
    policy, now = plan.situation.policy, plan.situation.now
    if policy.free or (timeout := policy.busy_idle_timeout) is None:
        return
    notice = min(NOTICE, timeout // 2)
    for run in plan.situation.live:
        since = idle_since(run.use)
        if run.use is None or since is None or not _counts(run):
            continue
        newest, warning = run.use.newest * SECOND, run.warned
        if now - newest > STALE or newest - since < timeout - notice:
            continue
        if warning is None:
            # Behind the newest sample too: whatever the clock of the samples says, the stop needs a later one.
            due = max(now, newest) + notice
            yield RunIdleWarned(run_id=run.run_id, provider=run.provider, since=since, stops_at=due)
        elif min(now, newest) >= warning.stops_at and newest - since >= timeout:
            project = run.project or plan.situation.source.partition("/")[2]
            yield replace(stop_request(run, project, by="policy", submitter=STENO), idle_since=since)


def _counts(run: Run) -> bool:
    """True for a running run that the policy is about: no schedule or firing, no array, no machine for kernels."""
    whole = run.schedule is None and not run.is_schedule and not run.tasks and gpu_kept(run) is None
    return run.state is State.RUNNING and run.stop_by is None and whole and not (run.terms and run.terms.keep_idle)
