"""`steno token`: who may use the HTTP service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.groups import DefaultGroup
from cli.wiring.app import App
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit, emit_json, hint

if TYPE_CHECKING:
    from projections.api.access.issuing import TokenObject

_ROLES = ("read", "submit", "admin")


def _expiry(ctx: click.Context, _: click.Parameter, value: str | None) -> int | None:
    """The moment a token ends, microseconds UTC."""
    if value is None:
        return None
    from engine.settings.values import positive_duration
    from events.clock import parse_time

    now = ctx.ensure_object(App).clock.now()
    try:
        return now + positive_duration(value)
    except ValueError:
        pass
    try:
        moment = parse_time(value.strip())
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a duration (12h, 30d, 8w) nor a time (2027-01-31)") from None
    if moment <= now:
        raise click.BadParameter(f"{value} is over already")
    return moment


def _name(_ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from projections.api.access.issuing import token_name

    try:
        return token_name(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} cannot be a token's name: {error}") from None


@click.group("token", cls=DefaultGroup, subcommand_metavar="[COMMAND] [ARGS]…")
def command() -> None:
    """Make, list and revoke the tokens of the HTTP service.

    On loopback no token is needed; `steno serve` and `steno up` listen elsewhere only where there is one. A token is
    sent as `Authorization: Bearer steno_…`; the dashboard asks for it once. What somebody does with a token is recorded
    under its name. Only a hash of it is kept, in a file beside the record that only you can read.

    \b
    Examples:
      steno token create --role submit --name site --expires 30d > site.token
      steno token list
      steno token revoke site
    """


@command.command("create", short_help="Make a token and print it, once.")
@click.option(
    "--role",
    type=click.Choice(_ROLES),
    required=True,
    help="read: look at everything; submit: also ask for runs and stop them; admin: also end machines.",
)
@click.option("--name", callback=_name, help="What is done with it is recorded as; else its role and a few digits.")
@click.option(
    "--expires",
    metavar="DURATION|TIME",
    callback=_expiry,
    help="When it ends: 12h, 30d, 2027-01-31; else when revoked.",
)
@common
@pass_app
def create(app: App, role: str, name: str | None, expires: int | None) -> None:
    """Make a token and print it on stdout, alone and once: it is kept nowhere.

    With --json: {"token_id", "name", "role", "state", "by", "created_at", "expires_at", "revoked_at", "token",
    "position"}. Exits 5 if a valid token has that name.

    \b
    Examples:
      steno token create --role read --name grafana
      steno token create --role submit --name site --expires 30d > site.token
      steno token create --role admin --json | jq -r .token
    """
    import getpass

    from cli.stores import writing
    from cli.wiring.logging_setup import log_for_data
    from projections.api.access.issuing import Issuer
    from projections.api.access.roles import Role

    log_for_data()
    with writing(app) as record:
        made, text, position = Issuer(record, app.clock, app.ids).create(
            role=Role(role), name=name, expires_at=expires, by=getpass.getuser()
        )
    if app.json:
        import msgspec

        emit_json(msgspec.to_builtins(made) | {"token": text, "position": position})
        return
    emit(text)
    until = "until it is revoked" if made.expires_at is None else f"until {_moment(made.expires_at)}"
    hint(f"token {made.token_id}, {made.name}: {made.role}, {until}; it is shown this once")


@command.command("list")
@click.option("--all", "-a", "everything", is_flag=True, help="Also those that expired or were revoked.")
@common
@pass_app
def listed(app: App, everything: bool) -> None:
    """List tokens, the newest first: who may do what, and until when.

    With --json: {"tokens": [{"token_id", "name", "role", "state", "by", "created_at", "expires_at", "revoked_at"}]};
    `state` is valid, expired or revoked.

    \b
    Examples:
      steno token list
      steno token list --all --json | jq -r '.tokens[] | [.token_id, .name, .state] | @tsv'
    """
    from cli.stores import reading
    from projections.api.access.issuing import listed as known
    from projections.api.access.token_file import TokenFile

    with reading(app, check=False) as record:
        file = TokenFile(record.store)
    found = known(file, app.clock.now())
    shown = [token for token in found if everything or token.state == "valid"]
    if app.json:
        emit_json({"tokens": shown})
        return
    if shown:
        emit(_table(shown))
    if not found:
        hint("no tokens; `steno token create --role read` makes one")
    elif len(shown) < len(found):
        hint(f"{len(found) - len(shown)} expired or revoked not shown; --all lists every token")


@command.command("revoke", short_help="End a token.")
@click.argument("token", metavar="TOKEN")
@common
@pass_app
def revoke(app: App, token: str) -> None:
    """End a token: its id, the beginning of it, or its name.

    A running service refuses it within a second, and ends the streams and sessions that were opened with it. With
    --json the token as `list` shows it, and "position" (null if it had been revoked before).

    \b
    Examples:
      steno token revoke site
      steno token revoke 5d21c0ffee17
    """
    import getpass

    from cli.stores import writing
    from cli.wiring.logging_setup import log_for_data
    from projections.api.access.issuing import Issuer

    log_for_data()
    with writing(app, create=False) as record:
        found, position = Issuer(record, app.clock, app.ids).revoke(token, by=getpass.getuser())
    if app.json:
        import msgspec

        emit_json(msgspec.to_builtins(found) | {"position": position})
        return
    said = "is revoked" if position is not None else f"had been revoked already, {_moment(found.revoked_at or '')}"
    emit(f"token {found.token_id}, {found.name}, {said}")


def _table(tokens: list[TokenObject]) -> str:
    from cli.render import paint

    colours = {"valid": "succeeded", "revoked": "failed", "expired": "stopped"}
    rows = [
        (
            token.token_id,
            token.name,
            token.role,
            paint.state(colours[token.state], token.state),
            token.by,
            _moment(token.created_at),
            "–" if token.expires_at is None else _moment(token.expires_at),
        )
        for token in tokens
    ]
    return paint.table(("ID", "NAME", "ROLE", "STATE", "BY", "MADE", "EXPIRES"), rows)


def _moment(text: str) -> str:
    from cli.render.words import moment
    from events.clock import parse_time

    return moment(parse_time(text))
