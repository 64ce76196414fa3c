"""The default provider: tasks as supervised processes of this machine."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from steno.engine.errors import ProviderError, TaskInvalid
from steno.engine.providers.base import Entrance, Named, Provider, StopTarget, Submission, Submitted, Way
from steno.engine.providers.local.durable import is_locked, write_json
from steno.engine.providers.local.listing import Lister, question
from steno.engine.providers.local.placement import LocalOffer, wanted
from steno.engine.providers.local.reading import MACHINES, RUNS
from steno.engine.providers.local.state import Accepted, RunState, close_lost, read_accepted, read_output, read_state
from steno.engine.providers.local.store import RUN_ID, ClaimedRun, RunFolders
from steno.engine.providers.local.task import LocalTask, local_task
from steno.engine.providers.registry import READINGS
from steno.engine.providers.sample_text import samples_of
from steno.engine.state.samples import Sample
from steno.events.clock import Clock, Ids
from steno.events.poll import Poll

_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from steno.engine.providers.local.supervisor import main; main()"
_IMPORT_FOLDER = str(Path(__file__).parents[4])
_TIMEOUT = 30  # seconds; a start takes tens of milliseconds


def launch(folder: Path, gate: Path, taken: ClaimedRun, task: LocalTask, output_limit: int) -> None:
    """Start a supervisor that holds the locks; returns when `started.json` is durable and the command was tried.

    It starts a machine to be kept too, so that both exist or neither; a run that waits for its machine is only
    announced. The plan has the secrets, so it goes through a pipe: never a file, an argument or the environment.

    Raises ProviderError if it did not start; the same submission may be made again.
    """
    machine = taken.accepted.machine
    plan = {
        **msgspec.to_builtins(task),
        "output_limit": output_limit,
        "boot": machine.boot if taken.machine is None and machine is not None else 0,
        "machine": None if taken.machine is None else str(taken.machine),
        "busy": taken.locks.get("busy"),
        "life": taken.locks.get("life"),
        "gate": str(gate),
    }
    complaints = os.open(folder / "supervisor.err", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            # isolated and without site: the user's PYTHON* or .pth files cannot change or slow it
            [sys.executable, "-I", "-S", "-c", _PROGRAM, _IMPORT_FOLDER, str(folder), str(taken.locks["run"])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            cwd="/",
            env={name: value for name in ("LD_LIBRARY_PATH",) if (value := os.environ.get(name))},
            start_new_session=True,
            pass_fds=tuple(taken.locks.values()),
        )
        try:
            answer, _ = process.communicate(json.dumps(plan).encode(), timeout=_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise ProviderError(
                f"the supervisor of {folder.name} does not answer; see {folder / 'supervisor.err'}"
            ) from None
    except OSError as error:
        raise ProviderError(f"cannot start a process on this machine: {error.strerror}") from None
    finally:
        os.close(complaints)
    # if the supervisor died after announcing, the next poll reports the run's end
    if answer != b"started" and not (folder / "started.json").exists():
        why = (folder / "supervisor.err").read_text(errors="replace").strip().splitlines()
        raise ProviderError(f"the supervisor of {folder.name} did not start: {why[-1] if why else 'no reason given'}")


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
        """Start the task, once: of a run id that was started before, the run is returned.

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
            _log.warning("%s: this machine ignores %s", submission.name, ", ".join(task.ignored))
        return _submitted(taken.accepted)

    def find(self, name: str, since: int) -> tuple[Named, ...]:
        """The runs of that name accepted since then, newest first, except those whose submitter died first."""
        runs = []
        try:
            for run_id in self._store.run_ids():
                accepted = read_accepted(self._store.folder(run_id))
                if accepted is None or accepted.name != name or accepted.at < since:
                    continue
                state = self._store.settled(run_id)
                if state is not None:
                    ended, mark = state.ended is not None, accepted.mark or run_id
                    runs.append(Named(provider_id=run_id, mark=mark, ended=ended, submitted_at=accepted.at))
        except OSError as error:
            raise ProviderError(f"cannot read {error.filename or self._store.root}: {error.strerror}") from None
        return tuple(sorted(runs, key=lambda run: run.submitted_at or 0, reverse=True))

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

    def samples(self, provider_id: str, name: str, *, since: int) -> tuple[str, list[Sample]] | None:
        """The samples of this machine's GPUs and of the run's processes."""
        self._store.known(provider_id, name)
        return samples_of(self._store.samples(provider_id), since)

    def reach(self, provider_id: str, port: int) -> Way:
        return Way("127.0.0.1", port)

    def entrance(self, provider_id: str, name: str, port: int | None) -> Entrance:
        return Entrance(address=None if port is None else f"http://127.0.0.1:{port}")

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
