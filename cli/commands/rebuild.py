"""`steno rebuild`: rebuild the read models."""

import click

from cli.wiring.app import App
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit, emit_json, progress


@click.command("rebuild")
@common
@pass_app
def command(app: App) -> None:
    """Rebuild the read models from the record.

    A new file is filled and then replaces the old one, so readers are not interrupted. You never have to do this:
    Steno rebuilds read models of another version by itself.

    With --json: {"runs", "position", "projections"}.

    \b
    Examples:
      steno rebuild
    """
    from cli.wiring.stores import reading
    from projections.models.projector import rebuilt
    from projections.store.read_models import ReadModels

    with reading(app) as record, progress("reading the record") as advance:
        position = record.head().position
        runs = rebuilt(record, progress=advance)
        path = ReadModels(record.store)
    if app.json:
        emit_json({"runs": runs, "position": position, "projections": str(path)})
        return
    from cli.render.words import count

    emit(f"{count(runs, 'run')} up to position {position:,} in {path}")
