"""The machine that a run is on: equal non-empty `hostname`, same project, overlapping lives of machine and submission;
the newest `created` wins, a tie is an anomaly and no link. Once linked, a submission stays linked.
"""

from bisect import bisect_left, insort
from functools import lru_cache
from operator import attrgetter
from sys import intern
from typing import Final

from msgspec.structs import replace

from steno.engine.fold.step import FoldStep
from steno.engine.fold.vm_step import EMPTY, emptied
from steno.engine.state.changes import AnomalyKind
from steno.engine.state.facts import AttemptFacts, Carrier, JobFacts, RunFacts
from steno.engine.state.run import Run
from steno.engine.state.states import State, VmState
from steno.engine.state.vm import Occupancy, Vm, last_asked
from steno.engine.state.world import HostMachines, World

_SAID_BY_MACHINE: Final = frozenset({State.PULLING, State.RUNNING})
_CREATED: Final = attrgetter("created")
_WAITING: Final = 100  # runs remembered for one hostname without a machine


@lru_cache(maxsize=1024)
def _key(replica_num: int, job_num: int, num: int) -> str:
    return intern(f"{replica_num}/{job_num}/{num}")


def _key_of(job: JobFacts, submission: AttemptFacts) -> str:
    return _key(job.replica_num, job.job_num, submission.num)


def run_shown(turn: FoldStep, run: Run) -> None:
    """A run says something new: which machines its submissions are on, and which they have left."""
    facts, carried = run.facts, turn.state.carried
    if facts is None:
        return
    if carried and run.carries is None:
        owner = carried.get(f"{run.provider}/{run.provider_id}", {}).get(run.name or "")
        if owner is not None:
            _carry(turn, turn.state.runs[owner], run)
    if run.carries is not None:
        run_shown(turn, turn.state.runs[run.carries])
        return
    keys: set[str] = set()
    for job in facts.jobs:
        for submission in job.attempts:
            key = _key_of(job, submission)
            keys.add(key)
            if submission.carrier is not None:
                _find_carrier(turn, run, submission.carrier)
            until = _until(job, submission, turn.at, over=facts.final)
            if key in run.links:
                _start(turn, run, key, submission.started_at)
                _leave(turn, run, key, until, attempt=submission)
            elif _host(turn.state, run, submission) is not None:
                _link(turn, run, key, submission, until)
    for key in tuple(run.links):
        if key not in keys and facts.final:
            _leave(turn, run, key, turn.at)


def _find_carrier(turn: FoldStep, run: Run, carrier: Carrier) -> None:
    """The run's attempt is a run of another provider, which is known already or comes later."""
    key = f"{carrier.provider}/{carrier.provider_id}"
    turn.state.carried.setdefault(key, {}).setdefault(carrier.name, run.run_id)
    other = turn.state.runs.get(turn.state.by_provider.get(key) or "")
    if other is not None and other.carries is None and other.name == carrier.name:
        _carry(turn, run, other)


def _carry(turn: FoldStep, run: Run, carrier: Run) -> None:
    """The run takes over the machine of the other, which is only a part of it from now on."""
    carrier.carries = run.run_id
    for vm_id in dict.fromkeys(carrier.links.values()):
        vm = turn.state.vms[vm_id]
        vm.occupancies = tuple(occupancy for occupancy in vm.occupancies if occupancy.run_id != carrier.run_id)
        vm.runs = tuple(run_id for run_id in vm.runs if run_id != carrier.run_id)
        vm.made_for = None if vm.made_for == carrier.run_id else vm.made_for
        turn.changes.append(vm.moved())
    carrier.links, carrier.vm_id, carrier.start = {}, None, None
    turn.changes.append(carrier.moved())


def _host(state: World, run: Run, submission: AttemptFacts) -> str | None:
    """The key of the machine's hostname in `by_host`: its own, or that of the run which carries it."""
    hostname, on = submission.hostname, run
    if submission.carrier is not None:
        key = f"{submission.carrier.provider}/{submission.carrier.provider_id}"
        on = state.runs.get(state.by_provider.get(key) or "") or run
        if on.facts is None or on.carries != run.run_id:
            return None
        hostname = next((attempt.hostname for attempt in on.facts.newest if attempt.hostname is not None), None)
    return None if hostname is None else f"{on.provider}/{on.project}/{hostname}"


def answered(turn: FoldStep, run: Run, before: RunFacts, asked_at: int) -> None:
    """Record that a run's machine answered: its job went on since the poll of `asked_at` showed `before`. A provider
    learns from the machine alone that a job pulls its image, runs or has an exit status.
    """
    if run.facts is None or not run.links:
        return
    known = {_key_of(job, attempt): attempt for job in before.jobs for attempt in job.attempts}
    now = [(_key_of(job, attempt), attempt) for job in run.facts.jobs for attempt in job.attempts]
    for key, submission in now:
        was = known.get(key)
        if was is None or key not in run.links:
            continue
        went_on = submission.state is not was.state and submission.state in _SAID_BY_MACHINE
        if went_on or (submission.exit_status is not None and was.exit_status is None):
            _note_more(turn.state, run, key, answered_at=asked_at)


def machine_shown(turn: FoldStep, vm: Vm) -> None:
    """A machine has a hostname: link the runs that waited for it."""
    host = f"{vm.provider}/{vm.facts.project}/{vm.facts.hostname}"
    turn.state.by_host.setdefault(host, HostMachines()).add(vm)
    for run_id in turn.state.waiting.pop(host, ()):
        run = turn.state.runs.get(run_id)
        if run is not None:
            run_shown(turn, run)


def leave_all(turn: FoldStep, run: Run) -> None:
    """The run is on no machine any more: lost, or submitted again."""
    for key in tuple(run.links):
        _leave(turn, run, key, turn.at, forgotten=True)


def rename(state: World, run: Run, before: str) -> None:
    """The run `before` has another id from now on."""
    for vm_id in set(run.links.values()):
        vm = state.vms[vm_id]
        vm.runs = tuple(run.run_id if run_id == before else run_id for run_id in vm.runs)
        vm.occupancies = tuple(
            replace(occupancy, run_id=run.run_id) if occupancy.run_id == before else occupancy
            for occupancy in vm.occupancies
        )
        if vm.made_for == before:
            vm.made_for = run.run_id
            vm.ours = vm.ours or run.requested_at is not None
    for waiting in state.waiting.values():
        waiting[:] = [run.run_id if run_id == before else run_id for run_id in waiting]


def _link(turn: FoldStep, run: Run, key: str, submission: AttemptFacts, until: int | None) -> None:
    state, host = turn.state, _host(turn.state, run, submission) or ""
    times = (submission.submitted_at, run.submitted_at, run.first_at)
    since = next(at for at in times if at is not None)
    newest = _newest_there(state, host, run, since, submission.finished_at)
    if len(newest) != 1:
        waiting = state.waiting.setdefault(host, [])
        if run.run_id not in waiting:
            waiting.append(run.run_id)
            del waiting[:-_WAITING]
        if newest:
            names = ", ".join(sorted(vm.provider_id for vm in newest))
            detail = f"submission {key} at {submission.hostname} fits {len(newest)} machines: {names}"
            turn.note(run, AnomalyKind.AMBIGUOUS_VM, detail, once=True)
        return
    (vm,), free_at = newest, None
    if vm.state in EMPTY:
        free_at = last_asked(vm)
    elif vm.state is VmState.BUSY and vm.steps[-1].before in EMPTY:
        free_at = vm.steps[-1].low_at
    occupancy = Occupancy(
        run_id=run.run_id,
        job=key,
        since=since,
        seen_at=turn.at,
        until=until,
        cold=vm.created >= since,
        blocks=submission.blocks,
        free_at=free_at,
        cut_off=submission.cut_off,
        started_at=submission.started_at,
    )
    vm.occupancies = (*vm.occupancies, occupancy)
    vm.runs = vm.runs if run.run_id in vm.runs else (*vm.runs, run.run_id)
    if occupancy.cold and vm.made_for is None:
        vm.made_for = run.run_id
        vm.ours = vm.ours or run.terms is not None
    run.links[key] = vm.vm_id
    _first_job(state, run)
    _left(turn, vm, occupancy, until, turn.at)
    turn.changes += (run.moved(), vm.moved())
    _compare(turn, run, vm)


def _newest_there(state: World, host: str, run: Run, since: int, until: int | None) -> list[Vm]:
    """The machine that a submission was on: the newest that had the hostname meanwhile, or several created at once."""
    fitting: list[Vm] = []
    for vm in sorted(_there_after(state, host, since), key=_CREATED, reverse=True):
        if fitting and vm.created < fitting[0].created:
            break
        if (vm.archive is None) == (run.archive is None) and (until is None or vm.created <= until):
            fitting.append(vm)
    return fitting


def _there_after(state: World, host: str, since: int) -> list[Vm]:
    """The machines that had the hostname and were not gone at `since`."""
    vms, known = state.vms, state.by_host.get(host)
    if known is None:
        return []
    for vm_id in tuple(known.there):
        if (end := vms[vm_id].over_at) is not None:
            known.there.remove(vm_id)
            insort(known.gone, (end, vm_id))
    gone = [vms[vm_id] for _, vm_id in known.gone[bisect_left(known.gone, (since, "")) :]]
    # A machine that ended at `since` counts if it began then too: a job may last less than a second.
    return [*(vms[vm_id] for vm_id in known.there), *(vm for vm in gone if vm.over_at != since or vm.created >= since)]


def _start(turn: FoldStep, run: Run, key: str, started_at: int | None) -> None:
    vm = turn.state.vms[run.links[key]]
    if any(
        occupancy.run_id == run.run_id and occupancy.job == key and occupancy.started_at != started_at
        for occupancy in vm.occupancies
    ):
        _note_more(turn.state, run, key, started_at=started_at)
        turn.changes.append(vm.moved())


def _leave(
    turn: FoldStep,
    run: Run,
    key: str,
    until: int | None,
    *,
    attempt: AttemptFacts | None = None,
    forgotten: bool = False,
) -> None:
    """Record when a submission left its machine; a submission that is shown there again never left. `attempt`: the
    submission, if an answer shows it: its `finished_at` counts rather than the poll that first showed it over.
    `forgotten`: no source says that it is over.
    """
    vm = turn.state.vms[run.links[key]]
    is_dated = attempt is not None and attempt.finished_at is not None
    for occupancy in vm.occupancies:
        if occupancy.run_id != run.run_id or occupancy.job != key or occupancy.until == until:
            continue
        if occupancy.until is not None and until is not None and not is_dated:
            continue
        cut_off = attempt is not None and attempt.cut_off
        _note_more(turn.state, run, key, until=until, cut_off=cut_off, forgotten=forgotten)
        _left(turn, vm, occupancy, until, run.last_at)
        emptied(turn, vm, turn.at if until is None else min(until, turn.at))
        turn.changes.append(vm.moved())


def _note_more(state: World, run: Run, key: str, **more: object) -> None:
    vm = state.vms[run.links[key]]
    vm.occupancies = tuple(
        replace(occupancy, **more) if occupancy.run_id == run.run_id and occupancy.job == key else occupancy
        for occupancy in vm.occupancies
    )


def _left(turn: FoldStep, vm: Vm, occupancy: Occupancy, until: int | None, at: int) -> None:
    """A submission is over: a machine shown empty meanwhile was not, and a machine whose end was not seen lived at
    least that long. A submission first seen there since the machine idles came after that, whatever the two clocks say.
    """
    if until is None:
        return
    if vm.unseen_end and vm.finished_at is not None:
        vm.finished_at = vm.finished_low = min(max(vm.finished_at, until), max(vm.first_at, vm.created))
    if vm.idle_since is not None and (until > vm.idle_since or occupancy.seen_at > vm.idle_since):
        vm.idle_from = turn.source(vm.source).answered_time
        vm.idle_since = max(vm.idle_since, at)


def _first_job(state: World, run: Run) -> None:
    """Set the machine that the run is on, and whether its first machine was made for it."""
    parts = {key: tuple(map(int, key.split("/"))) for key in run.links}
    keys = sorted(parts, key=parts.__getitem__)
    first = [key for key in keys if parts[key][:2] == parts[keys[0]][:2]]
    run.vm_id = run.links[first[-1]]
    for occupancy in state.vms[run.links[first[0]]].occupancies:
        if occupancy.run_id == run.run_id and occupancy.job == first[0]:
            dated = run.submitted_at is not None or (run.facts is not None and run.facts.last_submitted_at is not None)
            run.start = None if not dated else "cold" if occupancy.cold else "warm"


def _compare(turn: FoldStep, run: Run, vm: Vm) -> None:
    """Record an anomaly if a run of ours got other GPUs than it asked for."""
    terms, got = run.terms, vm.facts
    if terms is None or not (terms.gpu or terms.gpu_count):
        return
    wanted = (*terms.gpu, *(terms.fallback if run.requeues else ()))
    if run.placed is not None and run.placed.gpu is not None:
        wanted = (run.placed.gpu,)
    models = {model.lower() for model in wanted}
    if (models and (got.gpu or "").lower() not in models) or got.gpu_count < terms.gpu_count:
        wish = f"{' or '.join(wanted) or 'GPU'} × {terms.gpu_count}"
        detail = f"asked for {wish}, got {got.gpu or 'none'} × {got.gpu_count}"
        turn.note(run, AnomalyKind.GPU_MISMATCH, detail, once=True)


def _until(job: JobFacts, submission: AttemptFacts, at: int, *, over: bool) -> int | None:
    """When the submission left its machine: its own `finished_at`, else now if it is over; None: it goes on."""
    if submission.finished_at is not None:
        return submission.finished_at
    newer = job.newest is not None and submission.num < job.newest.num
    return at if over or newer or submission.over else None
