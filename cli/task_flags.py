"""The flags that describe a task, in dstack's words."""

import click

from cli.wiring.options import Command
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
    click.option("--gpu", metavar="NAME:COUNT", help="GPU in dstack's words: MI300X:1, H100:80GB:2, 24GB.."),
    click.option("--cpu", metavar="RANGE", help="Processors: 8, 4..16."),
    click.option("--memory", metavar="RANGE", help="Memory: 32GB, 16GB..."),
    click.option("--disk", metavar="RANGE", help="Disk: 100GB, 100GB..500GB."),
    click.option("--backend", "backends", metavar="NAME", multiple=True, help="Only these backends; may be repeated."),
    click.option("--spot-policy", type=click.Choice(["spot", "on-demand", "auto"]), help="Spot machines, or not."),
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


def task_options(function: Command) -> Command:
    """All of them, as keyword arguments of the same names; None or () where not given."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
