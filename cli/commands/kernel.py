"""`steno kernel`: submit kernels, show them, judge them again, compare their times."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from steno.cli.render.words import count
from steno.cli.wiring.app import App, CommandGroup
from steno.cli.wiring.errors import NOT_SUCCEEDED, Detached
from steno.cli.wiring.options import provider_option, run_argument
from steno.cli.wiring.output import emit, emit_json, hint, show
from steno.cli.wiring.terminal import columns
from steno.cli.wiring.time_arguments import moment
from steno.cli.wiring.view import viewing
from steno.engine.errors import TaskInvalid
from steno.engine.kernel.definition import DTYPES, KernelProblem, Wrong
from steno.engine.kernel.definition import check as check_definition
from steno.engine.kernel.definition import problems as shipped
from steno.engine.wire import wire
from steno.events.errors import RecordNotFound, StenoError
from steno.events.installation import installing

if TYPE_CHECKING:
    from steno.cli.wiring.session import RunSession, SubmittedRun
    from steno.projections.answers.judged_kernel import ToldKernel
    from steno.projections.answers.kernel import Status
    from steno.projections.answers.leaderboard import Board, Leaderboard
    from steno.projections.read_models.schema import RunRow

_LANGUAGES = {".hip": "hip", ".cu": "cuda", ".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp"}
_GPUS = {"hip": "MI300X", "cuda": "H100", "cpp": "CPU"}
_GOOD = ("BENCHMARKED", "CHECKED")


@click.group("kernel", cls=CommandGroup)
def kernel_command() -> None:
    """A kernel is the source of one function. Steno compiles it on a machine with the GPU, compares its results with
    the reference of the problem, and times it. Every call has inputs of its own, and every time has its evidence in the
    record.

    \b
    Examples:
      steno kernel problems
      steno kernel submit add.hip --problem vector-add --gpu MI300X --wait
      steno kernel show vector-add-4f0c2a91b7de
      steno kernel leaderboard --problem matmul
      steno kernel rejudge --since 7d
    """


@kernel_command.command("submit", short_help="Submit a kernel; with --wait, follow it to its end.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--problem", metavar="NAME", required=True, help="A shipped problem, or a name for --problem-def.")
@click.option("--problem-def", metavar="PATH", type=click.Path(path_type=Path), help="A problem of your own.")
@click.option("--gpu", metavar="GPU", help="Default: MI300X for hip, H100 for cuda, else CPU.")
@click.option(
    "--dtype", metavar="DTYPE", default="float32", help="float32 (default), float64, float16, bfloat16, int32."
)
@click.option("--language", metavar="LANGUAGE", help="hip, cuda or cpp; default: by the suffix of FILE.")
@click.option("--checker", is_flag=True, help="Only compare with the reference; time nothing.")
@click.option("--wait", is_flag=True, help="Follow the kernel to its end; exit 1 if it is not CHECKED or BENCHMARKED.")
@click.option("--unsafe-here", is_flag=True, help="Run it on this host as you, in no container.")
@provider_option
def submit(
    app: App,
    file: Path,
    problem: str,
    problem_def: Path | None,
    gpu: str | None,
    dtype: str,
    language: str | None,
    checker: bool,
    wait: bool,
    unsafe_here: bool,
) -> None:
    """Submit the kernel in FILE.

    With --wait each status is printed when it arrives.

    Start `steno up` or `steno record` first: one of them keeps the warm machines (kernel.warm) and reads what the
    kernel reports. On local, kernels run in containers. Without a container engine they are refused (exit 6);
    --unsafe-here runs your own code as yourself. Both need numpy here (exit 6).

    PATH of --problem-def is a JSON file, or a folder with problem.json, reference.py and, if you like, description.md.

    With --json: {"run_id", "provider_id", "name", "provider", "project", "position", "state"}; with --wait the object
    of `steno kernel show`, and the statuses go to stderr.

    \b
    Examples:
      steno kernel submit add.hip --problem vector-add --gpu MI300X --wait
      steno kernel submit add.cpp --problem vector-add --wait --unsafe-here
      steno kernel submit mine.hip --problem mine --problem-def mine/
    """

    from steno.cli.wiring.files import existing, file_text, problem_text
    from steno.cli.wiring.session import code_of_failure, session
    from steno.engine.kernel.submission import LONGEST_SOURCE, read_submission
    from steno.engine.providers import registry
    from steno.engine.submit.completion import completed
    from steno.engine.submit.kernel_orders import expect_isolation, goes_to, kernel_draft

    language = language or _LANGUAGES.get(file.suffix.lower())
    if language is None:
        raise click.UsageError(f"the suffix {file.suffix!r} names no language: add --language hip, cuda or cpp")
    for path in filter(None, (file, problem_def)):
        existing(str(path))
    request = {
        "solution_code": file_text(file, LONGEST_SOURCE),
        "problem": problem,
        "problem_def": None if problem_def is None else problem_text(problem_def),
        "gpu_type": (gpu or _GPUS.get(language, "CPU")).upper(),
        "dtype": dtype,
        "language": language,
        "endpoint": "checker" if checker else "benchmark",
    }
    places = {"solution_code": str(file), "problem_def": str(problem_def or "problem_def"), "gpu_type": "--gpu"}
    run_id, settings = app.ids.new(), app.settings
    try:
        kernel = read_submission(msgspec.json.encode(request))
        provider = settings.provider if unsafe_here else goes_to(settings)
        expect_isolation(settings, provider, own=unsafe_here)
        with app.writing() as record:
            draft = kernel_draft(kernel, run_id, record.vault, settings, provider, "the kernel")
            task = completed(registry.kind(provider), draft, settings, run_id=run_id)
            with session(app, record, provider) as here:
                submitted = here.submit(task, run_id)
                end = _followed(app, here, submitted) if wait else None
                if end is None:
                    submitted = here.look(submitted)
                elif end.status not in _GOOD:
                    app.exit_code = code_of_failure(here.run(run_id), here.cause(run_id))
    except Wrong as wrong:
        first, dot, rest = wrong.field.partition(".")
        place = places.get(first, f"--{first.replace('_', '-')}" if first in request else first)
        raise TaskInvalid(f"{place}{dot}{rest}: {wrong.detail}" if place else wrong.detail) from None
    name = submitted.name
    if end is not None:
        if app.json:
            from steno.projections.answers.judged_kernel import kernel_object

            emit_json(kernel_object(*_told(app, run_id)))
        hint(f"`steno kernel show {name}`, `steno logs {name}`")
    elif app.json:
        emit_json({key: value for key, value in msgspec.structs.asdict(submitted).items() if key != "queued"})
    else:
        emit(name)
        queued = "" if submitted.queued is None else f"queued: {submitted.queued}; "
        hint(f"{queued}run {run_id}; `steno up` or `steno record` follows it, `steno kernel show {name}` shows it")


def _followed(app: App, here: "RunSession", submitted: "SubmittedRun") -> "Status":
    """The final status; prints each status when it arrives. Raises `Detached` on Ctrl-C; the kernel goes on."""
    from steno.cli.render.kernels import status_line
    from steno.engine.runtime.signals import stoppable

    position, name = 0, submitted.name
    try:
        with stoppable(signal.SIGINT, KeyboardInterrupt) as interrupted:
            while True:
                interrupted()
                pause = here.watch()
                story = here.kernel_story(submitted.run_id)
                for step in story:
                    if step.position > position:
                        position = step.position
                        (hint if app.json else emit)(status_line(step, story[0].at))
                if story and story[-1].final:
                    return story[-1]
                here.pause(pause)
    except KeyboardInterrupt:
        then = f"`steno kernel show {name}` shows it, `steno stop {name}` stops it"
        raise Detached(f"{name} still runs: {then}") from None


@kernel_command.command("problems", short_help="List the shipped problems, or show one.")
@click.argument("name", metavar="[NAME|PATH]", required=False)
@click.option("--example", is_flag=True, help="Print only the problem's example, a solution in HIP that works.")
@click.option("--check", is_flag=True, help="Refuse it if a null solution passes; its reference runs here, as you.")
@click.option("--dtype", metavar="DTYPE", default="float32", help="Of --check; default: float32.")
def problems(app: App, name: str | None, example: bool, check: bool, dtype: str) -> None:
    """List the shipped problems with the functions to define; with NAME, show one with its sizes and its reference.

    With PATH, check and show a problem of your own: what `submit --problem-def PATH` takes. With --check, also run
    null solutions (zeros, a constant, a copy of an input …): if one passes, the problem is refused (exit 2).

    Each has the bytes and operations of a call, the least time on each GPU, and the best times of the record, if there
    is one, with their share of the GPU's limit.

    With --json: {"problems": [{"problem", "title", "prototype", "problem_def", "example", "work"}]}; with NAME one of
    these, with "best", boards of `leaderboard`.

    \b
    Examples:
      steno kernel problems
      steno kernel problems matmul
      steno kernel problems matmul --example > matmul.hip
      steno kernel problems mine/ --check --dtype bfloat16
    """

    from steno.cli.render.kernels import problem_page, problem_table
    from steno.engine.kernel.executor import prototype_of, work_of

    if name is None and example:
        raise click.UsageError("--example needs the NAME of a problem")
    wanted = [each for each in shipped() if name in (None, each.problem)]
    if not wanted and name is not None and Path(name).exists():
        wanted = [_own_problem(Path(name))]
    if not wanted:
        raise click.UsageError(
            f"there is no problem {name!r}; there is {', '.join(each.problem for each in shipped())}"
        )
    for problem in wanted if check else []:
        _expect_no_null(problem, dtype)
    objects = [
        {
            **msgspec.to_builtins(problem),
            "prototype": prototype_of(problem.problem_def, "float32"),
            "work": msgspec.to_builtins(work_of(problem.problem_def)),
        }
        for problem in wanted
    ]
    if name is None:
        show(app, {"problems": objects}, lambda: problem_table(wanted))
    elif example and not app.json:
        emit(wanted[0].example.rstrip("\n"))
    else:
        best = _best(app, wanted[0]) if wanted[0].example else ()
        show(app, {**objects[0], "best": [wire(board) for board in best]}, lambda: problem_page(wanted[0], name, best))


def _best(app: App, problem: KernelProblem) -> "tuple[Board, ...]":
    """The boards of a shipped problem; none without a record."""
    try:
        boards, _ = _ranked(app, problem=problem.problem, limit=1)
    except RecordNotFound:
        return ()
    return tuple(board for board in boards.boards if board.definition == "shipped")


def _ranked(app: App, *, limit: int, **only: str | None) -> "tuple[Leaderboard, int]":
    """The leaderboard of the record, and now."""
    from steno.projections.answers.judged_kernel import JudgedKernels
    from steno.projections.answers.leaderboard import leaderboard

    with viewing(app) as (record, view, now):
        return leaderboard(JudgedKernels().read(record, view, now), limit=limit, **only), now


def _own_problem(path: Path) -> KernelProblem:
    from steno.cli.wiring.files import problem_text
    from steno.engine.kernel.submission import read_definition

    try:
        definition = read_definition(problem_text(path), str(path))
    except Wrong as wrong:
        raise TaskInvalid(f"{wrong.field}: {wrong.detail}") from None
    return KernelProblem(
        problem=path.name.partition(".")[0], title=definition.title, problem_def=definition, example=""
    )


def _expect_no_null(problem: KernelProblem, dtype: str) -> None:
    from steno.engine.kernel.executor import problem_job

    try:
        from steno.engine.kernel.machine.batches import Over
        from steno.engine.kernel.machine.problem_checks import check_here
    except ModuleNotFoundError as error:
        raise StenoError(f"{error.name} is not installed: `{installing('listener')}`.") from error
    if dtype not in DTYPES:
        raise click.UsageError(f"--dtype: {dtype!r} is not one of {', '.join(DTYPES)}")
    try:
        check_definition(problem.problem_def, dtype=dtype, benchmark=False, where=problem.problem)
        check_here(problem_job(problem.problem_def, dtype))
    except Wrong as wrong:
        raise TaskInvalid(f"{wrong.field}: {wrong.detail}") from None
    except Over as over:
        raise TaskInvalid(f"{problem.problem}: {over.facts['message']}") from None


@kernel_command.command("show", short_help="Show one kernel: its statuses, its times and their evidence.")
@run_argument
def show_one(app: App, run: str) -> None:
    """Show one kernel: its statuses with the time since its submission, and the evidence for each time.

    With --json: {"run_id", "name", "mark", "statuses", "judged"}, as `GET /api/kernels/RUN`. `statuses` has the
    objects of `/api/amd`; `judged` is an object of `leaderboard`, null until the final status.

    \b
    Examples:
      steno kernel show vector-add-4f0c2a91b7de
      steno kernel show vector-add-4f0c2a91b7de --json | jq .judged.measured
    """
    from steno.cli.render.kernels import kernel_page
    from steno.projections.answers.judged_kernel import kernel_object

    row, kernel = _told(app, run)
    show(app, lambda: kernel_object(row, kernel), lambda: kernel_page(row.name or row.run_id, kernel))
    if kernel.judged is None:
        hint("it has no final status yet; `steno up` or `steno record` follows it")


def _told(app: App, run: str) -> "tuple[RunRow, ToldKernel]":
    from steno.projections.answers.judged_kernel import told_kernel

    with viewing(app) as (record, view, now):
        row = view.row(run)
        return row, told_kernel(record, view, row, now)


@kernel_command.command("rejudge", short_help="Judge recorded kernels by today's rules.")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--since", metavar="TIME", help="Only kernels submitted since then: an ISO time, or 7d.")
def rejudge(app: App, runs: tuple[str, ...], since: str | None) -> None:
    """Judge recorded kernels again by today's rules, from their events, and list whose result changes.

    No kernel runs again, and nothing is written. A result without the evidence that the rules ask for becomes UNPROVEN.
    Exits 1 if a result changes. With --json: {"judged", "changed": [objects of `leaderboard`]}.

    \b
    Examples:
      steno kernel rejudge
      steno kernel rejudge --since 7d
      steno kernel rejudge vector-add-4f0c2a91b7de --json
    """
    from steno.cli.render.kernels import changed_list
    from steno.projections.answers.judged_kernel import JudgedKernels, told_kernel

    with viewing(app) as (record, view, now):
        after = None if since is None else moment(since, now)
        named = [told_kernel(record, view, view.row(run), now).judged for run in runs]
        judged = named if runs else JudgedKernels().read(record, view, now)
        kernels = [
            kernel for kernel in judged if kernel is not None and (after is None or kernel.submitted_at >= after)
        ]
    changed = [kernel for kernel in kernels if kernel.changes]
    app.exit_code = NOT_SUCCEEDED if changed else app.exit_code
    lines = [f"{count(len(kernels), 'kernel')} judged again, {count(len(changed), 'result')} changed"]
    value = {"judged": len(kernels), "changed": [wire(kernel) for kernel in changed]}
    show(app, value, lambda: "\n\n".join([changed_list(changed), *lines] if changed else lines))


@kernel_command.command("leaderboard", short_help="The best times by problem, GPU and dtype.")
@click.option("--problem", metavar="NAME", help="Only this problem.")
@click.option("--gpu", metavar="GPU", help="Only times of this GPU.")
@click.option("--dtype", metavar="DTYPE", help="Only times with this dtype.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(min=1), default=10, help="Places a board, rows a list; default: 10."
)
def leaderboard_shown(app: App, problem: str | None, gpu: str | None, dtype: str | None, limit: int) -> None:
    """Rank BENCHMARKED kernels by their last benchmark: a board for each problem, GPU, dtype and number of processors.

    A kernel ranks before another if its interval ends below the other's; else they tie, in order of submission. Only
    the newest kernel of a source has a place. Suspected cheats, and times that are not proven, are listed apart: also
    all times by the clock of earlier versions. A kernel that no GPU's compiler compiled was timed on the CPU.

    With --json: {"boards": [{"problem", "definition", "gpu", "dtype", "cpus", "places": [{"rank", "time", "kernel"}],
    "more", "history"}], "suspected", "more_suspected", "unproven", "more_unproven"}, as `GET /api/kernels/leaderboard`.

    \b
    Examples:
      steno kernel leaderboard
      steno kernel leaderboard --problem matmul --gpu MI300X
      steno kernel leaderboard --json | jq '.boards[].places[0].time.median_ms'
    """
    from steno.cli.render.kernels import leaderboard_page

    boards, now = _ranked(app, problem=problem, gpu=gpu, dtype=dtype, limit=limit)
    then = "`steno kernel submit FILE --problem NAME` makes one, `steno kernel problems` lists problems"
    none = None if boards.boards or boards.suspected or boards.unproven else f"no times; {then}"
    show(app, lambda: wire(boards), lambda: leaderboard_page(boards, now, columns()), nothing=none)
