"""A record as a trace that ui.perfetto.dev opens: JSON in Chrome's trace event format, written as it is read.

A machine is a process: its phases, the runs on it, and as counters its cost so far and what its GPUs did. A source is a
process: its polls, and runs while they have no machine.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import accumulate, pairwise
from typing import Any, BinaryIO, Final

import msgspec

from steno.engine.money.bill import portions
from steno.engine.money.report import gpu_of
from steno.engine.objects import RunObject
from steno.engine.state.policy import MINUTE
from steno.engine.wire import DOLLAR, rate
from steno.events.clock import format_time, parse_time
from steno.events.installation import version
from steno.projections.frames.catalogue import POLLS
from steno.projections.frames.machine_tables import BilledVm, machines_of
from steno.projections.frames.run_tables import SAMPLES, microusd, moment
from steno.projections.frames.source import FrameSource
from steno.projections.read_models.schema import RunRow

END: Final = 1 << 62  # later than any moment
_POINTS: Final = 100  # of the cost in an interval at most, and one a minute
_COUNTED: Final = {"use": "use (%)", "memory": "memory (MiB)", "power": "power (W)"}


class PerfettoTrace:
    """A trace of everything; or of runs (by id) from the first to the last of them, with their machines and sources. It
    is cut at `since` and `until` (microseconds UTC); its own times count from `begins_at`.
    """

    def __init__(self, source: FrameSource, runs: Collection[str] = (), since: int = 0, until: int = END) -> None:
        self._source, self._runs = source, frozenset(runs)
        self._events = 0  # written so far
        self._numbers: dict[tuple[int, str], int] = {}  # of a row of a process; of 0: of a process
        self._filled: dict[tuple[int, str], int] = {}  # where the newest slice of a row ends
        self._stays = defaultdict[str, list[tuple[int, int, int]]](list)  # run → (since, until, process)
        self._titles: dict[str, str] = {}  # of runs
        lives = [(edges[0], edges[-1]) for _, _, edges in self._lives()]
        begins, ends = [since for since, _ in lives], [until for _, until in lives]
        if not runs:
            begins += [row.created for row in source.view.store.vms.all(hidden=False)]
            begins += [first.observed_at for first in source.record.read(limit=1)]
        self._since, self._until = max(since, min(begins, default=0)), min(until, max(ends) if runs else END)

    def write(self, file: BinaryIO) -> int:
        """The number of events. What is kept in memory grows with runs and machines, not with polls and samples."""
        self._file, source = file, self._source
        about = {"record": source.record.id, "position": source.position, "version": version()}
        about["begins_at"] = format_time(self._since)
        file.write(b'{"displayTimeUnit":"ms","otherData":' + msgspec.json.encode(about) + b',"traceEvents":[')
        for machine in machines_of(source):
            if not self._runs or not self._runs.isdisjoint(machine.object.runs):
                self._machine(machine)
        sources = {self._run(*life) for life in self._lives()}
        for poll in POLLS.things(source):
            name = poll.stored.stream.removeprefix("source/")
            if (not self._runs or name in sources) and poll.scope is not None:
                what = f"{'' if poll.stored.type == 'PollRecorded' else 'no answer: '}{poll.title}"
                args = {"position": poll.stored.position, "status": poll.scope.status, "error": poll.scope.error}
                self._put("i", what, self._number(0, name), poll.stored.observed_at, "polls", s="t", args=args)
        for event, sample in SAMPLES.things(source):
            device = f"GPU {sample.device}" if sample.device else "processes"
            for field, what in _COUNTED.items() if event.run_id in self._titles else ():
                if (value := getattr(sample, field)) is not None:
                    process = self._process_of(event.run_id, sample.device, sample.at)
                    name = f"{device} {what}, {self._titles[event.run_id]}"
                    self._put("C", name, process, sample.at, args={"value": value})
        file.write(b"\n]}\n")
        return self._events

    def _lives(self) -> Iterator[tuple[RunRow, RunObject, list[int]]]:
        """Runs, each with when it came, each change of its state, and, if it goes on, the newest poll."""
        view = self._source.view
        for row in map(view.store.runs.get, self._runs) if self._runs else view.store.runs.all(hidden=False):
            if row is not None:
                run = row.public
                ends = () if run.ended else (view.clock(row.archive, view.last_at or 0),)
                moments = (row.sort_at, *(parse_time(step.at) for step in run.transitions), *ends)
                yield row, run, list(accumulate(moments, max))

    def _machine(self, machine: BilledVm) -> None:
        vm, bill, cost = machine.vm, machine.object, 0
        hourly = "" if (price := microusd(bill.price_usd_per_hour)) is None else rate(price)
        process = self._number(0, vm.vm_id, f"{bill.name or vm.provider_id} {gpu_of(vm)} {hourly}".rstrip())
        for stay in vm.occupancies:
            until = machine.costed_to if stay.until is None else stay.until
            self._stays[stay.run_id].append((max(stay.since, vm.created), until, process))
        for part in bill.intervals:
            since, paid = moment(part.start) or 0, microusd(part.cost_usd) or 0
            until = max(since, machine.costed_to if part.end is None else parse_time(part.end))
            about = {"vm_id": vm.vm_id, "source": vm.source, "cost_usd": part.cost_usd}
            self._slice(part.phase, since, until, process, "phases", about)
            points = range(since, until, max(MINUTE, (until - since) // _POINTS + 1))
            edges = sorted({since, *points, until, *(at for at in (self._since, self._until) if since < at < until)})
            for at, more in zip(edges, (0, *portions(paid, edges)) if since < until else (paid,), strict=True):
                cost += more
                self._put("C", "cost (US dollars)", process, at, args={"value": cost / DOLLAR})

    def _run(self, row: RunRow, run: RunObject, edges: list[int]) -> str:
        """Write its states; its source."""
        steps, stays, waiting = run.transitions, sorted(self._stays[run.run_id]), self._number(0, row.source)
        self._titles[run.run_id] = f"{run.name or ''} {run.run_id[:13]}".strip()
        left = (edges[0], *accumulate((until for _, until, _ in stays), max))
        came = [*(since for since, _, _ in stays), *([] if stays and run.ended else [END])]
        waits = [(since, until, waiting) for since, until in zip(left, came, strict=False)]
        states = [steps[0].origin or run.state if steps else run.state, *(step.target for step in steps)]
        for state, step, (since, until) in zip(states, (None, *steps), pairwise(edges), strict=False):
            about = {"run_id": run.run_id, "position": step and step.position, "rule": step and step.rule}
            for begin, end, process in (*waits, *stays):
                self._slice(state, max(since, begin), min(until, end), process, run.run_id, about)
        self._stays[run.run_id] = stays or waits
        if run.ended:
            ended = {name: getattr(run, name) for name in ("run_id", "reason", "exit_status", "rule", "cost_usd")}
            self._put("i", run.state, [*waits, *stays][-1][2], edges[-1], run.run_id, s="t", args=ended)
        return row.source

    def _process_of(self, run_id: str, device: str, at: int) -> int:
        """Where a device is: `1:0` in the second machine that the run had then, in order of first sight."""
        stays = self._stays[run_id]
        there = sorted({process for since, until, process in stays if since <= at <= until}) or [stays[-1][2]]
        number = device.rpartition(":")[0]
        return there[min(int(number), len(there) - 1) if number.isdecimal() else 0]

    def _slice(self, name: str, since: int, until: int, process: int, row: str, about: object) -> None:
        """A stretch of a row, without what its slices fill already: Perfetto drops those that overlap."""
        since = max(since, self._since, self._filled.get((process, row), 0))
        if since < (until := min(until, self._until)):
            self._filled[process, row] = until
            self._put("X", name, process, since, row, dur=until - since, args=about)

    def _put(self, kind: str, name: str, process: int, at: int, row: str = "", **fields: Any) -> None:
        """Write an event of the format, if its moment is not cut off."""
        if self._since <= at <= self._until:
            where = {"tid": self._number(process, row)} if row else {}
            event = {"ph": kind, "name": name, "pid": process, **where, "ts": at - self._since, **fields}
            self._file.write((b",\n" if self._events else b"\n") + msgspec.json.encode(event))
            self._events += 1

    def _number(self, process: int, what: str, title: str = "") -> int:
        number = self._numbers.get((process, what))
        if number is None:
            number = self._numbers[process, what] = len(self._numbers) + 1
            usual = what if process else f"{what}: polls, and runs without a machine"
            kind, args = "thread_name" if process else "process_name", {"name": title or self._titles.get(what, usual)}
            self._put("M", kind, process or number, self._since, tid=number, args=args)
        return number
