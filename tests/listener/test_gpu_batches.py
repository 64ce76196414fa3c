"""Batches on a GPU in real containers: the judge's process on the device is in one, the solution in another, and
descriptors pass over a socket in a folder that is mounted. The device is memory of this machine (`stenotest/fake_gpu`).
"""

from collections.abc import Mapping, Sequence

import pytest
from stenolab.docker import IMAGE
from stenotest.kernels import FAKE_GPU, PATIENT, briefly, submission
from stenotest.listeners import judged

from steno.engine.kernel.executor import job_of
from steno.engine.kernel.machine.cells import ProgramEnd
from steno.engine.listener.sandbox import ContainerLimits, Containers

pytestmark = [pytest.mark.ci, pytest.mark.slow, pytest.mark.xdist_group("docker")]

PRINTS = """
#include <unistd.h>
extern "C" void solution(const float* A, const float* B, float* C, size_t N) {
  for (int line = 0; line < 20000; ++line) puts("a line of forty characters, and a newline");
  fflush(stdout);
  usleep(20000);
  for (size_t i = 0; i < N; ++i) C[i] = A[i] + B[i];
}
"""


class WithCompiler(Containers):
    """Containers whose image has the compiler of the fake GPU."""

    def run(
        self, argv: Sequence[str], files: Mapping[str, bytes], *, limit: float, takes: str = "", cap: int = 0
    ) -> tuple[ProgramEnd, bytes | None]:
        added = {
            f"fake/{path.relative_to(FAKE_GPU)}": path.read_bytes() for path in FAKE_GPU.rglob("*") if path.is_file()
        }
        command = ["sh", "-c", 'PATH="$PWD/fake:$PATH" && exec "$0" "$@"', *argv]
        return super().run(command, {**files, **added}, limit=limit, takes=takes, cap=cap)


def test_a_batch_passes_from_container_to_container(engine: str) -> None:
    """Its output meanwhile does not stop it; its time is at least what its calls sleep."""
    cells = WithCompiler(ContainerLimits(image=IMAGE, memory=1 << 30, tmp=256 << 20), url=engine, size=1, name="gpu")
    try:
        wanted = submission(solution_code=PRINTS, problem_def=briefly("vector-add", N=5000))
        code, frames = judged(cells, job_of(wanted, compiler="hipcc") | {"limits": PATIENT})
    finally:
        cells.close()
    assert code == 0, frames
    (benchmark,) = [frame for frame in frames if frame["status"] == "BENCHMARK_RESULT"]
    assert (frames[-1]["status"], benchmark["ranks"]) == ("BENCHMARKED", True)
    assert benchmark["min_ms"] >= 20
    assert all(
        batch["ms"] >= 20 * batch["calls"] and batch["ms"] > batch["late_ms"] > 0 for batch in benchmark["batches"]
    )
    assert all(batch["cpu_ms"] is not None for batch in benchmark["batches"])
