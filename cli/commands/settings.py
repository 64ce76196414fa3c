"""`steno config` and `steno init`: every setting and where it comes from, and a steno.toml question by question."""

import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import click

from steno.cli.catalogue import near
from steno.cli.render import paint
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.errors import REFUSED, say
from steno.cli.wiring.options import project_option, provider_option
from steno.cli.wiring.output import emit_json, hint, show
from steno.engine.errors import NotConfigured
from steno.engine.providers import registry
from steno.engine.settings.values import Known

_BARE = re.compile(r"true|false|\d+(\.\d+)?")  # what TOML reads without quotes
_SAMPLE_HEAD = """\
# Every setting of Steno. Each line shows the default; remove the # in front of what you change. Put the file into your
# configuration folder (~/.config/steno) or into the folder you call steno in. `steno config` shows what is in force.
"""
_QUESTIONS = (  # setting, question; an empty answer keeps the default and writes nothing
    ("project", "The project there, if you have several"),
    ("vms.idle_timeout", "Stop a machine that has been idle for this long (10m, 1h, off)"),
    ("vms.max", "At most this many machines at a time"),
    ("budget.total", "The budget in dollars; empty: none"),
    ("record", "The record: a path, or a database URL"),
)


@steno_command("config")
@provider_option
@project_option
@click.option("--sample", is_flag=True, help="Print a steno.toml with every setting, its meaning and its default.")
def config_command(app: App, *, sample: bool) -> None:
    """Later wins: defaults, the provider's own configuration file, steno.toml of your configuration folder, steno.toml
    of the current folder, .env of the current folder, the environment, flags. Secrets are shown as "set". A file can
    also set rates.<GPU> (dollars an hour of any GPU model), billing.<backend>.minimum and
    billing.<backend>.granularity.

    With --json: {"settings": {name: {"value", "source"}}, "variables": {name: [strongest first]}}.

    \b
    Examples:
      steno config
      steno config --json
      steno config --sample > steno.toml
    """
    if sample:
        text = sample_settings(registry.settings_table().known)
        show(app, {"file": "steno.toml", "text": text}, text.removesuffix("\n"))
        return
    entries = app.settings.entries
    rows = {entry.name: {"value": entry.shown, "source": entry.source} for entry in entries}
    cells = [(entry.name, entry.shown or "–", paint.dim(entry.source)) for entry in entries]
    value = {"settings": rows, "variables": app.settings.variables}
    show(app, value, paint.table(("SETTING", "VALUE", "FROM"), cells))


@steno_command("init")
@click.option(
    "--file",
    "target",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default=Path("steno.toml"),
    show_default=True,
    help="The file to write.",
)
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: use the defaults and the values of --set.")
@click.option("--set", "given", metavar="NAME=VALUE", multiple=True, help="A setting; it is not asked for.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def init_command(app: App, target: Path, given: tuple[str, ...], *, yes: bool, force: bool) -> None:
    """It asks where tasks run, how long machines may idle and what may be spent. Every answer is checked as it is
    given. Enter keeps the value in brackets. The file has what you answered; `steno config --sample` prints every other
    setting. With --json: {"file", "settings": {name: value}}.

    \b
    Examples:
      steno init
      steno init --yes --set provider=local --set budget.total=100
    """
    if target.exists() and not force:
        app.exit_code = REFUSED
        say(f"{target} exists; --force replaces it, --file writes another")
        return
    values: dict[str, str] = {}
    for assignment in given:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise click.BadParameter(f"{assignment!r}: write NAME=VALUE", param_hint="--set")
        _check(app, name, value)
        values[name] = value
    for name, question in () if yes else _questions(app, values):
        if name == "provider" and name not in values:
            kinds = [kind for kind in registry.built_in() if not kind.settings.hosted]
            click.echo("\n".join(f"{kind.name}: {kind.summary}" for kind in kinds), err=True)
        if name not in values and (answer := _asked(app, name, question)):
            values[name] = answer
    target.write_text(_toml(values), encoding="utf-8")
    if app.json:
        emit_json({"file": str(target), "settings": values})
    else:
        click.echo(str(target))
        hint("`steno doctor` checks whether a task can run now; `steno up` records and serves the dashboard")


def _questions(app: App, answers: dict[str, str]) -> Iterator[tuple[str, str]]:
    """(setting, question): the provider, what the chosen one asks, and the rest."""
    yield "provider", "Where do tasks run"
    kind = registry.kind(answers.get("provider") or app.settings.provider)
    yield from ((known.name, known.question) for known in kind.settings.known if known.question is not None)
    yield from _QUESTIONS


def _asked(app: App, name: str, question: str) -> str | None:
    """A valid answer; None: the default."""
    default = app.settings.value(name) or ""
    while True:
        answer = str(click.prompt(question, default=default, show_default=bool(default), err=True)).strip()
        if answer == default:
            return None
        try:
            _check(app, name, answer)
        except click.BadParameter as error:
            say(error.message)
            continue
        return answer.removeprefix("$") if name == "budget.total" else answer


def _check(app: App, name: str, value: str) -> None:
    """Raises `BadParameter`: no such setting, or not its value."""
    known = {setting.name for setting in registry.settings_table().known}
    if name not in known:
        raise click.BadParameter(f"there is no setting {name}{near(name, sorted(known))}", param_hint="--set")
    if name == "record" and value.removeprefix("$").replace(".", "").isdecimal():
        raise click.BadParameter(f"record is {value!r}, a number; a file of that name is ./{value}", param_hint="--set")
    tried = app.copied(app.clock)
    tried.set_flag(name, value)
    try:
        tried.settings.value(name)
        if name == "provider":
            registry.kind(value)
    except NotConfigured as error:
        raise click.BadParameter(str(error), param_hint="--set") from None


def _toml(values: dict[str, str]) -> str:
    """The settings by section, those without one first."""
    lines = ["# Written by `steno init`; `steno config --sample` prints every setting.\n"]
    section = ""
    for name in sorted(values, key=lambda name: (name.rpartition(".")[0], name)):
        parent, _, key = name.rpartition(".")
        if parent != section:
            lines.append(f"\n[{parent}]\n")
            section = parent
        lines.append(f"{key} = {json.dumps(values[name], ensure_ascii=False)}\n")
    return "".join(lines)


def sample_settings(known: Iterable[Known]) -> str:
    def section(setting: Known) -> str:
        return setting.name.rpartition(".")[0]

    parts = [_SAMPLE_HEAD]
    for name, settings in groupby(sorted(known, key=section), section):
        parts.append(f"[{name}]\n" if name else "")
        parts += map(_sample_entry, settings)
    return "\n".join(part for part in parts if part)


def _sample_entry(setting: Known) -> str:
    meaning = f"{setting.help} A secret: better in {setting.variables[0]}." if setting.secret else setting.help
    about = textwrap.fill(meaning, 118, initial_indent="# ", subsequent_indent="# ")
    value = setting.default or ""
    literal = value if _BARE.fullmatch(value) else json.dumps(value)
    return f"{about}\n#{setting.name.rpartition('.')[2]} = {literal}\n"
