"""Commands about Steno itself: `help`, `man`, `completion`, `states`, and `open` for the dashboard."""

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

import click

from steno.cli.catalogue import near
from steno.cli.program import steno
from steno.cli.wiring.app import SERVING, App, CommandGroup, steno_command
from steno.cli.wiring.errors import UNREACHABLE, say
from steno.cli.wiring.options import completed_runs
from steno.cli.wiring.output import hint, show
from steno.cli.wiring.view import viewing
from steno.events.errors import StenoError
from steno.events.installation import version
from steno.events.store.store import store_at


@steno_command("help")
@click.argument("words", metavar="[COMMAND...]", nargs=-1)
def help_command(app: App, words: tuple[str, ...]) -> None:
    """With --json: {"command", "text"}.

    \b
    Examples:
      steno help
      steno help submit
      steno help token create
    """
    context = _context(words)
    text = context.command.get_help(context)
    show(app, {"command": context.command_path, "text": text}, text)


@steno_command("man")
@click.argument("words", metavar="[COMMAND...]", nargs=-1)
@click.option("--install", is_flag=True, help="Write the pages of all commands into a folder of man pages.")
@click.option(
    "--into",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("~/.local/share/man/man1"),
    show_default=True,
    help="That folder.",
)
def man_command(app: App, words: tuple[str, ...], into: Path, *, install: bool) -> None:
    """The pages are made from the help texts of this version. With --json: {"page", "text"}; with --install {"folder",
    "pages"}.

    \b
    Examples:
      steno man ps | man -l -
      steno man --install
      man steno-submit
    """
    if not install:
        context = _context(words)
        page = ManPage(context)
        show(app, {"page": page.name, "text": page.getvalue()}, page.getvalue().rstrip("\n"))
        return
    if words:
        raise click.UsageError("--install writes the pages of all commands: leave the command out")
    folder = into.expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    pages = []
    for context in _every(_context(())):
        page = ManPage(context)
        pages.append(page.name)
        (folder / f"{page.name}.1").write_text(page.getvalue(), encoding="utf-8")
    show(app, {"folder": str(folder), "pages": pages}, f"{len(pages)} pages in {folder}; `man steno` shows the first")


def _context(words: tuple[str, ...]) -> click.Context:
    """The context of a command; raises `UsageError` if there is none."""
    context = click.Context(steno, info_name="steno", obj=App(), **steno.context_settings)
    for word in words:
        group = context.command
        command = group.get_command(context, word) if isinstance(group, click.Group) else None
        if command is None:
            known = group.list_commands(context) if isinstance(group, click.Group) else []
            raise click.UsageError(f"there is no command {' '.join(words)!r}{near(word, known)}", context)
        context = click.Context(command, info_name=word, parent=context)
    return context


def _below(context: click.Context) -> list[click.Context]:
    """The contexts of the commands of a group that are shown; none of a command."""
    below, group = [], context.command
    for name in group.list_commands(context) if isinstance(group, click.Group) else ():
        command = group.get_command(context, name) if isinstance(group, click.Group) else None
        if command is not None and not command.hidden:
            below.append(click.Context(command, info_name=name, parent=context))
    return below


def _every(context: click.Context) -> list[click.Context]:
    """The context, and those of all commands below it."""
    return [context, *(each for below in _below(context) for each in _every(below))]


class ManPage(click.HelpFormatter):
    """The help of a command in roff."""

    def __init__(self, context: click.Context) -> None:
        super().__init__(width=240)
        command, self.name = context.command, _page_name(context)
        self.write(f'.TH "{self.name.upper()}" "1" "" "Steno {version()}" "Steno"\n')
        short = command.get_short_help_str(limit=200) or "record, explain and control GPU runs"
        self.write(f".SH NAME\n{_roff(self.name)} \\- {_roff(short)}\n")
        command.format_help(context, self)
        above = [] if context.parent is None else [context.parent]
        pages = [_roff(_page_name(near)) for near in (*above, *_below(context))]
        self.write("".join([".SH SEE ALSO\n"] * bool(pages) + [f".BR {page} (1)\n" for page in pages]))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        del prefix
        self.write(f".SH SYNOPSIS\n.B {_roff(prog)}\n{_roff(args)}\n.SH DESCRIPTION\n")

    def write_heading(self, heading: str) -> None:
        self.write(f".SH {heading.upper()}\n")

    def write_paragraph(self) -> None:
        """Headings part the sections."""

    def write_text(self, text: str) -> None:
        """Paragraphs are filled; a block after `\\b` stays as it is, and its title is a heading."""
        for block in re.split(r"\n\s*\n", text.strip()):
            if not block.lstrip().startswith("\b"):
                self.write(f".PP\n{_roff(' '.join(block.split()))}\n")
                continue
            title, *rows = block.lstrip().removeprefix("\b").strip("\n").splitlines()
            self.write_heading(title.strip().removesuffix(":"))
            self.write("\n".join([".nf", *map(_roff, rows), ".fi"]) + "\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        del col_max, col_spacing
        for name, about in rows:
            self.write(f".TP\n.B {_roff(name)}\n{_roff(about)}\n")


def _page_name(context: click.Context) -> str:
    """`steno-token-create`."""
    return context.command_path.replace(" ", "-")


def _roff(text: str) -> str:
    """The text with what roff would interpret escaped."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("\n", " ")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


@steno_command("open")
@click.argument("run", metavar="[RUN]", required=False, shell_complete=completed_runs)
@click.option("--print", "only_print", is_flag=True, help="Print the address and open nothing.")
def open_command(app: App, run: str | None, *, only_print: bool) -> None:
    """It needs `steno up` or `steno serve`, and says so (exit 3) if nothing answers: at the address where one of this
    machine serves the record, else at that of the settings. With --json: {"url"}.

    \b
    Examples:
      steno open
      steno open matmul
      steno open matmul --print
    """
    import webbrowser

    host, port = app.settings.value("api.host") or "127.0.0.1", int(app.settings.value("api.port") or 8642)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104 - compared, not bound
    place = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    place = _served(app) or place
    path = ""
    if run is not None:
        with viewing(app) as (_, view, _now):
            path = f"/runs/{quote(view.row(run).run_id, safe='')}"
    url = place + path
    if only_print:
        show(app, {"url": url}, url)
        return
    if not _answers(place):
        app.exit_code = UNREACHABLE
        say(f"nothing answers at {place}; start `steno serve` (or `steno up`), or set api.host and api.port")
        return
    show(app, {"url": url}, url)
    if not webbrowser.open(url):
        hint("no browser here; open the address yourself")


def _served(app: App) -> str | None:
    """The address at which a process of this machine serves the record now; None: none does."""
    with suppress(OSError, StenoError):
        url = store_at(app.settings.record).folder(SERVING).read_text(encoding="utf-8")
        return url if _answers(url) else None  # a killed process leaves its file
    return None


def _answers(url: str) -> bool:
    import socket

    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=2).close()
    except OSError:
        return False
    return True


@steno_command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(_: App, shell: str) -> None:
    """It completes commands, options and the names of the runs in your record.

    \b
    Examples:
      steno completion bash > ~/.local/share/bash-completion/completions/steno
      steno completion zsh  > "${fpath[1]}/_steno"
      steno completion fish > ~/.config/fish/completions/steno.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - the choice above lists click's own shells
    script = kind(steno, {}, "steno", "_STENO_COMPLETE")
    click.echo(script.source_template % script.source_vars())


@click.group("states", cls=CommandGroup)
def states_command() -> None:
    """
    \b
    Examples:
      steno states run --format mermaid
      steno states vm --format dot | dot -Tsvg > vm.svg
    """


_notation = click.option(
    "--format", "form", type=click.Choice(["mermaid", "dot"]), default="mermaid", show_default=True, help="Notation."
)


@states_command.command("run")
@_notation
def run(app: App, form: Literal["mermaid", "dot"]) -> None:
    """The Run machine. With --json: {"machine", "format", "diagram"}.

    \b
    Examples:
      steno states run
      steno states run --format dot | dot -Tsvg > run.svg
    """
    _draw(app, "run", form)


@states_command.command("vm")
@_notation
def vm(app: App, form: Literal["mermaid", "dot"]) -> None:
    """The VM machine. With --json: {"machine", "format", "diagram"}.

    \b
    Examples:
      steno states vm
      steno states vm --format dot | dot -Tsvg > vm.svg
    """
    _draw(app, "vm", form)


def _draw(app: App, machine: str, form: Literal["mermaid", "dot"]) -> None:
    from steno.engine.state.state_machines import RUN, VM

    text = (RUN if machine == "run" else VM).diagram(form)
    show(app, {"machine": machine, "format": form, "diagram": text}, text.removesuffix("\n"))
