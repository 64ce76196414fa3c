"""`steno init`: a steno.toml, question by question."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from cli.wiring.app import App, steno_command
from cli.wiring.errors import REFUSED, say
from cli.wiring.output import emit_json, hint

_QUESTIONS = (  # setting, question; an empty answer keeps the default and writes nothing
    ("project", "The project there, if you have several"),
    ("vms.idle_timeout", "Stop a machine that has been idle for this long (10m, 1h, off)"),
    ("vms.max", "At most this many machines at a time"),
    ("budget.total", "The budget in dollars; empty: none"),
    ("record", "The record: a path, or a database URL"),
)


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
    """Write a steno.toml: asks where tasks run, how long machines may idle and what may be spent.

    Every answer is checked as it is given. Enter keeps the value in brackets. The file has what you answered; `steno
    config --sample` prints every other setting. With --json: {"file", "settings": {name: value}}.

    \b
    Examples:
      steno init
      steno init --yes --set provider=local --set budget.total=100
    """
    from engine.providers import registry

    if target.exists() and not force:
        app.exit_code = REFUSED
        say(f"{target} exists; --force replaces it, --file writes another")
        return
    values: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            raise click.BadParameter(f"{one!r}: write NAME=VALUE", param_hint="--set")
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
    from engine.providers import registry

    yield "provider", "Where do tasks run"
    kind = registry.kind(answers.get("provider") or app.settings.provider)
    yield from ((one.name, one.question) for one in kind.settings.known if one.question is not None)
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
    from cli.catalogue import near
    from engine.errors import NotConfigured
    from engine.providers import registry

    known = {one.name for one in registry.settings_table().known}
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
