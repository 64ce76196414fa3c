"""`steno serve`: the HTTP service as a process of its own."""

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

    Nothing is polled and nothing is decided here: `steno record` or `steno up` does that beside it. What is asked for
    over HTTP (a run, a stop) is recorded, and whoever records the provider acts on it.

    On loopback, the default, no token is needed. Anywhere else each request needs one: `steno token create` makes it.
    Log lines below ERROR go to stdout, the others to stderr; with --json each is {"at", "level", "message"}.

    Ctrl-C exits 130, SIGTERM 0; requests under way may take 5 seconds to end. Exits 5 if the port is in use, 70 if the
    server ends by itself.

    \b
    Examples:
      steno serve --open
      steno serve --port 9000
      steno token create --role read --name grafana
      steno serve --host 0.0.0.0
    """
    from cli.serving import serve_until_stopped
    from cli.stores import writing
    from cli.wiring.logging_setup import log_for_daemon

    log_for_daemon(json=app.json)
    with writing(app) as record:  # made if it is not there, and looked at before anybody asks
        store = record.store
    serve_until_stopped(app, store, show=show)
