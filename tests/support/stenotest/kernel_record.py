"""A record with kernels and given verdicts of their judge, for tests of many or unusual kernels."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from steno.engine.kernel.definition import definition_hash, shipped
from steno.engine.kernel.machine.measure import summary
from steno.engine.providers.registry import READINGS
from steno.engine.state.kernel_mark import KernelMark
from steno.events import types
from steno.events.clock import SECOND, format_time
from steno.events.store.record import Batch, Record
from stenotest.dstack_history import START, job, poll_of, provider_id, run_item, submission
from stenotest.machines import machine_item


@dataclass(kw_only=True)
class ToldTime:
    """A kernel for vector-add: submitted `at` seconds after `START`, ended a minute later."""

    name: str
    at: float
    median: float = 0.5
    end: str = "BENCHMARKED"
    message: str = ""
    gpu: str = "MI300X"
    dtype: str = "float32"
    submitter: str = "ada"
    host: str = "gpu-1"
    source: str = ""
    """Kernels of the same source have the same; by default its name."""
    result: dict[str, Any] = field(default_factory=dict)
    """Other values of its BENCHMARK_RESULT."""

    @property
    def mark(self) -> KernelMark:
        return KernelMark(
            problem="vector-add", gpu_type=self.gpu, dtype=self.dtype, language="hip", endpoint="benchmark",
            tests=1, benchmarks=1, source=self.source or self.name,
            definition_hash=definition_hash(shipped()["vector-add"]),
        )  # fmt: skip

    def frames(self) -> Iterator[dict[str, Any]]:
        """The frames of its judge."""
        calls = max(1, round(60 / self.median))
        batches = [
            {
                "calls": calls, "ms": self.median * calls * (1 + 0.004 * (number - 2)), "late_ms": 0.1, "cpu_ms": None,
                "counts": True, "seed": f"{number:064x}", "digest": f"{number:016x}",
            }
            for number in range(5)
        ]  # fmt: skip
        judgement = {
            "sizes": dict(shipped()["vector-add"].benchmarks[0].sizes),
            **summary(batches),
            "warm_ups": 1,
            "repeats": 5 * calls,
            "calls": calls,
            "called": "solution",
            "cpus": 4,
            "coarse": "",
            "ranks": True,
            "empty_ms": 0.01,
            "floor_ms": 0.002374,
            "batches": batches,
        }
        judgement |= self.result
        yield {"status": "COMPILING", "compiler": "hipcc", "flags": "-O3 --offload-arch=gfx942", "dtype": self.dtype}
        if self.end == "COMPILE_ERROR":
            yield {"status": self.end, "message": self.message or "expected ;"}
            return
        yield {"status": "CHECKING", "tests": 1}
        yield {"status": "TEST_RESULT", "test": 1, "tests": 1, "passed": True, "sizes": {"N": 1000}, "max_error": 0.0}
        yield {"status": "BENCHMARKING", "benchmarks": 1}
        if self.end != "BENCHMARKED":
            yield {"status": self.end, "message": self.message}
            return
        yield {"status": "BENCHMARK_RESULT", "benchmark": 1, "benchmarks": 1, **judgement}
        yield {"status": self.end, "median_ms": [self.median]}


class _Clock:
    """Stands where it is put."""

    def __init__(self) -> None:
        self.moment = START

    def now(self) -> int:
        return self.moment

    def sleep(self, duration: int) -> None:
        self.moment += duration


def kernel_record(path: Path, kernels: Iterable[ToldTime]) -> Path:
    """A record of these kernels, by time of submission, on machines of dstack that are named after their hosts."""
    clock, machines = _Clock(), dict[str, float]()
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=clock) as record:

        def polled(path: str, body: list[Any], second: float, **req: Any) -> None:
            clock.moment = START + round(second * SECOND)
            line = {"t": format_time(clock.moment), "ep": path, "path": f"/api/{path}", "req": req}
            record.append_polls([poll_of(line | {"status": 200, "ms": 10, "body": body})])

        for kernel in sorted(kernels, key=lambda kernel: kernel.at):
            run_id, label = provider_id(f"requested {kernel.name}"), f"p-{kernel.name}"
            machines.setdefault(kernel.host, kernel.at - 120)
            rows = [
                machine_item(
                    host, "busy" if host == kernel.host else "idle", label=host, hostname=host, created=created
                )
                for host, created in machines.items()
            ]
            clock.moment = START + round(kernel.at * SECOND)
            request = types.RunRequested(
                run_id=run_id, provider="dstack", project="main", name=kernel.name, configuration=b'{"type":"task"}',
                submitter=kernel.submitter, kernel=msgspec.json.encode(kernel.mark),
            )  # fmt: skip
            taken = types.SubmitSucceeded(
                run_id=run_id, provider="dstack", provider_id=provider_id(label), name=kernel.name
            )
            record.append_many([Batch(f"run/{run_id}", [request, taken])])
            polled("instances/list", rows, kernel.at + 5, project_names=["main"], limit=100)
            seen = {"submitted": kernel.at, "hostname": kernel.host, "price": 1.99}
            running = run_item(
                kernel.name, "running", job(submission("running", **seen)), label=label, submitted=kernel.at
            )
            polled("runs/list", [running], kernel.at + 10, project_name="main", limit=100)
            lines = [
                types.TaskReported(
                    run_id=run_id, provider="dstack", provider_id=provider_id(label), seq=number,
                    frame=msgspec.json.encode({"seq": number, **frame}),
                )
                for number, frame in enumerate(kernel.frames(), start=1)
            ]  # fmt: skip
            clock.moment = START + round((kernel.at + 50) * SECOND)
            record.append_many([Batch(f"run/{run_id}", lines)])
            good = kernel.end == "BENCHMARKED"
            last = submission(
                "done" if good else "failed", exit_status=0 if good else 1, finished=kernel.at + 55,
                reason="done_by_runner" if good else "container_exited_with_error", **seen,
            )  # fmt: skip
            why = "all_jobs_done" if good else "job_failed"
            done = run_item(
                kernel.name, "done" if good else "failed", job(last), label=label, submitted=kernel.at, reason=why
            )
            polled("runs/list", [done], kernel.at + 60, project_name="main", limit=100)
    return path
