"""An invocation: its flags, settings, clock, ids, record and providers; and the command classes that receive it."""

from __future__ import annotations

import copy
import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steno.cli.wiring.errors import DONE, say
from steno.cli.wiring.terminal import colour_wanted
from steno.events.clock import SECOND, Clock, Ids, RandomIds, SteadyClock, SystemClock
from steno.events.errors import RecordNotWritable
from steno.events.store.store import Store, is_bundle, store_at

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from steno.engine.providers.base import Provider
    from steno.engine.settings.settings import Settings
    from steno.engine.state.run import Run
    from steno.events.store.record import Record

SERVING = "serving"  # file beside the record while it is served: the address, for `steno open`


class App:
    """A call of `steno`; creates everything heavy on first use."""

    def __init__(self) -> None:
        self.flags: dict[str, str | None] = {}  # settings given on the command line, by name
        self.json = False
        self.several = False  # the command answers more than once: with --json, as JSON Lines
        self.known: str | None = None  # `--known`, which `--at` is read with
        self.exit_code = DONE  # the exit code of a command that raised nothing
        self.colour = colour_wanted(sys.stdout.isatty())

    def set_flag(self, name: str, value: str) -> None:
        """Override a setting, as a flag does."""
        self.flags[name] = value
        self.__dict__.pop("settings", None)

    def copied(self, clock: Clock) -> App:
        other = copy.copy(self)
        other.flags, other.clock = dict(self.flags), clock
        return other

    @functools.cached_property
    def settings(self) -> Settings:
        """Every setting; flags win. Raises `NotConfigured` if a file is unreadable or a value is invalid."""
        from steno.engine.providers.registry import settings_here

        return settings_here(self.flags)

    @functools.cached_property
    def rules_folders(self) -> tuple[Path, ...]:
        """Where rule files are: `rules` beside each `steno.toml`, that of this folder first."""
        from platformdirs import user_config_path

        return Path.cwd() / "rules", user_config_path("steno") / "rules"

    @functools.cached_property
    def clock(self) -> Clock:
        return SteadyClock(SystemClock())

    @functools.cached_property
    def ids(self) -> Ids:
        return RandomIds()

    def reading(self, *, check: bool = True) -> Record:
        """The record, read-only; `check` verifies that its newest events are there."""
        return self._record(write=False, check=check)

    def writing(self, *, create: bool = True) -> Record:
        """The record to append to; `create` makes a missing one."""
        return self._record(write=True, create=create)

    def _record(self, *, write: bool, create: bool = False, check: bool = True) -> Record:
        from steno.engine.providers.registry import READINGS
        from steno.events.store.record import Record

        store = store_at(self.settings.record)
        if write:
            self.share_clock(store)
        return Record.open(store, write=write, create=create, check=check, shapes=READINGS.shape, clock=self.clock)

    def share_clock(self, store: Store) -> None:
        """Tell the time as all writers of the record do, and say so if the clock of this machine is another."""
        shared = store.clock(self.clock)
        if shared is not self.clock:
            ahead = (self.clock.now() - shared.now()) / SECOND
            skew = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'}"
            say(f"the clock of this machine is {skew} the database's, whose time is recorded: set it right")
            self.clock = shared

    def provider(self, name: str, record: Store | None, *, project: str | None = None) -> Provider:
        """The provider of that name, in `project` or in the project of the settings. Raises `NotConfigured` or
        `ProjectNotFound` if the provider does not exist or a setting it needs is missing or wrong.
        """
        from steno.engine.providers import registry

        if is_bundle(record):
            raise RecordNotWritable(
                f"{record} is an incident bundle: it has no provider, and its runs cannot be changed."
            )
        kind, app = registry.kind(name), self.copied(self.clock)
        if all(block.provider != name for block in app.settings.blocks):
            app.set_flag("provider", name)  # its settings are read only where it is named
        if project is not None and project != app.settings.value("project"):
            app.set_flag("project", project)
        return kind.open(app.settings, clock=app.clock, ids=app.ids, record=record)

    def provider_of(self, run: Run, record: Store | None) -> Provider:
        """The provider of a run, in the run's own project."""
        return self.provider(run.provider, record, project=run.project)


def _keep_record(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value == "":
        raise click.BadParameter("it is empty; give a path or URL", ctx)
    if value is not None:
        app = ctx.ensure_object(App)
        if app.flags.get("record", value) != value:
            raise click.UsageError("--record is given twice, before the command and after it: give it once", ctx)
        app.set_flag("record", value)


def _keep_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(App).json = True


COMMON = (  # options of every command and of `steno` itself
    click.Option(
        ["--json"], is_flag=True, expose_value=False, callback=_keep_json, help="Print JSON with stable keys."
    ),
    click.Option(
        ["--record"],
        metavar="URL",
        expose_value=False,
        callback=_keep_record,
        help="The record: a path (SQLite) or a database URL; else STENO_RECORD, steno.toml, your data folder.",
    ),
)


def refuse_repeated(command: click.Command) -> None:
    """Make a usage error of an option that takes one value and is given twice: click silently takes the last."""
    make_parser = command.make_parser

    def made(ctx: click.Context) -> Any:
        parser = make_parser(ctx)
        parse = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            parsed = parse(args)
            options = [option for option in parsed[2] if isinstance(option, click.Option)]
            asks_for_help = any(flag in ctx.help_option_names for option in options for flag in option.opts)
            for each in options:
                single = not each.multiple and not each.count and not asks_for_help and not ctx.resilient_parsing
                if single and options.count(each) > 1:
                    raise click.UsageError(f"{'/'.join(each.opts)} is given twice: give it once", ctx)
            return parsed

        parser.parse_args = parse_once  # type: ignore[method-assign]
        return parser

    command.make_parser = made  # type: ignore[method-assign]


class StenoCommand(click.Command):
    """A command whose function gets the `App` first; appends the `COMMON` options."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params += COMMON
        refuse_repeated(self)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function; it prints data on stdout, so log lines go to stderr."""
        from steno.cli.wiring.logging_setup import log_for_data

        assert self.callback is not None  # noqa: S101 - each is made of one
        log_for_data()
        return ctx.invoke(self.callback, ctx.ensure_object(App), **ctx.params)


steno_command = functools.partial(click.command, cls=StenoCommand)


class CommandGroup(click.Group):
    command_class = StenoCommand


class DefaultGroup(CommandGroup):
    """Runs the hidden command `list` if the arguments name no subcommand; `--help` shows both."""

    default = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asks_for_help = args[:1] in (["--help"], ["-h"])
        completes = ctx.resilient_parsing and not args
        if not asks_for_help and not completes and (not args or args[0] not in self.commands):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of `list`, then the subcommands."""
        self.commands[self.default].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Subcommands, and completions of `list`."""
        completions = super().shell_complete(ctx, incomplete)
        for parameter in self.commands[self.default].params:
            if isinstance(parameter, click.Argument):
                completions += parameter.shell_complete(ctx, incomplete)
        return completions
