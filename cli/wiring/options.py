"""Options and arguments that several commands share."""

import contextlib
import getpass
import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from steno.cli.wiring.app import App
from steno.engine.errors import NotConfigured
from steno.events.errors import StenoError
from steno.events.store.store import is_bundle

if TYPE_CHECKING:
    from steno.projections.read_models.store import ProjectionStore

_DASK: Final = re.compile(r"(tcp|tls)://[^\s/]+:\d+")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def setting_option(flag: str, setting: str, **attributes: Any) -> Callable[[_Function], _Function]:
    """An option that sets a setting of this call; the settings validate its text."""

    def keep(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.ensure_object(App).set_flag(setting, value)

    return click.option(flag, **{"expose_value": False, "callback": keep, **attributes})


def _expect_provider(ctx: click.Context, parameter: click.Parameter, name: str) -> None:
    from steno.engine.providers import registry

    try:
        registry.kind(name)
    except NotConfigured as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


def _keep_provider(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        _expect_provider(ctx, parameter, value)
        ctx.ensure_object(App).set_flag("provider", value)


def _providers(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    from steno.engine.providers import registry

    return [name for name in registry.names() if name.startswith(incomplete)]


provider_option = setting_option(
    "--provider",
    "provider",
    metavar="NAME",
    callback=_keep_provider,
    shell_complete=_providers,
    help="Where tasks run: local, dstack, slurm, or a provider of another package; else STENO_PROVIDER, "
    "steno.toml, local.",
)


def _named_sources(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    flags = ctx.ensure_object(App).flags
    if value and ("provider" in flags or "project" in flags):
        raise click.UsageError("--source names provider and project: leave --provider and --project out", ctx)
    for source in value:
        _expect_provider(ctx, parameter, source.partition("/")[0])
    return tuple(dict.fromkeys(value))


sources_option = click.option(
    "--source",
    "sources",
    metavar="PROVIDER[/PROJECT]",
    multiple=True,
    callback=_named_sources,
    shell_complete=_providers,
    help="Record this source; may be repeated. All recorders with the same sources share them evenly.",
)
project_option = setting_option(
    "--project",
    "project",
    metavar="NAME",
    help="dstack's project; else STENO_PROJECT, steno.toml, the default of dstack's own configuration.",
)
host_option = setting_option(
    "--host", "api.host", metavar="ADDRESS", help="Where to listen; else STENO_API_HOST, steno.toml, 127.0.0.1."
)
port_option = setting_option(
    "--port", "api.port", metavar="N", help="The port, 0 for any free one; else STENO_API_PORT, steno.toml, 8642."
)


def _known(
    names: "Callable[[ProjectionStore, str], Iterable[str]]",
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Complete names from the read models; nothing on any error."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        from steno.projections.read_models.database import StoreError
        from steno.projections.read_models.read_models import ReadModels

        with contextlib.suppress(StenoError, OSError, StoreError):
            store = ReadModels(ctx.ensure_object(App).settings.record).open(write=False)
            if store is not None:
                with store:
                    return list(names(store, incomplete))
        return []

    return complete


_vms = _known(lambda store, begun: (*store.vms.names(begun), *store.vms.ids(begun)))
completed_runs = _known(lambda store, begun: store.runs.names(begun))
_NEWEST: Final = "steno.newest"  # in the context: -l was given


def _keep_newest(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[_NEWEST] = value


def _run_word(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    from steno.projections.read_models.tables import NEWEST

    if ctx.meta.get(_NEWEST) and value is not None:
        raise click.UsageError("-l means the newest run: leave the name out", ctx)
    if not ctx.meta.get(_NEWEST) and value is None and not ctx.resilient_parsing:
        raise click.MissingParameter(ctx=ctx, param=parameter)
    return NEWEST if value is None else value


def _with_newest(
    metavar: str, complete: Callable[..., list[str]], *, name: str = "run", **attributes: Any
) -> Callable[[_Function], _Function]:
    """The argument RUN, which `-l` stands for."""
    argument = click.argument(name, metavar=metavar, required=False, shell_complete=complete, **attributes)
    newest = click.option(
        "-l", "--last", is_flag=True, is_eager=True, expose_value=False, callback=_keep_newest, help="The newest run."
    )
    return lambda function: argument(newest(function))


def _run_words(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    words = _in_bundle(ctx, value) if value and is_bundle(value[0], missing=True) else value
    several = any(map(ctx.params.get, ("search", "everything", "user", "state", "machine")))
    if not words and several and not ctx.meta.get(_NEWEST):
        return ()  # all runs that the option means
    return tuple(str(_run_word(ctx, parameter, word)) for word in words or (None,))


def _in_bundle(ctx: click.Context, words: tuple[str, ...]) -> tuple[str, ...]:
    """The words behind a bundle, which is the record then; none: the runs that it was made of."""
    from steno.events.bundle.form import read_manifest

    ctx.ensure_object(App).set_flag("record", words[0])
    if words[1:] or ctx.meta.get(_NEWEST):
        return words[1:]
    return read_manifest(words[0]).runs


def each_run(function: Callable[..., None]) -> Callable[..., None]:
    """Call a command's function, which has a parameter `run`, for each of the argument RUN...; the answers are JSON
    Lines, or parted by an empty line.
    """

    @wraps(function)
    def every(app: App, runs: tuple[str, ...], **options: Any) -> None:
        app.several = len(runs) > 1
        for number, run in enumerate(runs):
            if number and not app.json:
                click.echo()
            function(app, run=run, **options)

    return every


run_argument = _with_newest("RUN", completed_runs, callback=_run_word)
runs_argument = _with_newest("RUN...", completed_runs, name="runs", nargs=-1, callback=_run_words)
runs_or_vms_argument = _with_newest(
    "RUN|VM...",
    _known(lambda store, begun: (*store.runs.names(begun), *store.vms.names(begun))),
    name="runs",
    nargs=-1,
    callback=_run_words,
)
vm_argument = click.argument("vm", metavar="VM", shell_complete=_vms)
vms_argument = click.argument("vms", metavar="VM...", nargs=-1, required=True, shell_complete=_vms)
optional_vm_argument = click.argument("vm", metavar="[VM]", required=False, shell_complete=_vms)
at_option = click.option(
    "--at",
    metavar="TIME|POSITION",
    help="Show the state at a time or position: 14:05, yesterday 9:00, 1h ago, 2026-11-20T15:00:00Z, 1204.",
)


def _users(store: "ProjectionStore", begun: str) -> Iterable[str]:
    from steno.projections.read_models.run_query import filter_values

    return (user for user in filter_values(store).users if user.startswith(begun))


def user_option(what: str) -> Callable[[_Function], _Function]:
    """`--user`, and `--mine` for the user of this shell; `what` is shown then. The command gets `user`."""
    mine = "steno.mine"  # in the context

    def user(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
        if value is not None and ctx.meta[mine]:
            raise click.UsageError("--mine means your own user: leave --user out", ctx)
        return getpass.getuser() if ctx.meta[mine] else value

    def keep(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[mine] = value

    own = click.option("--mine", is_flag=True, is_eager=True, expose_value=False, callback=keep, help="As --user YOU.")
    named = click.option("--user", metavar="NAME", callback=user, shell_complete=_known(_users), help=what)
    return lambda function: named(own(function))


def _one_line(ctx: click.Context, option: click.Parameter, why: str) -> str:
    """A reason on one line, no longer than over HTTP: lists and refusals repeat it."""
    from steno.engine.state.levers import LONGEST_WHY

    line = " ".join(why.split())
    if option.required and not line:
        raise click.BadParameter("it is empty; say why", ctx, option)
    if len(line) > LONGEST_WHY:
        raise click.BadParameter(f"it has {len(line):,} characters; use {LONGEST_WHY} at most", ctx, option)
    return line


def why_option(**default: Any) -> Callable[[_Function], _Function]:
    """`--why`, which is required without a default."""
    text = "The reason, for those who ask later."
    return click.option("--why", metavar="TEXT", required=not default, callback=_one_line, help=text, **default)


def _keep_known(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    ctx.ensure_object(App).known = value


def both_times_option(function: _Function) -> _Function:
    """`--at`, and `--known` for what was learnt of that moment later (`App.known`)."""
    known = click.option(
        "--known",
        metavar="TIME|POSITION",
        expose_value=False,
        callback=_keep_known,
        help="With --at: by what was known of that moment then; `now`: by all that is known. Default: what was known "
        "at the moment itself.",
    )
    return at_option(known(function))


from_option = click.option("--from", "start", metavar="TIME|POSITION", help="Start here.")
to_option = click.option("--to", "end", metavar="TIME|POSITION", help="End here.")
last_option = click.option("-n", "--last", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
hidden_option = click.option("--hidden", is_flag=True, help="Include hidden archives; see `steno sources`.")


def pool_options(function: _Function) -> _Function:
    """Options of a command that works on a record in pieces; it gets `jobs` and `dask` for `pool`."""
    dask = click.option(
        "--dask",
        metavar="tcp://HOST:PORT",
        callback=_dask_address,
        help="Work on the pieces on the workers of this Dask scheduler; they must reach the same record.",
    )
    jobs = click.option(
        "--jobs",
        metavar="N",
        type=click.IntRange(min=1),
        help="Work on so many pieces at once; 1: all in one process. Else all processors, for a long record.",
    )
    return jobs(dask(function))


def _dask_address(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _DASK.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not tcp://HOST:PORT or tls://HOST:PORT", ctx)
    if value is not None and ctx.params.get("jobs") is not None:
        raise click.UsageError("--jobs and --dask cannot be combined", ctx)
    return value
