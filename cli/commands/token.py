"""`steno token`: who may use the HTTP service."""

import getpass

import click
import msgspec

from steno.cli.render import paint
from steno.cli.render.words import moment
from steno.cli.wiring.app import App, DefaultGroup
from steno.cli.wiring.output import emit, emit_json, hint, show


def _expiry(ctx: click.Context, _: click.Parameter, value: str | None) -> int | None:
    """When a token expires, microseconds UTC."""
    if value is None:
        return None
    from steno.projections.api.token_store import expiry

    try:
        return expiry(value, ctx.ensure_object(App).clock.now())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _name(_ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from steno.projections.api.token_store import token_name

    try:
        return token_name(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} cannot be a token's name: {error}") from None


@click.group("token", cls=DefaultGroup, subcommand_metavar="[COMMAND] [ARGS]…")
def token_command() -> None:
    """On loopback no token is needed; `steno serve` and `steno up` listen on other addresses only if there is one. A
    client sends `Authorization: Bearer steno_…`; the dashboard asks for the token once. Its name is recorded as the
    submitter. Only a hash is kept, in a file beside the record that only you can read.

    \b
    Examples:
      steno token create --role submit --name site --expires 30d > site.token
      steno token list
      steno token revoke site
    """


@token_command.command("create", short_help="Create a token and print it, once.")
@click.option(
    "--role",
    type=click.Choice(["read", "submit", "admin"]),
    required=True,
    help="read: read everything; submit: also submit and stop runs; admin: also stop machines.",
)
@click.option("--name", callback=_name, help="The submitter that the record names; default: its role and a few digits.")
@click.option(
    "--expires",
    metavar="DURATION|TIME",
    callback=_expiry,
    help="When it expires: 12h, 30d, 2027-01-31; default: never.",
)
def create(app: App, role: str, name: str | None, expires: int | None) -> None:
    """Create a token and print it on stdout, once: it cannot be shown again.

    With --json: {"token_id", "name", "role", "state", "by", "created_at", "expires_at", "revoked_at", "token",
    "position"}. Exits 5 if a valid token has that name.

    \b
    Examples:
      steno token create --role read --name grafana
      steno token create --role submit --name site --expires 30d > site.token
      steno token create --role admin --json | jq -r .token
    """
    from steno.projections.api.token_store import Issuer, Role

    with app.writing() as record:
        made, text, position = Issuer(record, app.clock, app.ids).create(
            role=Role(role), name=name, expires_at=expires, by=getpass.getuser()
        )
    if app.json:
        emit_json(msgspec.to_builtins(made) | {"token": text, "position": position})
        return
    emit(text)
    until = "until it is revoked" if made.expires_at is None else f"until {moment(made.expires_at)}"
    hint(f"token {made.token_id}, {made.name}: {made.role}, valid {until}; it cannot be shown again")


@token_command.command("list")
@click.option("--all", "-a", "everything", is_flag=True, help="Also expired and revoked tokens.")
def listed(app: App, everything: bool) -> None:
    """List tokens, newest first: who may do what, and until when.

    With --json: {"tokens": [{"token_id", "name", "role", "state", "by", "created_at", "expires_at", "revoked_at"}]};
    `state` is valid, expired or revoked.

    \b
    Examples:
      steno token list
      steno token list --all --json | jq -r '.tokens[] | [.token_id, .name, .state] | @tsv'
    """
    from steno.projections.api.token_store import list_tokens

    with app.reading(check=False) as record:
        tokens = list_tokens(record.store, app.clock.now())
    listed_tokens = [token for token in tokens if everything or token.state == "valid"]
    if app.json:
        emit_json({"tokens": listed_tokens})
        return
    if listed_tokens:
        head = ("ID", "NAME", "ROLE", "STATE", "BY", "MADE", "EXPIRES")
        colours = {"valid": "succeeded", "revoked": "failed", "expired": "stopped"}
        rows = [
            (
                token.token_id,
                token.name,
                token.role,
                paint.state(colours[token.state], token.state),
                token.by,
                moment(token.created_at),
                moment(token.expires_at),
            )
            for token in listed_tokens
        ]
        emit(paint.table(head, rows))
    if not tokens:
        hint("no tokens; `steno token create --role read` creates one")
    elif len(listed_tokens) < len(tokens):
        hint(f"{len(tokens) - len(listed_tokens)} expired or revoked not shown; --all lists every token")


@token_command.command("revoke", short_help="Revoke a token.")
@click.argument("token", metavar="TOKEN")
def revoke(app: App, token: str) -> None:
    """Revoke a token, given its id, the beginning of it, or its name.

    A running service refuses it within a second, and closes the streams and sessions that were opened with it. With
    --json the token as `list` shows it, and "position" (null if it had been revoked before).

    \b
    Examples:
      steno token revoke site
      steno token revoke 5d21c0ffee17
    """
    from steno.projections.api.token_store import Issuer

    with app.writing(create=False) as record:
        revoked, position = Issuer(record, app.clock, app.ids).revoke(token, by=getpass.getuser())
    state = "is revoked" if position is not None else f"was revoked already, {moment(revoked.revoked_at)}"
    value = msgspec.to_builtins(revoked) | {"position": position}
    show(app, value, f"token {revoked.token_id}, {revoked.name}, {state}")
