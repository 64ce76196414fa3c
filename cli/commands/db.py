"""`steno db`: the record's schema."""

import click

from cli.wiring.app import App
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit, emit_json


@click.group("db")
def command() -> None:
    """Upgrade the record to this version's schema.

    \b
    Examples:
      steno db upgrade
      steno db upgrade --record /srv/steno/record.db
    """


@command.command("upgrade")
@common
@pass_app
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
    if app.json:
        emit_json({"record": where, "schema": REVISION})
    else:
        emit(f"{where} has schema {REVISION}, the newest of this version")
