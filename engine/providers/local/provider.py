"""The default provider: tasks as supervised processes of this machine."""

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from engine.errors import ProviderError, TaskInvalid
from engine.providers.base import Named, Provider, StopTarget, Submission, Submitted, Way
from engine.providers.local.durable import is_locked, write_json
from engine.providers.local.launch import launch
from engine.providers.local.listing import Lister, question
from engine.providers.local.placement import LocalOffer, wanted
from engine.providers.local.reading import MACHINES, RUNS
from engine.providers.local.state import Accepted, RunState, close_lost, read_accepted, read_output, read_state
from engine.providers.local.store import RUN_ID, RunFolders
from engine.providers.local.task import local_task
from engine.providers.readings import READINGS
from events.clock import Clock, Ids
from events.poll import Poll

DEFAULT_OUTPUT_LIMIT = 1 << 30  # bytes of output kept of one run (1 GiB)

_log = logging.getLogger(__name__)


class LocalProvider(Provider):
    """Runs tasks on this machine. All state is in one folder per run, so every process sees the same runs."""

    name = "local"
    nearby = True

    def __init__(
        self,
        state: Path,
        *,
        clock: Clock,
        ids: Ids,
        host: str,
        environment: Mapping[str, str],
        output_limit: int = DEFAULT_OUTPUT_LIMIT,
        offer: LocalOffer | None = None,
    ) -> None:
        """A provider over the folder `state`, made at the first submission and private to its owner.

        `host` is for `source`; a run gets `task.INHERITED` of `environment`; `output_limit` is in bytes a run, and a
        line marks the cut; `offer` describes new machines (None: free, no boot, no GPU).
        """
        self.source = f"local/{host}"
        self.project = host
        self._store = RunFolders(state, clock)
        self._listing = Lister(self._store, host, clock)
        self._offer = offer or LocalOffer()
        self._clock = clock
        self._ids = ids
        self._environment = environment
        self._output_limit = output_limit

    def poll(self, follow: Collection[str], *, since: int | None) -> Iterator[Poll]:
        """The runs of this machine, then its machines in the light of these runs."""
        started_at = self._clock.now()
        for path, read in ((RUNS, self._listing.runs), (MACHINES, self._listing.machines)):
            try:
                page = msgspec.structs.asdict(read(follow, since))
                answer = {**page, "status": 200, "answered": True, "sweep": self._ids.new().replace("-", "")}
            except OSError as problem:
                error = f"cannot read {problem.filename or self._store.root}: {problem.strerror}"
                answer = {"req": question(self.project), "status": None, "answered": False, "error": error}
            now = self._clock.now()
            yield Poll(source=self.source, path=path, started_at=started_at, observed_at=now, **answer)
            if not answer["answered"]:
                return

    def submit(self, submission: Submission) -> Submitted:
        """Start the task, once: a run id that was started before is returned as it is.

        Without capacity the run has failed at once; a retry under the same run id gets an id of its own.
        """
        if not RUN_ID.fullmatch(submission.run_id):
            raise TaskInvalid(f"{submission.run_id!r} cannot be a run id")
        base = Path(submission.base).absolute() if submission.base is not None else Path.cwd()
        labelled = self._offer.gpu is not None
        task = local_task(submission.configuration, base=base, inherited=self._environment, labelled=labelled)
        terms = wanted(submission, READINGS.terms(self.name, msgspec.json.encode(task.configuration), ""))
        with self._writing():
            taken = self._store.take(submission.run_id, submission.name, task, terms, self._offer)
            if isinstance(taken, RunState):
                return _submitted(taken.accepted)
            with taken.held:
                launch(self._store.folder(taken.accepted.run_id), self._store.gate, taken, task, self._output_limit)
        if task.ignored:
            _log.warning("%s runs on this machine as it is; ignored: %s", submission.name, ", ".join(task.ignored))
        return _submitted(taken.accepted)

    def find(self, name: str, since: int) -> tuple[Named, ...]:
        """The runs of that name accepted since then, newest first, except those whose submitter died first."""
        found = []
        try:
            for run_id in self._store.run_ids():
                asked = read_accepted(self._store.folder(run_id))
                if asked is None or asked.name != name or asked.at < since:
                    continue
                state = self._store.settled(run_id)
                if state is not None:
                    ended, mark = state.ended is not None, asked.mark or run_id
                    found.append(Named(provider_id=run_id, mark=mark, ended=ended, submitted_at=asked.at))
        except OSError as error:
            raise ProviderError(f"cannot read {error.filename or self._store.root}: {error.strerror}") from None
        return tuple(sorted(found, key=lambda one: one.submitted_at or 0, reverse=True))

    def stop(self, stop: StopTarget) -> None:
        """SIGTERM to all processes of the run, SIGKILL after its `stop_duration` (10 s); `abort` is SIGKILL at once."""
        state = self._store.known(stop.provider_id, stop.name)
        if state.ended is not None or (state.stopping is not None and (state.stopping.abort or not stop.abort)):
            return
        folder = self._store.folder(stop.provider_id)
        with self._writing():
            write_json(folder / "stop.json", {"at": self._clock.now(), "abort": stop.abort})
            if not is_locked(folder) and (now := read_state(folder)) is not None:
                close_lost(folder, now, self._clock.now())

    def stop_vm(self, provider_id: str) -> None:
        """Tell a warm machine without a run to end; that takes a fraction of a second."""
        with self._writing():
            self._store.end_machine(provider_id)

    def logs(self, provider_id: str, name: str, *, follow: bool) -> Iterator[bytes]:
        """Standard output and standard error as one stream, in the order written."""
        self._store.known(provider_id, name)
        return read_output(self._store.folder(provider_id), follow=follow, clock=self._clock)

    def reach(self, provider_id: str, port: int) -> Way:
        return Way("127.0.0.1", port)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = error.filename or self._store.root
            raise ProviderError(
                f"cannot write {where}: {error.strerror}; make room or choose another --record"
            ) from None


def _submitted(accepted: Accepted) -> Submitted:
    return Submitted(provider_id=accepted.run_id, name=accepted.name, submitted_at=accepted.at)
