"""`steno workers`: which process holds which source."""

from typing import TYPE_CHECKING

from cli.wiring.app import App, steno_command
from cli.wiring.output import hint, show
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from events.store.holder import Holder
    from events.store.record import Record


@steno_command("workers")
def workers_command(app: App) -> None:
    """List the processes that act on this record: which holds which source, and until when.

    A source is recorded, and acted on, by the one process that holds its lease. `notices` is the lease of the process
    that sends notices, `sharing …` that of a process that shares its sources with others (`steno record --source`).

    On PostgreSQL a holder renews its lease every 1.5 s. When it dies or is cut off, the lease ends within 6 s and
    another process takes over with the next token; an append with an older token is refused. On SQLite a lease ends
    with its process.

    A process has another worker id after each start. SINCE is when it took the lease, by its own clock.

    A lease that nobody holds is listed while its source is one: it has answered a poll.

    With --json: {"leases": [{"lease", "held", "process", "host", "worker", "token", "since", "seconds_left"}]}.
    `seconds_left` is null where a lease has no end (SQLite), and 0 or less when it has ended.

    \b
    Examples:
      steno workers
      steno workers --record postgresql://steno@db.example.org/steno
      steno workers --json | jq '.leases[] | select(.held | not) | .lease'
    """
    from cli.render import paint, words
    from events.store.holder import SEATS
    from events.store.store import store_at

    leases = [one for one in store_at(app.settings.record).leases() if one.held or not one.name.startswith(SEATS)]
    with app.reading(check=False) as record:
        found = [one for one in leases if one.held or "/" not in one.name or _answered(record, one.name)]
    head = ("LEASE", "STATE", "PROCESS", "HOST", "SINCE", "TOKEN", "WORKER")
    rows = [
        (one.name, _state(one), str(one.process), one.host, words.moment(one.since), str(one.token), one.worker[:8])
        for one in found
    ]
    if found or app.json:
        show(
            app,
            {"leases": [_object(one) for one in found]},
            paint.fitted(head, rows, columns(), right=(2, 5), spare=(6, 5, 4)),
        )
    else:
        hint("no process has acted on this record yet; `steno up` records a provider")
    free = [one.name for one in found if not one.held and "/" in one.name]
    if free and not app.json:
        taken = " ".join(f"--source {name}" for name in free)
        hint(f"nobody acts on {', '.join(free)}; `steno up {taken}` takes over")


def _answered(record: "Record", source: str) -> bool:
    """Whether a poll of it was answered: not of a misspelled project, nor of a provider that is not here."""
    found = record.read(stream=f"source/{source}", types={"PollRecorded"}, limit=1)
    return next(iter(found), None) is not None


def _state(one: "Holder") -> str:
    from cli.render.words import duration
    from events.clock import SECOND

    if one.seconds_left is None:
        return "held until its process ends"
    if one.held:
        return f"held, ends in {one.seconds_left:.1f} s unless renewed"
    return "free" if one.seconds_left == 0 else f"free since {duration(round(-one.seconds_left * SECOND))}"


def _object(one: "Holder") -> dict[str, object]:
    from events.clock import format_time

    return {
        "lease": one.name,
        "held": one.held,
        "process": one.process,
        "host": one.host,
        "worker": one.worker,
        "token": one.token,
        "since": None if one.since is None else format_time(one.since),
        "seconds_left": one.seconds_left,
    }
