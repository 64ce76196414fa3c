"""`steno verify`, `steno rebuild` and `steno db`: the record's bytes, its read models, its schema."""

import re

import click

from cli.render.words import count
from cli.wiring.app import App, CommandGroup, steno_command
from cli.wiring.errors import DAMAGED, say
from cli.wiring.output import progress, show

_HEX = re.compile("[0-9a-fA-F]+")


@steno_command("verify")
@click.option("--expect", metavar="POSITION:HASH", help="A head that verify printed earlier; finds a rewritten tail.")
def verify_command(app: App, expect: str | None) -> None:
    """Check every byte of the record against its hash chain.

    Finds every changed byte that carries data, every deletion and insertion, and a cut tail. A tail that was rewritten
    together with the head is found only with a head you saved earlier: verify prints it, --expect checks it.

    Exits 7 if there is damage. With --json: {"ok", "events", "head": {"position", "hash"}, "damage": [{"position",
    "kind", "detail"}]}.

    \b
    Examples:
      steno verify
      steno verify --expect 61024:9f2c…
      steno verify --json | jq -r .head.hash
    """
    from cli.render import paint
    from events.store.record import Head

    head = None
    if expect is not None:
        position, colon, digest = expect.partition(":")
        if not (colon and position.isdecimal() and len(position) < 20 and _HEX.fullmatch(digest)):
            raise click.BadParameter("use POSITION:HASH, as verify prints it", param_hint="--expect")
        head = Head(position=int(position), hash=digest.lower())
    with app.reading(check=False) as record, progress("verifying") as advance:
        verdict = record.verify(expect=head, progress=advance)
    events = count(verdict.events, "event")
    if verdict.ok:
        saved = f"save this head; check it later with --expect {verdict.head.position}:{verdict.head.hash}"
        show(app, verdict, f"{click.style('✓', fg='green')} {events}, every byte unchanged\n{paint.dim(saved)}")
    else:
        rows = [(str(one.position or "–"), one.kind, one.detail) for one in verdict.damage]
        table = paint.table(("POSITION", "KIND", "WHAT"), rows, right=(0,))
        show(app, verdict, f"{click.style('✗', fg='red')} {events}, {count(len(rows), 'damage')}\n{table}")
        app.exit_code = DAMAGED
        first = verdict.damage[0]
        where = "" if first.position is None else f" at position {first.position}"
        say(f"the record is damaged{where}: {first.detail}; restore a backup, and keep this file for analysis")


@steno_command("rebuild")
def rebuild_command(app: App) -> None:
    """Rebuild the read models from the record.

    A new file is filled and then replaces the old one, so readers are not interrupted. You never have to do this:
    Steno rebuilds read models of another version by itself.

    With --json: {"runs", "position", "projections"}.

    \b
    Examples:
      steno rebuild
    """
    from projections.models.projector import rebuilt
    from projections.store.read_models import ReadModels

    with app.reading() as record, progress("reading the record") as advance:
        position = record.head().position
        runs = rebuilt(record, progress=advance)
        path = str(ReadModels(record.store))
    value = {"runs": runs, "position": position, "projections": path}
    show(app, value, f"{count(runs, 'run')} up to position {position:,} in {path}")


@click.group("db", cls=CommandGroup)
def db_command() -> None:
    """Upgrade the record to this version's schema.

    \b
    Examples:
      steno db upgrade
      steno db upgrade --record /srv/steno/record.db
    """


@db_command.command("upgrade")
def upgrade(app: App) -> None:
    """Upgrade the record to this version's schema; does nothing if it is up to date.

    Nothing is deleted and no event is changed. With --json: {"record", "schema"}.

    \b
    Examples:
      steno db upgrade
      steno db upgrade --record /srv/steno/record.db
    """
    from events.store.schema import REVISION
    from events.store.store import store_at

    where = app.settings.record
    store_at(where).upgrade()
    show(app, {"record": where, "schema": REVISION}, f"{where} has schema {REVISION}, the newest of this version")
