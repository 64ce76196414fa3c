"""Options and arguments that several commands share."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cli.wiring.app import App

if TYPE_CHECKING:
    from projections.store.store import ProjectionStore

Command = TypeVar("Command", bound=Callable[..., Any])


def _keep_record(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value == "":
        raise click.BadParameter("it is empty; give a path or URL", ctx)
    if value is not None:
        ctx.ensure_object(App).flags["record"] = value


def _keep_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(App).json = True


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"steno {version('steno')}")
        ctx.exit()


version_option = click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)

_record = click.option(
    "--record",
    metavar="URL",
    expose_value=False,
    callback=_keep_record,
    help="The record: a path (SQLite) or a database URL; else STENO_RECORD, steno.toml, your data folder.",
)
_json = click.option(
    "--json", is_flag=True, expose_value=False, callback=_keep_json, help="Print JSON with stable keys."
)


def common(function: Command) -> Command:
    """`--record` and `--json`, which every command takes and `steno` itself takes too."""
    return _json(_record(function))


def _keep_setting(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None and parameter.name is not None:
        ctx.ensure_object(App).flags[parameter.name] = value


def _keep_provider(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """A name that is built in is taken without a search through installed packages."""
    if value is None:
        return
    from engine.errors import NotConfigured
    from engine.providers import registry

    try:
        registry.kind(value)
    except NotConfigured as error:
        raise click.BadParameter(str(error), ctx, parameter) from None
    _keep_setting(ctx, parameter, value)


def _providers(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    """Names of providers that begin so."""
    from engine.providers import registry

    return [name for name in registry.names() if name.startswith(incomplete)]


provider_option = click.option(
    "--provider",
    metavar="NAME",
    expose_value=False,
    callback=_keep_provider,
    shell_complete=_providers,
    help="Where tasks run: local, dstack, or one that another package registers; else STENO_PROVIDER, steno.toml, "
    "local.",
)

project_option = click.option(
    "--project",
    metavar="NAME",
    expose_value=False,
    callback=_keep_setting,
    help="dstack's project; else STENO_PROJECT, steno.toml, the default of dstack's own configuration.",
)


def _keep_api(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(App).flags[f"api.{parameter.name}"] = value


host_option = click.option(
    "--host",
    metavar="ADDRESS",
    expose_value=False,
    callback=_keep_api,
    help="Where to listen; else STENO_API_HOST, steno.toml, 127.0.0.1.",
)

port_option = click.option(
    "--port",
    metavar="N",
    expose_value=False,
    callback=_keep_api,
    help="The port, 0 for any free one; else STENO_API_PORT, steno.toml, 8642.",
)

pass_app = click.make_pass_decorator(App)


def _known_runs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of recorded runs that begin so."""
    return _known(ctx, lambda store: store.names(incomplete))


def _known_vms(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of recorded machines that begin so, and ids once something is typed."""
    return _known(ctx, lambda store: (*store.vms.names(incomplete), *store.vms.ids(incomplete)))


def _known_either(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of runs, then of machines, that begin so."""
    return _known(ctx, lambda store: (*store.names(incomplete), *store.vms.names(incomplete)))


def _known(ctx: click.Context, names: "Callable[[ProjectionStore], Iterable[str]]") -> list[str]:
    """Names from the read models; no completion on any error."""
    import contextlib
    import sqlite3

    from events.errors import StenoError
    from projections.store.read_models import ReadModels

    with contextlib.suppress(StenoError, OSError, sqlite3.Error):
        store = ReadModels(ctx.ensure_object(App).settings.record).open(write=False)
        if store is not None:
            with store:
                return list(names(store))
    return []


run_argument = click.argument("run", metavar="RUN", shell_complete=_known_runs)
run_or_vm_argument = click.argument("run", metavar="RUN|VM", shell_complete=_known_either)
vm_argument = click.argument("vm", metavar="VM", shell_complete=_known_vms)
optional_vm_argument = click.argument("vm", metavar="[VM]", required=False, shell_complete=_known_vms)

at_option = click.option(
    "--at",
    metavar="TIME|POSITION",
    help="Show the state at this ISO time (UTC without a zone) or position.",
)

hidden_option = click.option("--hidden", is_flag=True, help="Include hidden archives; see `steno sources`.")

rules_option = click.option(
    "--rules",
    metavar="NAME",
    default="current",
    show_default=True,
    help="The rule set; `steno replay --help` lists them.",
)
