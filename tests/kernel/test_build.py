"""The files that the compiler gets, and the object that is kept: the judge's own, never made beside a solution."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from stenotest.kernels import submission
from stenotest.waiting import LIMIT_S

from steno.engine.kernel.executor import job_of
from steno.engine.kernel.machine import build
from steno.engine.kernel.machine.cells import Cell, Cells, ProgramEnd


class Recorded(Cells):
    """Notes the files of each run; whatever it is asked for is there."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[tuple[str, set[str]]] = []

    def run(
        self, argv: Sequence[str], files: Mapping[str, bytes], *, limit: float, takes: str = "", cap: int = 0
    ) -> tuple[ProgramEnd, bytes | None]:
        if takes:
            self.runs.append((takes, set(files)))
        return ProgramEnd(0, f"{argv[0]} 1.0", 0.1), b"made of " + files.get("solution.hip", b"ours")

    def take(self) -> NoReturn:
        raise NotImplementedError

    def give_back(self, cell: Cell) -> None: ...


def compiled(cells: Cells, problem: str, language: str = "cpp", **changes: object) -> bytes | None:
    wanted = submission(problem, language=language, gpu_type="CPU" if language == "cpp" else "MI300X", **changes)
    job = job_of(wanted, compiler="auto" if language == "hip" else "g++")
    compiler = build.find_compiler(cells, job)
    assert compiler is not None
    return build.compiled(cells, compiler, job)[1]


def test_the_main_program_is_compiled_once_for_a_signature_and_a_dtype() -> None:
    """In a cell without the solution; and again only for another main program."""
    cells = Recorded()
    assert compiled(cells, "vector-add", solution_code="a") == b"made of a"
    assert compiled(cells, "vector-add", solution_code="b") == b"made of b"
    assert [name for name, _ in cells.runs] == ["program.o", "program", "program"]
    assert "solution.hip" not in cells.runs[0][1]
    assert "program.o" in cells.runs[2][1]
    compiled(cells, "vector-add", dtype="float64")
    compiled(cells, "matmul")
    assert [name for name, _ in cells.runs].count("program.o") == 3
    assert set(cells.objects.values()) == {b"made of ours"}


def test_a_gpus_compiler_gets_everything_at_once() -> None:
    """The main program and the solution may be code of the device."""
    cells = Recorded()
    compiled(cells, "vector-add", "hip")
    assert [name for name, _ in cells.runs] == ["program"]
    assert {"solution.hip", "program.hip", "harness.hpp"} <= cells.runs[0][1]
    assert cells.objects == {}


def test_few_objects_are_kept() -> None:
    """A listener lives long, and each signature makes another object."""
    cells = Recorded()
    cells.objects = {(str(number),): b"" for number in range(64)}
    compiled(cells, "matmul")
    assert list(cells.objects.values()) == [b"made of ours"]


BOMBS = {
    "word": ("", "x" * 8),
    "spaces": ("a", " " * 8),
    "colons": ("", "a:" * 4),
    "shared memory": ("", "extern __shared__ a "),
    "shared memory, spaces": ("", "extern __shared__ a" + " " * 200),
    "launches": ("", "f<<<1,2>>>(a);\n"),
    "launches left open": ("", "f<<<("),
    "templates": ("", "f<a,"),
}
"""The beginning of a source, and the part that it repeats."""


@pytest.mark.ci
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_large_source_does_not_keep_the_judge_busy(bomb: str) -> None:
    """Two megabytes, in a process that can be ended: without bounds of what repeats it takes hours, with them 2 s."""
    first, repeated = BOMBS[bomb]
    program = (
        "import sys; from steno.engine.kernel.machine.build import rewritten\n"
        "first, repeated = sys.argv[1:]; rewritten(first + repeated * ((2 << 20) // len(repeated)))"
    )
    argv = [sys.executable, "-c", program, first, repeated]
    subprocess.run(argv, cwd=Path(build.__file__).parents[4], timeout=LIMIT_S, check=True)
