"""`steno kernel`: submit kernels, show them, judge them again, compare their times."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.wiring.app import App, CommandGroup
from cli.wiring.errors import NOT_SUCCEEDED, Detached
from cli.wiring.options import provider_option, run_argument
from cli.wiring.output import emit, emit_json, hint, show
from cli.wiring.terminal import columns
from cli.wiring.time_arguments import moment

if TYPE_CHECKING:
    from cli.wiring.session import RunSession, SubmittedRun
    from engine.kernel.definition import KernelProblem
    from projections.models.kernel import Status

_LANGUAGES = {".hip": "hip", ".cu": "cuda", ".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp"}
_LANGUAGES |= {".sh": "command", ".py": "command"}
_GPUS = {"hip": "MI300X", "cuda": "H100", "cpp": "CPU", "command": "CPU"}
_GOOD = ("BENCHMARKED", "CHECKED")


@click.group("kernel", cls=CommandGroup)
def kernel_command() -> None:
    """Submit kernels, show them, judge them again, and compare their times.

    A kernel is the source of one function. Steno compiles it on a machine with the GPU, compares its results with the
    reference of the problem, and times it. Every call has inputs of its own, and every time has its evidence in the
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
@click.option("--language", metavar="LANGUAGE", help="hip, cuda, cpp or command; default: by the suffix of FILE.")
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
    --unsafe-here runs your own code as yourself.

    PATH of --problem-def is a JSON file, or a folder or an archive (.zip, .tar, .tar.gz) with problem.json,
    reference.py and, if you like, description.md.

    With --json: {"run_id", "provider_id", "name", "provider", "project", "position", "state"}; with --wait the object
    of `steno kernel show`, and the statuses go to stderr.

    \b
    Examples:
      steno kernel submit add.hip --problem vector-add --gpu MI300X --wait
      STENO_KERNEL_WARM=on steno kernel submit add.hip --problem vector-add --wait
      steno kernel submit add.cpp --problem vector-add --wait --unsafe-here
      steno kernel submit mine.hip --problem mine --problem-def mine/
    """
    import msgspec

    from cli.wiring.session import code_of_failure, session
    from cli.wiring.task import completed
    from engine.commands.kernels import expect_isolation, goes_to, kernel_key, kernel_order
    from engine.errors import TaskInvalid
    from engine.kernel.definition import Wrong
    from engine.kernel.problem_files import problem_text, read_bytes, text_of
    from engine.kernel.submission import LONGEST_SOURCE, read_submission
    from engine.providers import registry
    from engine.providers.task import Draft

    language = language or _LANGUAGES.get(file.suffix.lower())
    if language is None:
        raise click.UsageError(
            f"the suffix {file.suffix!r} names no language: add --language hip, cuda, cpp or command"
        )
    asked = {
        "solution_code": text_of(read_bytes(_existing(file), LONGEST_SOURCE), str(file), LONGEST_SOURCE),
        "problem": problem,
        "problem_def": None if problem_def is None else problem_text(_existing(problem_def)),
        "gpu_type": (gpu or _GPUS.get(language, "CPU")).upper(),
        "dtype": dtype,
        "language": language,
        "endpoint": "checker" if checker else "benchmark",
    }
    places = {"solution_code": str(file), "problem_def": str(problem_def or "problem_def"), "gpu_type": "--gpu"}
    run_id, settings = app.ids.new(), app.settings
    try:
        kernel = read_submission(msgspec.json.encode(asked))
        provider = settings.provider if unsafe_here else goes_to(settings)
        expect_isolation(settings, provider, own=unsafe_here)
        with app.writing() as record:
            name, order = kernel_order(kernel, run_id, kernel_key(record, run_id), settings, provider)
            draft = Draft(configuration={**order.configuration, "name": name}, where="the kernel", environ={})
            task = completed(registry.kind(provider), draft, settings, run_id=run_id)
            with session(app, record, provider) as here:
                submitted = here.submit(task, run_id, kernel=msgspec.json.encode(order.mark))
                end = _followed(app, here, submitted) if wait else None
                if end is None:
                    submitted = here.look(submitted)
                elif end.status not in _GOOD:
                    app.exit_code = code_of_failure(here.run(run_id), here.cause(run_id))
    except Wrong as wrong:
        first, dot, rest = wrong.field.partition(".")
        place = places.get(first, f"--{first.replace('_', '-')}" if first in asked else first)
        raise TaskInvalid(f"{place}{dot}{rest}: {wrong.detail}" if place else wrong.detail) from None
    if end is not None:
        if app.json:
            emit_json(_object(app, run_id))
        hint(f"`steno kernel show {name}`, `steno logs {name}`")
    elif app.json:
        emit_json({key: value for key, value in msgspec.structs.asdict(submitted).items() if key != "queued"})
    else:
        emit(name)
        queued = "" if submitted.queued is None else f"queued: {submitted.queued}; "
        hint(f"{queued}run {run_id}; `steno up` or `steno record` follows it, `steno kernel show {name}` shows it")


def _existing(path: Path) -> Path:
    from cli.wiring.trace_files import existing

    existing(str(path))
    return path


def _followed(app: App, here: "RunSession", submitted: "SubmittedRun") -> "Status":
    """The final status; prints each status when it arrives. Raises `Detached` on Ctrl-C; the kernel goes on."""
    from cli.render.kernels import status_line
    from cli.wiring.signals import stoppable

    told, name = 0, submitted.name
    try:
        with stoppable(signal.SIGINT, KeyboardInterrupt) as interrupted:
            while True:
                interrupted()
                pause = here.watch()
                story = here.kernel_story(submitted.run_id)
                for step in story:
                    if step.position > told:
                        told = step.position
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
def problems(app: App, name: str | None, example: bool) -> None:
    """List the shipped problems with the functions to define; with NAME, show one with its sizes and its reference.

    With PATH, check and show a problem of your own: what `submit --problem-def PATH` takes.

    With --json: {"problems": [{"problem", "title", "prototype", "problem_def", "example"}]}; with NAME one of these.

    \b
    Examples:
      steno kernel problems
      steno kernel problems matmul
      steno kernel problems matmul --example > matmul.hip
      steno kernel problems mine/
    """
    import msgspec

    from cli.render.kernels import problem_page, problem_table
    from engine.kernel.definition import problems as shipped
    from engine.kernel.executor import prototype_of

    if name is None and example:
        raise click.UsageError("--example needs the NAME of a problem")
    found = [one for one in shipped() if name in (None, one.problem)]
    if not found and name is not None and Path(name).exists():
        found = [_own_problem(Path(name))]
    if not found:
        raise click.UsageError(f"there is no problem {name!r}; there is {', '.join(one.problem for one in shipped())}")
    objects = [{**msgspec.to_builtins(one), "prototype": prototype_of(one.problem_def, "float32")} for one in found]
    if name is None:
        show(app, {"problems": objects}, lambda: problem_table(found))
    elif example and not app.json:
        emit(found[0].example.rstrip("\n"))
    else:
        show(app, objects[0], lambda: problem_page(found[0], name))


def _own_problem(path: Path) -> "KernelProblem":
    from engine.errors import TaskInvalid
    from engine.kernel.definition import KernelProblem, Wrong
    from engine.kernel.problem_files import problem_text
    from engine.kernel.submission import read_definition

    try:
        found = read_definition(problem_text(path), str(path))
    except Wrong as wrong:
        raise TaskInvalid(f"{wrong.field}: {wrong.detail}") from None
    return KernelProblem(problem=path.name.partition(".")[0], title=found.title, problem_def=found, example="")


@kernel_command.command("show", short_help="Show one kernel: its statuses, its times and their evidence.")
@run_argument
def show_one(app: App, run: str) -> None:
    """Show one kernel: its statuses with the time since its submission, and the evidence for each time.

    With --json: {"run_id", "name", "mark", "statuses", "judged"}, as `GET /api/kernels/RUN`. `statuses`
    has the objects of `/api/amd`; `judged` is an object of `leaderboard`, null until the final status.

    \b
    Examples:
      steno kernel show vector-add-4f0c2a91b7de
      steno kernel show vector-add-4f0c2a91b7de --json | jq .judged.measured
    """
    from cli.render.kernels import kernel_page
    from cli.wiring.view import viewing
    from projections.models.judged_kernel import kernel_object, told_kernel

    with viewing(app) as (record, view, now):
        row = view.row(run)
        told = told_kernel(record, view, row, now)
    show(app, lambda: kernel_object(row, told), lambda: kernel_page(row.name or row.run_id, told))
    if told.judged is None:
        hint("it has no final status yet; `steno up` or `steno record` follows it")


def _object(app: App, run_id: str) -> dict[str, Any]:
    from cli.wiring.view import viewing
    from projections.models.judged_kernel import kernel_object, told_kernel

    with viewing(app) as (record, view, now):
        row = view.row(run_id)
        return kernel_object(row, told_kernel(record, view, row, now))


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
    from cli.render.kernels import changed_list
    from cli.render.words import count
    from cli.wiring.view import viewing
    from engine.wire import wire
    from projections.models.judged_kernel import judged_kernels, told_kernel

    with viewing(app) as (record, view, now):
        after = None if since is None else moment(since, now)
        if runs:
            told = [told_kernel(record, view, view.row(run), now).judged for run in runs]
            found = [one for one in told if one is not None and (after is None or one.submitted_at >= after)]
        else:
            found = list(judged_kernels(record, view, now, since=after))
    changed = [one for one in found if one.changes]
    app.exit_code = NOT_SUCCEEDED if changed else app.exit_code
    lines = [f"{count(len(found), 'kernel')} judged again, {count(len(changed), 'result')} changed"]
    value = {"judged": len(found), "changed": [wire(one) for one in changed]}
    show(app, value, lambda: "\n\n".join([changed_list(changed), *lines] if changed else lines))


@kernel_command.command("leaderboard", short_help="The best times by problem, GPU and dtype.")
@click.option("--problem", metavar="NAME", help="Only this problem.")
@click.option("--gpu", metavar="GPU", help="Only times of this GPU.")
@click.option("--dtype", metavar="DTYPE", help="Only times with this dtype.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(min=1), default=10, help="Places a board, rows a list; default: 10."
)
def leaderboard_shown(app: App, problem: str | None, gpu: str | None, dtype: str | None, limit: int) -> None:
    """Rank BENCHMARKED kernels by their median in the last benchmark: a board for each problem, GPU and dtype.

    Only times that today's rules believe have a place. Suspected cheats, and times without evidence, are listed apart.
    A kernel that no GPU's compiler compiled was timed on the CPU and is on that board.

    With --json: {"boards": [{"problem", "definition", "gpu", "dtype", "places": [{"rank", "time", "kernel"}], "more",
    "history"}], "suspected", "more_suspected", "unproven", "more_unproven"}, as `GET /api/kernels/leaderboard`.

    \b
    Examples:
      steno kernel leaderboard
      steno kernel leaderboard --problem matmul --gpu MI300X
      steno kernel leaderboard --json | jq '.boards[].places[0].time.median_ms'
    """
    from cli.render.kernels import leaderboard_page
    from cli.wiring.view import viewing
    from engine.wire import wire
    from projections.models.judged_kernel import judged_kernels
    from projections.models.leaderboard import leaderboard

    with viewing(app) as (record, view, now):
        kernels = judged_kernels(record, view, now)
        found = leaderboard(kernels, problem=problem, gpu=gpu, dtype=dtype, limit=limit)
    if app.json or found != leaderboard((), limit=limit):
        show(app, lambda: wire(found), lambda: leaderboard_page(found, now, columns()))
    else:
        hint("no times; `steno kernel submit FILE --problem NAME` makes one, `steno kernel problems` lists problems")
