"""Kernels: problems, the story of one with its evidence, verdicts that change, and leaderboards."""

import shlex
import statistics
from collections.abc import Sequence

from cli.render import paint, words
from engine.kernel.definition import Definition, KernelProblem
from engine.kernel.executor import prototype_of
from engine.kernel.rejudge import Measured
from events.clock import SECOND
from projections.models.judged_kernel import JudgedKernel, ToldKernel
from projections.models.kernel import Status
from projections.models.leaderboard import Board, Leaderboard

_COLOURS = {"BENCHMARKED": "succeeded", "CHECKED": "succeeded", "UNPROVEN": "stopped", "CHEATING_SUSPECTED": "failed"}
_SEED = {
    True: "has the hash recorded before the run",
    False: "does not have the hash recorded before the run",
    None: "not recorded",
}


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
    return f"{'+' + words.duration(max(0, step.at - began)):>9}  {paint.pad(name, 18)}  {_said(step)}".rstrip()


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
            return f"median {', '.join(ms(one) for one in facts['median_ms'] if isinstance(one, int | float))}"
        case _:
            return step.message


def _sizes(sizes: object) -> str:
    return ", ".join(f"{name} {value}" for name, value in sizes.items()) if isinstance(sizes, dict) else "–"


# -- problems


def problem_table(problems: Sequence[KernelProblem]) -> str:
    rows = [(one.problem, one.title, *_cases(one.problem_def), _prototype(one.problem_def)) for one in problems]
    drawn = paint.table(("PROBLEM", "TITLE", "TESTS", "BENCHMARKS"), [row[:4] for row in rows], right=(2, 3))
    return "\n".join([drawn, "", *(f"{paint.bold(row[0])}\n  {row[4]}" for row in rows)])


def problem_page(one: KernelProblem, path: str) -> str:
    """`path`: of a problem that is not shipped, which has no example."""
    problem = one.problem_def
    lines = [
        f"{paint.bold(one.problem)}  {one.title}",
        *filter(None, [problem.description.strip()]),
        "",
        _prototype(problem),
    ]
    for kind, cases in (("tests", problem.tests), ("benchmarks", problem.benchmarks)):
        lines += ["", paint.dim(kind), *(f"  {_sizes(case.sizes)}" for case in cases)]
    reference = (problem.reference.python or "").strip().splitlines()
    lines += ["", paint.dim("reference"), *(f"  {line}".rstrip() for line in reference), ""]
    if not one.example:
        submit = f"  steno kernel submit FILE --problem {one.problem} --problem-def {shlex.quote(path)} --wait"
        return "\n".join([*lines, paint.dim("a solution of it"), submit])
    file = f"{one.problem}.hip"
    lines += [
        paint.dim("its example"),
        f"  steno kernel problems {one.problem} --example > {file}",
        f"  steno kernel submit {file} --problem {one.problem} --wait",
    ]
    return "\n".join(lines)


def _prototype(problem: Definition) -> str:
    return prototype_of(problem, "float32")


def _cases(problem: Definition) -> tuple[str, str]:
    return str(len(problem.tests)), str(len(problem.benchmarks))


# -- one kernel


def kernel_page(called: str, told: ToldKernel) -> str:
    mark, began = told.mark, told.story[0].at if told.story else 0
    head = f"{paint.bold(called)}  {mark.problem}, {mark.dtype}, {mark.language} for {mark.gpu_type}"
    lines = [head, "", *(status_line(step, began) for step in told.story)]
    one = told.judged
    if one is None:
        return "\n".join(lines)
    for result in one.measured:
        lines += ["", paint.dim(f"benchmark {result.benchmark} ({_sizes(result.sizes)})"), *_evidence(result)]
    verdict = painted(one.said) + (f" · by today's rules {painted(one.now)}" if one.changes else "")
    facts = [
        ("seed", _SEED[one.seed_proven]),
        ("timed on", f"{one.gpu}, {one.machine or 'unknown machine'}, {one.start or 'unknown'} start"),
        ("verdict", verdict),
        *(("why", why) for why in one.why),
    ]
    return "\n".join([*lines, "", *paint.facts(facts)])


def _evidence(found: Measured) -> list[str]:
    rows = [
        ("its clock", f"median {ms(found.median_ms)}, {ms(found.min_ms)} to {ms(found.max_ms)}"),
        ("judge's clock", f"median {ms(found.wall_ms)}, of which {ms(found.overhead_ms)} are the way there and back"),
        *([("processors", f"median {ms(statistics.median(found.works_ms))} of work")] if found.works_ms else []),
        ("around a call", f"{ms(min(found.around_ms))} at least, {ms(found.idle_ms)} of an empty one")
        if found.around_ms and found.idle_ms
        else ("around a call", "not timed"),
        ("spread", f"{percent(found.spread)} over {words.count(len(found.times_ms), 'timed call')}"),
        ("floor", f"{ms(found.floor_ms)} at least on this GPU"),
        ("results", f"{words.count(len(found.digests), 'call')} compared, {len(set(found.digests))} different results"),
    ]
    return [f"  {line}" for line in paint.facts(rows)]


# -- all of them


def changed_list(changed: Sequence[JudgedKernel]) -> str:
    return "\n".join(
        f"{paint.bold(called(one))}  {painted(one.said)} → {painted(one.now)}{_why(one)}" for one in changed
    )


def leaderboard_page(found: Leaderboard, now: int, columns: int) -> str:
    parts = [_board(board, now, columns) for board in found.boards]
    suspected = ("Suspected of cheating", found.suspected, found.more_suspected)
    for title, kernels, more in (suspected, ("Not proven", found.unproven, found.more_unproven)):
        rows = [f"{called(one)}  {one.problem} · {one.gpu} · {one.dtype}, {_from(one)}{_why(one)}" for one in kernels]
        parts += ["\n".join([paint.bold(title), *rows, *_more(more)])] if rows else []
    return "\n\n".join(parts)


def called(one: JudgedKernel) -> str:
    return one.name or one.run_id


def _from(one: JudgedKernel) -> str:
    return f"by {one.submitter or 'nobody known'}, {words.moment(one.submitted_at)}"


def _why(one: JudgedKernel) -> str:
    """The reasons of today's rules, or what was said, each on a line of its own."""
    return "".join(f"\n  {why}" for why in one.why or (one.message,))


def _board(board: Board, now: int, columns: int) -> str:
    own = "" if board.definition == "shipped" else f" (definition {board.definition})"
    rows = [
        (
            str(place.rank),
            ms(place.time.median_ms),
            percent(place.time.spread),
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
    head = ("#", "MEDIAN", "SPREAD", "KERNEL", "SUBMITTER", "MACHINE", "START", "LANGUAGE", "SUBMITTED", "ID")
    drawn = paint.fitted(head, rows, columns, right=(0, 1, 2), spare=(9, 7, 8, 5, 4))
    title = paint.bold(f"{board.problem}{own} · {board.gpu} · {board.dtype}")
    return "\n".join([title, drawn, *_more(board.more)])


def _more(count: int) -> list[str]:
    return [paint.dim(f"{count} more; --limit shows them")] if count else []
