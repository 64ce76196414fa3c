"""The options of `steno submit` that describe a task: those of every provider, and each provider's own."""

from collections.abc import Iterable
from typing import Any

import click

from cli.wiring.options import Command
from engine.providers import registry
from engine.providers.kind import Option, ProviderKind
from engine.settings.profiles import PROFILES

_OPTIONS = (
    click.option("--name", metavar="NAME", help="The run's name; else the file's, else a generated one."),
    click.option("--image", metavar="IMAGE", help="Container image; AMD GPUs need one."),
    click.option(
        "--env",
        "-e",
        metavar="NAME[=VALUE]",
        multiple=True,
        help="Environment variable; without =VALUE the value comes from your shell.",
    ),
    click.option("--gpu", metavar="NAME:COUNT", help="GPU: MI300X:1, H100:80GB:2, 24GB.."),
    click.option("--cpu", metavar="RANGE", help="Processors: 8, 4..16."),
    click.option("--memory", metavar="RANGE", help="Memory: 32GB, 16GB..."),
    click.option("--disk", metavar="RANGE", help="Disk: 100GB, 100GB..500GB."),
    click.option(
        "--creation-policy",
        type=click.Choice(["reuse", "reuse-or-create", "create"]),
        help="Only warm machines, new ones too, or only a new one of its own.",
    ),
    click.option(
        "--idle-duration",
        metavar="DURATION",
        help="Keep the machine this long after the run: 5m, 0m, off; `vms.idle_timeout` holds where it is shorter.",
    ),
    click.option(
        "--profile",
        type=click.Choice(list(PROFILES)),
        help="How long to keep the machine, by kind of work: 5m, 15m, 2m, 1m, or a new one given back at once.",
    ),
    click.option(
        "--fallback",
        metavar="GPU,GPU",
        help="GPU models to ask for, one after the other, where there is no capacity for the task's own.",
    ),
    click.option("--max-duration", metavar="DURATION", help="End the run after this long: 30m, 2h, off."),
)


class TaskCommand(click.Command):
    """A command that also takes the options of the providers.

    Those of the built-in ones are there from the start; installed packages are searched for an option that nobody knows
    yet, and for the help.
    """

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> click.Context:
        """Parse; once more with the options of other packages if there is an unknown one, or help is wanted."""
        self._extend(registry.built_in())
        if "--help" in args:
            self._extend_all()
        try:
            return super().make_context(info_name, list(args), *more, **extra)
        except click.NoSuchOption:
            if not self._extend_all():
                raise
            return super().make_context(info_name, args, *more, **extra)

    def _extend_all(self) -> bool:
        return self._extend(map(registry.kind, registry.names()))

    def _extend(self, kinds: Iterable[ProviderKind]) -> bool:
        """Add the options that are not there; whether there were any."""
        there = {name for param in self.params for name in param.opts}
        found = [option for kind in kinds for option in kind.options if option.flag not in there]
        self.params += map(_click_option, found)
        return bool(found)


def _click_option(option: Option) -> click.Option:
    return click.Option(
        [option.flag, option.field],
        metavar=option.metavar,
        multiple=option.multiple,
        type=click.Choice(option.choices) if option.choices else str,
        help=option.help,
    )


def task_options(function: Command) -> Command:
    """All of them, as keyword arguments of the same names; None or () where not given."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
