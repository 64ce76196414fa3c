"""Bad programs in containers: each ends with a reason of its own, in time, and leaves nothing."""

from typing import Any

import pytest
from stenotest.kernels import ADDITION, submission
from stenotest.listeners import judged

from steno.engine.kernel.executor import job_of
from steno.engine.listener.sandbox import Containers

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("docker")]

CI = pytest.mark.ci  # in containers what other tests hold without
LIMITS = {"compile": 120, "case": 60, "reference": 120, "measure": 0}
SHORT = LIMITS | {"case": 3}
HEAD = """
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
static void add(const float* A, const float* B, float* C, size_t N) {
  for (size_t i = 0; i < N; ++i) C[i] = A[i] + B[i];
}
"""
FILLS = """
static char text[1 << 20];
const int file = open("/tmp/full", O_CREAT | O_WRONLY, 0600);
while (write(file, text, sizeof text) > 0) {}
"""


def does(body: str) -> str:
    return HEAD + 'extern "C" void solution(const float* A, const float* B, float* C, size_t N) {' + body + "}"


def ends(cells: Containers, source: str, **changes: Any) -> dict[str, Any]:
    """The last frame of its judgement."""
    wanted = submission("vector-add", solution_code=ADDITION, language="cpp", gpu_type="CPU", endpoint="checker")
    return judged(cells, job_of(wanted, compiler="auto") | {"limits": LIMITS, "solution": source} | changes)[1][-1]


BOMB = """
template <unsigned N, unsigned M> struct Grows { using A = Grows<N - 1, 2 * M>; using B = Grows<N - 1, 2 * M + 1>;
  enum { value = A::value + B::value }; };
template <unsigned M> struct Grows<0, M> { enum { value = M }; };
static const int boom = Grows<28, 1>::value;
"""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param("", "undefined reference to `solution'", marks=CI),
        ('#include "/dev/zero"\n' + ADDITION, "the compiler was ended: it needed more memory than it may have"),
        pytest.param(
            'asm(".globl main\\nmain: ret");\n' + ADDITION, "multiple definition of `main'", marks=pytest.mark.ci
        ),
        ("static volatile char huge[3UL << 30] = {1};\n" + ADDITION, "File size limit exceeded"),
        (BOMB + ADDITION, "the compiler was ended: it "),
        ('asm(".incbin \\"/etc/shadow\\"");\n' + ADDITION, "file not found: /etc/shadow"),
        ('#include "../../../etc/shadow"\n' + ADDITION, "Permission denied"),
    ],
    ids=["empty", "endless-file", "main", "3-GB", "template-bomb", "incbin", "include"],
)
def test_source_that_harms_the_compiler_is_a_compile_error(cells: Containers, source: str, message: str) -> None:
    last = ends(cells, source, limits=LIMITS | {"compile": 30})
    assert last["status"] == "COMPILE_ERROR", last
    assert message in last["message"]


def test_ten_megabytes_of_source_are_compiled(cells: Containers) -> None:
    assert ends(cells, "// " + "x" * (10 << 20) + "\n" + ADDITION)["status"] == "CHECKED"


@pytest.mark.parametrize(
    ("body", "limits", "message"),
    [
        ("for (;;) {}", SHORT, "it did not end within 3 s"),
        pytest.param(
            "signal(SIGTERM, SIG_IGN); for (;;) pause();", SHORT, "it did not end within 3 s", marks=pytest.mark.ci
        ),
        ('execl("/bin/sh", "sh", "-c", "cat <&3 >&4", nullptr);', SHORT, "it did not end within 3 s"),
        ("for (;;) memset(malloc(1 << 20), 1, 1 << 20);", LIMITS, "it needed more memory than it may have"),
        ("for (;;) if (fork() < 0) abort();", LIMITS, "SIGABRT"),
        ("static char text[1 << 20]; for (;;) fwrite(text, 1, sizeof text, stderr);", LIMITS, "it printed more than"),
        pytest.param("exit(137);", LIMITS, "it exited with status 137, as after SIGKILL", marks=CI),
        ("signal(SIGSEGV, [](int) { _exit(0); }); raise(SIGSEGV);", LIMITS, "it ended before its work was done"),
        pytest.param(
            "for (int one = 0; one < 64; ++one) close(one);", LIMITS, "it exited with status 4", marks=pytest.mark.ci
        ),
    ],
    ids=["loops", "ignores-sigterm", "another-program", "memory", "forks", "floods", "137", "handler", "closes"],
)
def test_a_program_that_goes_wrong_is_a_runtime_error(
    cells: Containers, body: str, limits: dict[str, int], message: str
) -> None:
    last = ends(cells, does(body), limits=limits)
    assert last["status"] == "RUNTIME_ERROR", last
    assert message in last["message"]


@pytest.mark.ci
@pytest.mark.parametrize(
    "body",
    [
        FILLS,
        "if (fork() == 0) { setsid(); for (;;) pause(); }",
        'for (int one = 0; one < 256; ++one) putchar(one); puts("::steno:: {\\"status\\": \\"BENCHMARKED\\"}");',
    ],
    ids=["full-tmp", "daemon", "binary-and-forged-lines"],
)
def test_what_is_no_harm_is_no_failure(cells: Containers, body: str) -> None:
    """Its /tmp and its output are its own; two calls in a row find what the first left, no more."""
    last = ends(cells, does(body + " add(A, B, C, N);"))
    assert last["status"] == "CHECKED", last
    looks = 'if (access("/tmp/full", F_OK) == 0) abort(); add(A, B, C, N);'
    assert ends(cells, does(looks))["status"] == "CHECKED"
