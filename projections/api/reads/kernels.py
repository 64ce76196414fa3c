"""Reads about kernels: their leaderboards, and one with its statuses and evidence."""

from typing import Any

import msgspec

from steno.engine.kernel.definition import DTYPES
from steno.engine.kernel.submission import GPUS
from steno.engine.state.kernel_mark import KernelMark
from steno.engine.wire import Position, Shape, wire
from steno.projections.answers.judged_kernel import JudgedKernel, kernel_object, told_kernel
from steno.projections.answers.leaderboard import Leaderboard, leaderboard
from steno.projections.api.parameters import MOST, Asked, choice, integer, text
from steno.projections.api.reads.read import Read, at_position
from steno.projections.api.service import Service
from steno.projections.read_models.reader_pool import Look


def _leaderboard(service: Service, look: Look, values: Asked) -> dict[str, Any]:
    kernels = service.judged_kernels.read(look.record, look.view, look.now)
    wanted = {name: values[name] for name in ("problem", "gpu", "dtype", "limit")}
    return wire(leaderboard(kernels, **wanted))


def _kernel(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    row = look.view.row(values["id"])
    return kernel_object(row, told_kernel(look.record, look.view, row, look.now))


class KernelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A status; what else its task said (`test`, `sizes`, `median_ms` …) are further keys of the same object."""

    position: int
    status: str
    message: str
    at: str
    elapsed_seconds: float  # since the submission
    final: bool


class KernelAnswer(Shape, frozen=True, kw_only=True):
    """A kernel: its request, its statuses, and what today's rules say of it."""

    run_id: str
    name: str | None
    mark: KernelMark
    statuses: tuple[KernelStatus, ...]
    judged: JudgedKernel | None
    """Null until the final status."""
    position: Position


READS = (
    Read(
        "/api/kernels/leaderboard",
        "The best times of kernels by problem, GPU and dtype; suspected cheats and unproven times apart",
        _leaderboard,
        at_position(Leaderboard),
        "kernels",
        (
            text("problem", "Only this problem."),
            choice("gpu", "Only times of this GPU.", GPUS),
            choice("dtype", "Only times with this dtype.", DTYPES),
            integer("limit", "Maximum number of places of a board.", low=1, high=MOST, default=10),
        ),
    ),
    Read(
        "/api/kernels/{id}",
        "One kernel: its statuses, its times and their evidence, judged by today's rules",
        _kernel,
        KernelAnswer,
        "kernels",
    ),
)
