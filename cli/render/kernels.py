"""Kernels: problems, the story of one with its evidence, verdicts that change, and leaderboards."""

import shlex
from collections.abc import Sequence

from steno.cli.render import paint, words
from steno.engine.kernel.definition import KernelProblem
from steno.engine.kernel.executor import prototype_of, work_of
from steno.engine.kernel.rejudge import Measured
from steno.events.clock import SECOND, duration
from steno.projections.answers.judged_kernel import JudgedKernel, ToldKernel
from steno.projections.answers.kernel import Status
from steno.projections.answers.leaderboard import Board, Leaderboard

_COLOURS = {"BENCHMARKED": "succeeded", "CHECKED": "succeeded", "UNPROVEN": "stopped", "CHEATING_SUSPECTED": "failed"}


def painted(status: str) -> str:
    return paint.state(_COLOURS.get(status, "failed"), status)


def ms(value: float) -> str:
    """Milliseconds to four significant places: `0.5217 ms`."""
    return f"{value:.4g} ms"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def status_line(step: Status, began: int) -> str:
    """`+2.4 s  BENCHMARK_RESULT  benchmark 1 of 1: median 0.52 ms, spread 1.1 %`."""
    name = painted(step.status) if step.final else step.status
    return f"{'+' + duration(max(0, step.at - began)):>9}  {paint.pad(name, 18)}  {_said(step)}".rstrip()


def _said(step: Status) -> str:
    facts = step.facts
    match step.status:
        case "BENCHMARK_RESULT" if isinstance(facts.get("median_ms"), int | float):
            where = f"benchmark {facts.get('benchmark')} of {facts.get('benchmarks')}"
            spread = facts.get("spread")
            more = f", spread {percent(spread)}" if isinstance(spread, int | float) else ""
            return f"{where} ({_sizes(facts.get('sizes'))}): median {ms(facts['median_ms'])}{more}"
        case "TEST_RESULT":
            return f"{step.message} ({_sizes(facts.get('sizes'))})"
        case "BENCHMARKED" if isinstance(facts.get("median_ms"), list):
            return f"median {', '.join(ms(time) for time in facts['median_ms'] if isinstance(time, int | float))}"
        case _:
            return step.message


def _sizes(sizes: object) -> str:
    return ", ".join(f"{name} {value}" for name, value in sizes.items()) if isinstance(sizes, dict) else "–"


# -- problems


def problem_table(problems: Sequence[KernelProblem]) -> str:
    rows = [
        (shipped.problem, shipped.title, str(len(shipped.problem_def.tests)), str(len(shipped.problem_def.benchmarks)))
        for shipped in problems
    ]
    drawn = paint.table(("PROBLEM", "TITLE", "TESTS", "BENCHMARKS"), rows, right=(2, 3))
    named = (f"{paint.bold(shipped.problem)}\n  {prototype_of(shipped.problem_def, 'float32')}" for shipped in problems)
    return "\n".join([drawn, "", *named])


def problem_page(shipped: KernelProblem, path: str, best: Sequence[Board] = ()) -> str:
    """`path`: of a problem that is not shipped, which has no example. `best`: boards with the best time of each."""
    problem = shipped.problem_def
    lines = [
        f"{paint.bold(shipped.problem)}  {shipped.title}",
        *filter(None, [problem.description.strip()]),
        "",
        prototype_of(problem, "float32"),
    ]
    for kind, cases in (("tests", problem.tests), ("benchmarks", problem.benchmarks)):
        lines += ["", paint.dim(kind), *(f"  {_sizes(case.sizes)}" for case in cases)]
    for work in work_of(problem):
        operations = f"{work.operations:,} operations" if work.operations else "operations not stated"
        lines += ["", paint.dim(f"a call of {_sizes(work.sizes)} in {work.dtype}")]
        lines += [f"  {work.bytes / 1e6:.1f} MB read and written, {operations}; at least, by GPU:"]
        lines += ["  " + ", ".join(f"{gpu} {ms(floor)}" for gpu, floor in work.floor_ms.items() if gpu != "CPU")]
    for board in best:
        time, kernel = board.places[0].time, board.places[0].kernel
        where = f"{board.gpu}, {board.dtype}, {words.count(board.cpus, 'processor')}"
        lines += [
            "",
            paint.dim(f"the best time on {where}"),
            f"  {called(kernel)}: {ms(time.median_ms)}, {_share(time)}",
        ]
    reference = (problem.reference.python or "").strip().splitlines()
    lines += ["", paint.dim("reference"), *(f"  {line}".rstrip() for line in reference), ""]
    if not shipped.example:
        submit = f"  steno kernel submit FILE --problem {shipped.problem} --problem-def {shlex.quote(path)} --wait"
        return "\n".join([*lines, paint.dim("a solution of it"), submit])
    file = f"{shipped.problem}.hip"
    lines += [
        paint.dim("its example"),
        f"  steno kernel problems {shipped.problem} --example > {file}",
        f"  steno kernel submit {file} --problem {shipped.problem} --wait",
    ]
    return "\n".join(lines)


# -- one kernel


def kernel_page(called: str, kernel: ToldKernel) -> str:
    mark, began = kernel.mark, kernel.story[0].at if kernel.story else 0
    head = f"{paint.bold(called)}  {mark.problem}, {mark.dtype}, {mark.language} for {mark.gpu_type}"
    lines = [head, "", *(status_line(step, began) for step in kernel.story)]
    judged = kernel.judged
    if judged is None:
        return "\n".join(lines)
    for result in judged.measured:
        lines += ["", paint.dim(f"benchmark {result.benchmark} ({_sizes(result.sizes)})"), *_evidence(result)]
    verdict = painted(judged.status) + (f" · by today's rules {painted(judged.now)}" if judged.changes else "")
    facts = [
        ("timed on", f"{judged.gpu}, {judged.machine or 'unknown machine'}, {judged.start or 'unknown'} start"),
        ("verdict", verdict),
        *(("why", why) for why in judged.why),
    ]
    return "\n".join([*lines, "", *paint.facts(facts)])


def _evidence(result: Measured) -> list[str]:
    counted = sum(batch.counts for batch in result.batches)
    batches = (
        f"{counted} of {result.calls} calls by {result.called}; {len(result.batches)} in all, every output compared"
    )
    rows = [
        ("time of a call", f"median {ms(result.median_ms)}, {ms(result.low_ms)} to {ms(result.high_ms)}"),
        *([] if result.cpu_ms is None else [("processors", f"{ms(result.cpu_ms)} of work, {result.cpus} to use")]),
        ("batches", batches),
        ("empty solution", f"{ms(result.empty_ms)} a call"),
        ("floor", f"{ms(result.floor_ms)} at least on this GPU; the time is {_share(result)}"),
        *([("coarse", result.coarse)] if result.coarse else []),
    ]
    return [f"  {line}" for line in paint.facts(rows)]


def _share(result: Measured) -> str:
    return f"{percent(result.floor_ms / result.median_ms if result.median_ms else 0)} of the GPU's limit"


# -- all of them


def changed_list(changed: Sequence[JudgedKernel]) -> str:
    return "\n".join(
        f"{paint.bold(called(kernel))}  {painted(kernel.status)} → {painted(kernel.now)}{_why(kernel)}"
        for kernel in changed
    )


def leaderboard_page(result: Leaderboard, now: int, columns: int) -> str:
    parts = [_board(board, now, columns) for board in result.boards]
    suspected = ("Suspected of cheating", result.suspected, result.more_suspected)
    for title, kernels, more in (suspected, ("Not proven", result.unproven, result.more_unproven)):
        rows = [
            f"{called(kernel)}  {kernel.problem} · {kernel.gpu} · {kernel.dtype}, "
            f"by {kernel.submitter or 'nobody known'}, {words.moment(kernel.submitted_at)}{_why(kernel)}"
            for kernel in kernels
        ]
        parts += ["\n".join([paint.bold(title), *rows, *_more(more)])] if rows else []
    return "\n\n".join(parts)


def called(kernel: JudgedKernel) -> str:
    return kernel.name or kernel.run_id


def _why(kernel: JudgedKernel) -> str:
    """The reasons of today's rules, or what was said, each on a line of its own."""
    return "".join(f"\n  {why}" for why in kernel.why or (kernel.message,))


def _board(board: Board, now: int, columns: int) -> str:
    own = "" if board.definition == "shipped" else f" (definition {board.definition})"
    rows = [
        (
            str(place.rank),
            ms(place.time.median_ms),
            f"{place.time.low_ms:.4g}–{ms(place.time.high_ms)}",
            place.kernel.name or "–",
            place.kernel.submitter or "–",
            place.kernel.machine or "–",
            place.kernel.start or "–",
            place.kernel.language,
            words.ago(place.kernel.submitted_at, max(now, place.kernel.submitted_at + SECOND)),
            paint.dim(place.kernel.run_id[:8]),
        )
        for place in board.places
    ]
    head = ("#", "MEDIAN", "INTERVAL", "KERNEL", "SUBMITTER", "MACHINE", "START", "LANGUAGE", "SUBMITTED", "ID")
    drawn = paint.fitted(head, rows, columns, right=(0, 1, 2), spare=(9, 7, 8, 5, 4))
    title = paint.bold(f"{board.problem}{own} · {board.gpu} · {board.dtype} · {words.count(board.cpus, 'processor')}")
    return "\n".join([title, drawn, *_more(board.more)])


def _more(count: int) -> list[str]:
    return [paint.dim(f"{count} more; --limit shows them")] if count else []
