"""`steno help`, `steno man` and `steno open`: the pages of the commands, and the dashboard."""

from __future__ import annotations

from pathlib import Path

import click

from cli.catalogue import near
from cli.wiring.app import SERVING, App, steno_command
from cli.wiring.errors import UNREACHABLE, say
from cli.wiring.options import completed_runs
from cli.wiring.output import hint, show


@steno_command("help")
@click.argument("words", metavar="[COMMAND...]", nargs=-1)
def help_command(app: App, words: tuple[str, ...]) -> None:
    """Print the help of Steno, or of a command.

    With --json: {"command", "text"}.

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
    """Print the man page of Steno, or of a command; or install them all.

    The pages are made from the help texts of this version. With --json: {"page", "text"}; with --install {"folder",
    "pages"}.

    \b
    Examples:
      steno man ps | man -l -
      steno man --install
      man steno-submit
    """
    from cli.render.man import man_page, page_name

    if not install:
        context = _context(words)
        show(app, {"page": page_name(context), "text": man_page(context)}, lambda: man_page(context).rstrip("\n"))
        return
    if words:
        raise click.UsageError("--install writes the pages of all commands: leave the command out")
    folder = into.expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    pages = []
    for context in _every(_context(())):
        pages.append(page_name(context))
        (folder / f"{pages[-1]}.1").write_text(man_page(context), encoding="utf-8")
    show(app, {"folder": str(folder), "pages": pages}, f"{len(pages)} pages in {folder}; `man steno` shows the first")


def _context(words: tuple[str, ...]) -> click.Context:
    """The context of a command; raises `UsageError` if there is none."""
    from cli.program import steno

    context = click.Context(steno, info_name="steno", obj=App(), **steno.context_settings)
    for word in words:
        group = context.command
        found = group.get_command(context, word) if isinstance(group, click.Group) else None
        if found is None:
            known = group.list_commands(context) if isinstance(group, click.Group) else []
            raise click.UsageError(f"there is no command {' '.join(words)!r}{near(word, known)}", context)
        context = click.Context(found, info_name=word, parent=context)
    return context


def _every(context: click.Context) -> list[click.Context]:
    """The context, and those of all commands below it that are shown."""
    found, group = [context], context.command
    for name in group.list_commands(context) if isinstance(group, click.Group) else ():
        command = group.get_command(context, name) if isinstance(group, click.Group) else None
        if command is not None and not command.hidden:
            found += _every(click.Context(command, info_name=name, parent=context))
    return found


@steno_command("open")
@click.argument("run", metavar="[RUN]", required=False, shell_complete=completed_runs)
@click.option("--print", "only_print", is_flag=True, help="Print the address and open nothing.")
def open_command(app: App, run: str | None, *, only_print: bool) -> None:
    """Open the dashboard in the browser, or the page of a run.

    It needs `steno up` or `steno serve`, and says so (exit 3) if nothing answers: at the address where one of this
    machine serves the record, else at that of the settings. With --json: {"url"}.

    \b
    Examples:
      steno open
      steno open matmul
      steno open matmul --print
    """
    import webbrowser
    from urllib.parse import quote

    from cli.wiring.view import viewing

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
    from contextlib import suppress

    from events.errors import StenoError
    from events.store.store import store_at

    with suppress(OSError, StenoError):
        url = store_at(app.settings.record).folder(SERVING).read_text(encoding="utf-8")
        return url if _answers(url) else None  # a killed process leaves its file
    return None


def _answers(url: str) -> bool:
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=2).close()
    except OSError:
        return False
    return True
