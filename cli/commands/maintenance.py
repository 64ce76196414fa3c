"""`steno verify`, `steno rebuild` and `steno db`: the record's bytes, its read models, its schema."""

import re
from functools import partial
from typing import TYPE_CHECKING

import click
import msgspec

from steno.cli.render import paint
from steno.cli.render.words import count
from steno.cli.wiring.app import App, CommandGroup, steno_command
from steno.cli.wiring.errors import DAMAGED, say
from steno.cli.wiring.options import pool_options
from steno.cli.wiring.output import progress, show
from steno.events.errors import RecordNotFound
from steno.events.store.store import REVISION, is_bundle, new_identity, store_at

if TYPE_CHECKING:
    from steno.events.store.record import Head, Verification

_HEX = re.compile("[0-9a-fA-F]+")


@steno_command("verify")
@click.argument("bundle", metavar="[BUNDLE]", required=False)
@click.option("--against", metavar="RECORD", help="Check a bundle against the record that it was exported from.")
@click.option("--expect", metavar="POSITION:HASH", help="A head that verify printed earlier; finds a rewritten tail.")
@click.option("--after", metavar="POSITION:HASH", help="Check only what came after a head that verify printed earlier.")
@pool_options
def verify_command(
    app: App,
    bundle: str | None,
    against: str | None,
    expect: str | None,
    after: str | None,
    jobs: int | None,
    dask: str | None,
) -> None:
    """Finds every changed byte that carries data, every deletion and insertion, and a cut tail. A tail that was
    rewritten together with the head is found only with a head you saved earlier: verify prints it, --expect checks it.
    With --after, the events up to a saved head are not read again: a nightly check takes as long as one day's events.

    Pieces of a long record are checked at the same time, by processes of this machine or (--dask) of a cluster. If one
    is damaged, one process reads all of it again and names the damage. With --after, all is done in one process.

    BUNDLE is an incident bundle (.steno). Every byte of it is checked, and how many of its events the chain proves up
    to its head: check that head with `steno verify --expect` where the record is. --against RECORD writes the bundle
    again from the record and compares: so what is redacted is what the record has.

    Exits 7 if there is damage. With --json: {"ok", "events", "head": {"position", "hash"}, "damage": [{"position",
    "kind", "detail"}]}; of a bundle also "linked" (events that the chain proves), "digest" and "redacted".

    \b
    Examples:
      steno verify
      steno verify --expect 61024:9f2c…
      steno verify --after "$(cat last-head)"
      steno verify --dask tcp://10.0.0.5:8786
      steno verify --json | jq -r .head.hash
      steno verify incident.steno
      steno verify incident.steno --against record.db
    """
    if bundle is None and is_bundle(app.settings.record):
        bundle = app.settings.record
    if bundle is not None:
        if expect or after or jobs or dask:
            raise click.UsageError("a bundle is checked in one piece, by its own head: leave the other options out")
        _verify_bundle(app, bundle, against)
        return
    if against is not None:
        raise click.UsageError("--against is for a bundle: name one")
    from steno.engine.runtime.pools import pool

    if after is not None and (jobs is not None or dask is not None):
        raise click.UsageError("--after is checked in one piece: leave --jobs and --dask out")
    expected, seen = _saved(expect, "--expect"), _saved(after, "--after")
    with pool(jobs, dask) as workers, app.reading(check=False) as record, progress("verifying") as advance:
        verdict = record.verify(expect=expected, after=seen, progress=advance, pool=workers)
    events = count(verdict.events, "event")
    if seen is not None:
        events = f"{count(max(0, verdict.events - seen.position), 'event')} after position {seen.position}"
    if verdict.outputs or verdict.dropped:
        events += f", {count(verdict.outputs, 'chunk')} of output ({verdict.dropped:,} dropped)"
    if verdict.ok:
        saved = f"save this head; check it later with --expect {verdict.head.position}:{verdict.head.hash}"
        show(app, verdict, f"{click.style('✓', fg='green')} {events}, every byte unchanged\n{paint.dim(saved)}")
    else:
        _damaged(app, verdict, events, "record", "; restore a backup, and keep this file for analysis")


def _damaged(app: App, verdict: "Verification", events: str, what: str, then: str = "") -> None:
    rows = [(str(damage.position or "–"), damage.kind, damage.detail) for damage in verdict.damage]
    table = paint.table(("POSITION", "KIND", "WHAT"), rows, right=(0,))
    show(app, verdict, f"{click.style('✗', fg='red')} {events}, {count(len(rows), 'damage')}\n{table}")
    app.exit_code = DAMAGED
    first = verdict.damage[0]
    where = "" if first.position is None else f" at position {first.position}"
    say(f"the {what} is damaged{where}: {first.detail}{then}")


def _verify_bundle(app: App, path: str, against: str | None) -> None:
    from steno.events.bundle.form import Checker

    proof = Checker(path).run()
    if proof.ok and against is not None:
        from steno.engine.replay.bundle import expect_same

        app.set_flag("record", against)
        with app.reading() as record, progress("comparing") as advance:
            expect_same(record, path, advance)
    events = f"{count(proof.events, 'event')}, {proof.linked} proven by the chain up to its head"
    if not proof.ok:
        _damaged(app, proof, events, "bundle")
        return
    rest = "" if proof.linked == proof.events else "; --against RECORD proves the others"
    rest = rest if against is None else f"; {against} has all of it"
    hides = f"; hides {', '.join(proof.redacted)}" if proof.redacted else ""
    head = f"{proof.head.position}:{proof.head.hash}"
    show(app, proof, f"{click.style('✓', fg='green')} {events}{rest}{hides}\ndigest {proof.digest}\nhead {head}")


def _saved(head: str | None, option: str) -> "Head | None":
    from steno.events.store.record import Head

    if head is None:
        return None
    position, colon, digest = head.partition(":")
    if not (colon and position.isdecimal() and len(position) < 20 and _HEX.fullmatch(digest)):
        raise click.BadParameter("use POSITION:HASH, as verify prints it", param_hint=option)
    return Head(position=int(position), hash=digest.lower())


@steno_command("rebuild")
def rebuild_command(app: App) -> None:
    """A new file is filled and then replaces the file in use, so readers are not interrupted. You never have to do
    this: Steno rebuilds read models of another version by itself.

    With --json: {"runs", "position", "projections"}.

    \b
    Examples:
      steno rebuild
    """
    from steno.projections.read_models.projector import rebuilt
    from steno.projections.read_models.read_models import ReadModels

    with app.reading() as record, progress("reading the record") as advance:
        position = record.head().position
        runs = rebuilt(record, progress=advance)
        path = str(ReadModels(record.store))
    value = {"runs": runs, "position": position, "projections": path}
    show(app, value, f"{count(runs, 'run')} up to position {position:,} in {path}")


@click.group("db", cls=CommandGroup)
def db_command() -> None:
    """
    \b
    Examples:
      steno db status
      steno db upgrade
      steno db copy record.db postgresql://steno@db.example.org/steno
      steno db restore backup.db
      steno db grant recorder
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
    where = app.settings.record
    store_at(where).upgrade()
    show(app, {"record": where, "schema": REVISION}, f"{where} has schema {REVISION}, the newest of this version")


@db_command.command("status")
def status(app: App) -> None:
    """Show the record's database: kind and version, schema, size, head.

    With --json: {"record", "record_id", "database", "schema", "newest_schema", "bytes", "partitions",
    "oldest_transaction_seconds", "head": {"position", "hash"}}.

    \b
    Examples:
      steno db status
      steno db status --record postgresql://db.example.org/steno
    """
    with app.reading() as record:
        database, head, store = record.store.status(), record.head(), record.store
        facts = msgspec.structs.asdict(database)
        value = {"record": str(store), "record_id": record.id, "newest_schema": REVISION, "head": head, **facts}
    upgrade = "" if database.schema == REVISION else f"; `steno db upgrade` makes it {REVISION}"
    rows = [
        ("record", str(store)),
        ("id", value["record_id"]),
        ("database", database.database),
        ("schema", f"{database.schema}{upgrade}"),
        ("size", f"{database.bytes:,} bytes in {count(database.partitions, 'partition')}"),
        ("head", f"{head.position}:{head.hash}"),
    ]
    if database.oldest_transaction_seconds:
        rows.append(("oldest transaction", f"{database.oldest_transaction_seconds} s"))
    show(app, value, paint.table(("WHAT", "VALUE"), rows))


@db_command.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def copy_command(app: App, source: str, target: str) -> None:
    """Copy a record to another place, SQLite or PostgreSQL, with its vault and its tokens.

    Every event is checked against the hash chain on the way; ids, bytes and head are those of the original. A copy that
    was interrupted continues where it ended: call it again. Read models are rebuilt by the first reader. Stop what
    writes to the original before the last call, and point STENO_RECORD to the copy then.

    Exits 4 if FROM is missing, 5 if TO holds another record, 7 if FROM is damaged. With --json: {"from", "to", "head":
    {"position", "hash"}}.

    \b
    Examples:
      steno db copy record.db postgresql://steno@db.example.org/steno
      steno db copy postgresql://db.example.org/steno backup.db
    """
    from steno.events.store.copying import copy

    origin, place = store_at(source), store_at(target)
    with progress("copying") as advance:
        head = copy(origin, place, clock=app.clock, progress=advance)
    value = {"from": str(origin), "to": str(place), "head": head}
    show(app, value, f"{count(head.position, 'event')} in {place}, head {head.position}:{head.hash}")


@db_command.command("restore")
@click.argument("copy", metavar="COPY")
def restore_command(app: App, copy: str) -> None:
    """Put a copy (a file, or the URL of a database) in the place of the record, which is kept beside it.

    The copy is checked first. Vault and tokens stay; what is lost is noted in the record. Exits 5 while a process has
    the record open, or if COPY is of another record, 7 if COPY is damaged. With --json: {"copy": {"position", "hash"},
    "lost", "common", "kept"}.

    \b
    Examples:
      steno db restore backup.db
      steno db restore backup.db --record postgresql://steno@db.example.org/steno
    """
    from steno.events.store.copying import restore
    from steno.projections.read_models.read_models import ReadModels

    target = store_at(app.settings.record)
    with progress("restoring") as advance:
        done = restore(store_at(copy), target, clock=app.clock, progress=advance)
    models = ReadModels(target)
    models.discard(models.stamp())
    lost = "" if done.lost is None else f"; {count(done.lost - done.common, 'event')} after {done.common} are lost"
    kept = "" if done.kept is None else f"; the record from before is {done.kept}"
    show(app, done, f"{target} is the copy up to {done.copy.position}:{done.copy.hash}{lost}{kept}")


@db_command.command("grant")
@click.argument("role")
@click.option("--read-only", is_flag=True, help="Let the role only read.")
@click.option("--tokens", is_flag=True, help="Let it keep the tokens of the HTTP service too: for `up` and `serve`.")
def grant(app: App, role: str, *, read_only: bool, tokens: bool) -> None:
    """Let a role of PostgreSQL use the record: append and read, or only read; never change or delete.

    Run it as the owner of the record, who made it; if there is none, it is made. The role must exist (`createuser`).
    What a role had is not taken away. With --json: {"record", "role", "appends", "tokens"}.

    \b
    Examples:
      steno db grant recorder
      steno db grant service --tokens
      steno db grant analyst --read-only
    """
    if read_only and tokens:
        raise click.UsageError("--read-only and --tokens exclude each other")
    store = store_at(app.settings.record)
    admit = partial(store.admit, role, appends=not read_only, keeps_tokens=tokens)
    try:
        admit()
    except RecordNotFound:
        store.create(new_identity(app.clock))
        admit()
    may = "read" if read_only else "append to, read and keep the tokens of" if tokens else "append to and read"
    value = {"record": str(store), "role": role, "appends": not read_only, "tokens": tokens}
    show(app, value, f"{role} may {may} {store}")
