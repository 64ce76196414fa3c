"""Solutions that cheat, in real containers: each ends wrong, or with a time that is not below its true work. And each
defence is needed: without it a cheat gets through.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stenotest import listeners
from stenotest.kernels import PATIENT, briefly, submission

from steno.engine.kernel.executor import job_of
from steno.engine.kernel.machine import batches, clock
from steno.engine.listener.sandbox import Containers

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("docker")]

HERE = Path(__file__).parent
TAKEOVER = (HERE.parent / "support/stenotest/takeover.hpp").read_text("utf-8")
TIMED = briefly("matmul", M=96, N=96, K=96)
LIMITS = PATIENT | {"batch": 4 << 20}


def judged(
    cells: Containers, source: str, problem: str = "matmul", limits: dict[str, int] = LIMITS, **changes: Any
) -> list[dict[str, Any]]:
    """The frames of its judgement."""
    wanted = {"language": "cpp", "gpu_type": "CPU", "solution_code": source, "problem_def": TIMED} | changes
    return listeners.judged(cells, job_of(submission(problem, **wanted), compiler="auto") | {"limits": limits})[1]


def took_over(batch: str, again: int = 10, more: str = "") -> str:
    """A solution that does this in place of a batch of `n` calls."""
    honest = "if (N != 96) { all(n); say_done(); return; }"  # in the tests
    return f"#define AGAIN {again}\n{TAKEOVER}\n{more}\nstatic void batch(size_t n) {{ {honest} {batch} }}\n"


def result(frames: list[dict[str, Any]]) -> dict[str, Any]:
    """The result of its only benchmark."""
    (benchmark,) = [frame for frame in frames if frame["status"] == "BENCHMARK_RESULT"]
    return benchmark


CHEATS = {
    "says-done-first": took_over("say_done(); all(n);"),
    "works-on-the-side": took_over("std::thread([n] { all(n); }).detach(); say_done();"),
    "works-in-a-daemon": took_over(
        "say_done(); if (fork() == 0) { setsid(); if (fork() != 0) _exit(0); all(n); for (;;) pause(); }"
    ),
    "works-when-a-timer-continues-it": took_over(
        "say_done(); if (fork() == 0) { timer_t timer; sigevent event{}; event.sigev_notify = SIGEV_SIGNAL; "
        "event.sigev_signo = SIGCONT; timer_create(CLOCK_MONOTONIC, &event, &timer); itimerspec at{{}, {0, 2000000}}; "
        "timer_settime(timer, 0, &at, nullptr); raise(SIGSTOP); all(n); _exit(0); }"
    ),
    "works-behind-a-vfork": took_over("say_done(); if (vfork() == 0) { all(n); _exit(0); }"),
    "storms": took_over("say_done(); for (size_t c = 0; c < 64 && fork() == 0; ++c) if (c % 8 == 7) all(n);"),
    "says-done-before-it-is-asked": took_over(
        "static int turn; if (turn++ > 0) { say_done(); usleep(100); } all(n); say_done(); say_done(); say_done();"
    ),
    "says-done-all-the-time": took_over(
        "all(n); say_done();",
        more="static char much[1 << 16];\n"
        "static void flood() { fcntl(done, F_SETPIPE_SZ, 1 << 20); while (write(done, much, sizeof much) > 0) {} }",
    ).replace(
        "static void before() {}",
        "static void flood();\nstatic void before() { if (N == 96) std::thread(flood).detach(); }",
    ),
    "computes-when-it-is-read": took_over(
        "now = n; mprotect(out, out_each * calls, PROT_NONE); signal(SIGSEGV, fault); say_done();",
        more="static size_t now;\n"
        "static void fault(int) { mprotect(out, out_each * calls, PROT_READ | PROT_WRITE); all(now); }",
    ),
    "remembers": took_over(
        "static std::vector<float> kept; if (kept.size() == M * N) { for (size_t c = 0; c < n; ++c) "
        "memcpy(C(c), kept.data(), M * N * 4); } else { all(n); kept.assign(C(0), C(0) + M * N); } say_done();"
    ),
    "one-call-of-each-batch": took_over("all(1); say_done();"),
    "takes-its-outputs-away": took_over("all(n); if (ftruncate(out_file, 64)) {} say_done();"),
    "makes-its-outputs-grow": took_over("all(n); if (ftruncate(out_file, 1 << 20)) {} say_done();"),
    "stops-as-it-is-stopped": took_over("all(n); say_done(); _exit(0);"),
}
RACES = {
    "says-done-first",
    "works-on-the-side",
    "works-in-a-daemon",
    "works-when-a-timer-continues-it",
    "works-behind-a-vfork",
    "storms",
    "says-done-before-it-is-asked",
    "says-done-all-the-time",
    "computes-when-it-is-read",
}
"""The cheats that the freeze cuts off."""
EACH_CHANGE = {"works-in-a-daemon", "computes-when-it-is-read", "remembers", "takes-its-outputs-away"}
_AS_LONG = (
    0.5  # of the least work that was seen: beside others a processor is half as fast; a cheat does all or nothing
)


WORK = "all(n); say_done();"


@pytest.fixture(scope="module")
def work(cells: Containers) -> float:
    """Milliseconds of processor that a right answer takes in `slow`, once: the least of an honest solution."""
    return min(batch["cpu_ms"] / batch["calls"] for batch in result(judged(cells, took_over(WORK)))["batches"]) / 10


def gains_nothing(frames: list[dict[str, Any]], true_ms: float) -> bool:
    """True if a judgement ended wrong, or with batches none of which is shorter than the work of its calls."""
    if frames[-1]["status"] in {"WRONG_ANSWER", "RUNTIME_ERROR", "CHEATING_SUSPECTED"}:
        return True
    return all(batch["ms"] >= _AS_LONG * batch["calls"] * true_ms for batch in result(frames)["batches"])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in EACH_CHANGE else pytest.mark.ci) for name in CHEATS]
)
def test_who_takes_the_harness_over_gains_nothing(cells: Containers, work: float, name: str) -> None:
    """Nothing can be done before the inputs are there, nor once the outputs are compared. On a busy machine the freeze
    may come so late that the work is done until then; so long is the time.
    """
    frames = judged(cells, CHEATS[name])
    assert "BENCHMARKING" in [frame["status"] for frame in frames]
    assert gains_nothing(frames, 10 * work), frames[-1]
    assert name in RACES or frames[-1]["status"] != "BENCHMARKED"


LIES = """
extern "C" int clock_gettime(clockid_t, struct timespec* now) noexcept {
  static long ticks;
  *now = {1000, ++ticks * 20000};
  return 0;
}
"""
GAINS_NOTHING = {
    "honest": took_over(WORK),
    "lies-about-the-time": took_over(WORK, more=LIES),
    "works-while-it-waits": took_over(
        WORK
        + "std::thread([] { static std::vector<float> c(M * N); for (;;) slow(A(0), B(0), c.data()); }).detach();"
    ),
    "spins": took_over(WORK).replace("static bool rd(int from", "static bool rd_(int from").replace(
        "static size_t M,", "static bool rd(int from, void* to, size_t n) { fcntl(from, F_SETFL, O_NONBLOCK); "
        "for (;;) { ssize_t got = read(from, to, n); if (got == (ssize_t)n) return true; "
        "if (got == 0) return false; if (got > 0) "
        "return rd_(from, (char*)to + got, n - got); } }\nstatic size_t M,"
    ),
}  # fmt: skip
OF_THE_SAME_KIND = {"lies-about-the-time", "spins"}
"""Held by `works-while-it-waits`: the judge reads its own clock, and the program is frozen meanwhile."""


@pytest.mark.ci
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] if name in OF_THE_SAME_KIND else []) for name in GAINS_NOTHING],
)
def test_what_else_a_takeover_does_gains_no_time(cells: Containers, work: float, name: str) -> None:
    """Its time is not below the work of its one thread, as the kernel counts it."""
    frames = judged(cells, GAINS_NOTHING[name])
    benchmark = result(frames)
    for batch in benchmark["batches"]:
        assert batch["ms"] >= 0.95 * batch["cpu_ms"] / (2 if name == "works-while-it-waits" else 1), benchmark
    assert benchmark["low_ms"] <= benchmark["median_ms"] <= benchmark["high_ms"]
    assert gains_nothing(frames, 10 * work)


FEW = LIMITS | {"batch": 120_000}
"""Room for one call."""
FREEZES = "            frozen = self.freeze()\n            return {"
LATE = took_over("say_done(); all(n);", again=4)
READ = '"frozen": time.monotonic_ns() if frozen else None}'


@pytest.fixture
def with_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """`with_clock((text, other), …)`: these parts of the judge's clock are others."""

    def changed(*parts: tuple[str, str]) -> None:
        source = Path(clock.__file__).read_text("utf-8")
        for text, other in parts:
            assert text in source
            source = source.replace(text, other)
        path = tmp_path / f"clock{len(list(tmp_path.iterdir()))}.py"
        path.write_text(source, "utf-8")
        monkeypatch.setattr(clock, "__file__", str(path))

    return changed


@pytest.mark.long
def test_without_a_freeze_work_after_the_clock_is_free(
    cells: Containers, with_clock: Callable[..., None], work: float
) -> None:
    """By a judge that takes a while to look at the outputs."""
    looks_later = (
        FREEZES,
        FREEZES.replace("return {", "ended = time.monotonic_ns()\n            time.sleep(0.3)\n            return {"),
    )
    with_clock(looks_later, (READ, '"frozen": ended}'))
    assert gains_nothing(judged(cells, LATE, limits=FEW), 4 * work)
    with_clock(("            frozen = self.freeze()", "            frozen = True"))
    assert not gains_nothing(judged(cells, LATE, limits=FEW), 4 * work)


@pytest.mark.long
def test_without_a_freeze_before_the_clock_is_read_work_meanwhile_is_free(
    cells: Containers, with_clock: Callable[..., None], work: float
) -> None:
    """By a machine that takes 100 ms to freeze; so long is the time of all that was done until then."""
    with_clock((FREEZES, "            time.sleep(0.1)\n" + FREEZES))
    frames = judged(cells, LATE, limits=FEW)
    assert gains_nothing(frames, 4 * work)
    assert result(frames)["coarse"]
    with_clock((READ, '"frozen": at if frozen else None}'))
    assert not gains_nothing(judged(cells, LATE, limits=FEW), 4 * work)


@pytest.mark.long
def test_with_a_seed_that_follows_results_can_be_kept(cells: Containers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it follows from nothing: every batch has the same inputs."""
    assert judged(cells, CHEATS["remembers"], limits=FEW)[-1]["status"] == "WRONG_ANSWER"
    monkeypatch.setattr(batches.os, "urandom", bytes)
    frames = judged(cells, CHEATS["remembers"], limits=FEW)
    assert frames[-1]["status"] == "BENCHMARKED", frames[-1]
    assert len({batch["seed"] for batch in result(frames)["batches"]}) == 1


HONEST = (HERE.parent / "support/stenotest/honest.cpp").read_text("utf-8").split("// === ")
STYLES = {name: body for name, _, body in (part.partition("\n") for part in HONEST[1:])}
"""The bodies of solutions, by name."""


@pytest.mark.ci
@pytest.mark.parametrize(
    ("names", "loops"),
    [
        (["threads"], 0),
        pytest.param(list(STYLES), 0, marks=pytest.mark.long),
        pytest.param(list(STYLES), 2, marks=pytest.mark.long),
    ],
    ids=["threads", "all", "all-beside-busy-loops"],
)
def test_honest_styles_are_never_suspected(cells: Containers, names: list[str], loops: int) -> None:
    """Each is right, timed, and may be ranked."""
    beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        for name in names:
            frames = judged(cells, HONEST[0] + STYLES[name] + "}\n", limits=LIMITS | {"batch": 1 << 20})
            assert frames[-1]["status"] == "BENCHMARKED", (name, frames[-1])
            assert result(frames)["ranks"], name
    finally:
        for loop in beside:
            loop.kill()
            loop.wait()
