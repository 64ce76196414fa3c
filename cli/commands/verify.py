"""`steno verify`: check the record against its hash chain."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from cli.wiring.app import App
from cli.wiring.errors import DAMAGED, say
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit, emit_json, progress

if TYPE_CHECKING:
    from events.store.record import Head
    from events.store.verify import Verification

_HEX = re.compile("[0-9a-fA-F]+")


@click.command("verify")
@click.option("--expect", metavar="POSITION:HASH", help="A head that verify printed earlier; finds a rewritten tail.")
@common
@pass_app
def command(app: App, expect: str | None) -> None:
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
    head = None if expect is None else _head(expect)
    from cli.wiring.stores import reading

    with reading(app, check=False) as record, progress("verifying") as advance:
        verdict = record.verify(expect=head, progress=advance)
    if app.json:
        emit_json(verdict)
    else:
        _print(verdict)
    if not verdict.ok:
        app.exit_code = DAMAGED
        first = verdict.damage[0]
        where = "" if first.position is None else f" at position {first.position}"
        say(f"the record is damaged{where}: {first.detail}; restore a backup, and keep this file for analysis")


def _head(expect: str) -> Head:
    from events.store.record import Head

    position, colon, digest = expect.partition(":")
    if not (colon and position.isdecimal() and len(position) < 20 and _HEX.fullmatch(digest)):
        raise click.BadParameter("use POSITION:HASH, as verify prints it", param_hint="--expect")
    return Head(position=int(position), hash=digest.lower())


def _print(verdict: Verification) -> None:
    from cli.render import paint
    from cli.render.words import count

    events = count(verdict.events, "event")
    if verdict.ok:
        emit(f"{click.style('✓', fg='green')} {events}, every byte unchanged")
        emit(paint.dim(f"save this head; check it later with --expect {verdict.head.position}:{verdict.head.hash}"))
        return
    damages = count(len(verdict.damage), "damage")
    emit(f"{click.style('✗', fg='red')} {events}, {damages}")
    rows = [(str(one.position or "–"), one.kind, one.detail) for one in verdict.damage]
    emit(paint.table(("POSITION", "KIND", "WHAT"), rows, right=(0,)))
