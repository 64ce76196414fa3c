"""The output of a run, piece by piece, attempt after attempt."""

import base64
import binascii
from collections.abc import Iterator

import msgspec

from steno.engine.errors import ProviderError, ProviderUnreachable
from steno.engine.providers.dstack.client import FINISHED, Client, time_of
from steno.engine.providers.dstack.lenient import at, objects
from steno.engine.providers.dstack.run_reading import facts_in
from steno.engine.state.facts import firing_row
from steno.events.clock import SECOND, backoff, format_time

PAGE = 1000  # pieces of a page; dstack's limit
EVERY = 1 * SECOND  # how long to wait for more, following
UNHURRIED = 30 * SECOND  # likewise, for a reader that can wait
PATIENCE = 10  # failures in a row that following bears: about three minutes; a restart takes 17 s
EMPTY_PAGES = 100  # pages in a row without a new piece that end a log, whatever `next_token` says
_OVERLAP = 1_000  # microseconds read again: log stores keep milliseconds, so pieces may share one


class _Place(msgspec.Struct):
    """How far one submission's output has been read."""

    newest: int | None = None
    seen: list[tuple[int, str]] = []  # pieces read within the overlap before `newest`


def logs(client: Client, provider_id: str, *, follow: bool, every: int = EVERY) -> Iterator[tuple[int, bytes]]:
    """The output of every submission of every job with its times, in order of attempt, replica and job.

    With `follow`, until the run has ended, over a restart of the server too: once the server has answered, it raises
    only after some minutes without it. Errors as in `Provider`.
    """
    places: dict[str, _Place] = {}
    failures = 0
    while True:
        try:
            run = client.run({"id": firing_row(provider_id)}, "read the output")
            name, submissions, ended = at(run, "run_spec", "run_name"), _submissions(run), run.get("status") in FINISHED
            if "#" in provider_id:
                newest = submissions[-1:]
                submissions = _submissions(run, int(provider_id.partition("#")[2]))
                ended = ended or run.get("status") == "pending" or submissions[-1:] != newest
            for submission in submissions:
                place = places.setdefault(submission, _Place())
                yield from _further(client, str(name), submission, place)
        except (ProviderUnreachable, ProviderError):
            failures += 1
            if not follow or not places or failures > PATIENCE:
                raise
            client.clock.sleep(backoff(failures, first=SECOND, most=30 * SECOND))
            continue
        if ended or not follow:
            return
        failures = 0
        client.clock.sleep(every)


def _further(client: Client, name: str, submission: str, place: _Place) -> Iterator[tuple[int, bytes]]:
    token: str | None = None
    start = None if place.newest is None else format_time(place.newest - _OVERLAP)
    again = list(place.seen)
    empty = 0
    while empty < EMPTY_PAGES:
        empty += 1
        request = {"run_name": name, "job_submission_id": submission, "limit": PAGE}
        request |= {"start_time": start} if start is not None else {}
        request |= {"next_token": token} if token is not None else {}
        page = client.expect(client.address.path("logs/poll"), request, what="read the output").json()
        pieces = at(page, "logs")
        if not isinstance(pieces, list):
            raise client.nonsense("read the output", "log")
        for piece in pieces:
            key = moment, message = _key(piece)
            if key in again:
                again.remove(key)
                continue
            place.newest = moment if place.newest is None else max(place.newest, moment)
            place.seen = [*(piece_key for piece_key in place.seen if piece_key[0] >= place.newest - _OVERLAP), key]
            empty = 0
            yield moment, _decoded(message)
        following = at(page, "next_token")
        if not isinstance(following, str) or following == token:
            return
        token = following


def _key(piece: object) -> tuple[int, str]:
    moment, message = time_of(at(piece, "timestamp")), at(piece, "message")
    if moment is not None and isinstance(message, str):
        return moment, message
    raise ProviderError("cannot read the output: a piece of it has no time or no text")


def _decoded(message: str) -> bytes:
    try:
        return base64.b64decode(message, validate=True)
    except (binascii.Error, ValueError):
        return message.encode()


def _submissions(run: dict[str, object], firing: int | None = None) -> list[str]:
    """The ids of all submissions in order of attempt, replica and job; of a schedule, those of one firing."""
    numbers = {attempt.num for attempt in facts_in(run).attempts if attempt.firing == firing}
    ordered: list[tuple[int, int, int, str]] = []
    for job in objects(run.get("jobs")):
        spec = job.get("job_spec")
        for submission in objects(job.get("job_submissions")):
            number = _int(submission, "submission_num")
            if firing is None or number in numbers:
                ordered.append((number, _int(spec, "replica_num"), _int(spec, "job_num"), str(submission.get("id"))))
    return [identity for *_, identity in sorted(ordered)]


def _int(mapping: object, key: str) -> int:
    value = at(mapping, key)
    return value if isinstance(value, int) else 0
