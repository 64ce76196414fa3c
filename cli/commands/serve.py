"""`steno serve`: the HTTP service as a separate process."""

import click

from cli.wiring.app import App
from cli.wiring.options import common, host_option, pass_app, port_option, project_option, provider_option


@click.command("serve")
@host_option
@port_option
@click.option("--open", "show", is_flag=True, help="Show the dashboard in your browser.")
@provider_option
@project_option
@common
@pass_app
def command(app: App, *, show: bool) -> None:
    """Serve the record over HTTP: dashboard, API, live stream and metrics.

    This process does not poll and decides nothing; run `steno record` or `steno up` beside it. Requests made over HTTP
    (a run, a stop) are recorded, and the process that records the provider acts on them.

    On loopback, the default, no token is needed. On any other address each request needs one: `steno token create`.
    Log lines below ERROR go to stdout, the others to stderr; with --json each is {"at", "level", "message"}.

    Ctrl-C exits 130, SIGTERM 0; open requests get 5 seconds to finish. Exits 5 if the port is in use, 70 if the
    server fails.

    \b
    Examples:
      steno serve --open
      steno serve --port 9000
      steno token create --role read --name grafana
      steno serve --host 0.0.0.0
    """
    from cli.wiring.http_service import serve_until_stopped
    from cli.wiring.logging_setup import log_for_daemon
    from cli.wiring.stores import writing

    log_for_daemon(json=app.json)
    with writing(app) as record:  # create it if missing; fail before serving if damaged
        store = record.store
    serve_until_stopped(app, store, show=show)
