"""A provider of Steno in one file: each task is a shell process in a folder of its own, on a machine of its own."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from steno.engine.errors import NameInUse, ProviderUnreachable, RunNotFound, TaskInvalid, VmInUse, VmNotFound
from steno.engine.state.facts import AttemptFacts, JobFacts, RunFacts, VmFacts
from steno.engine.providers.base import Named, Provider, StopTarget, Submission, Submitted
from steno.engine.providers.kind import Option, ProviderKind
from steno.engine.state.reading import Listing, Reading, Scope
from steno.engine.settings.values import Block, Known
from steno.engine.settings.settings import Settings
from steno.engine.settings.values import price
from steno.engine.state.states import Reason, State, VmReason, VmState
from steno.events.clock import Clock, Ids
from steno.events.poll import Poll
from steno.events.shape.shape import BodyShape
from steno.events.store.store import Store

SCRIPT = """(
mkdir started 2>/dev/null || exit 0
echo $$ > group
trap 'echo stopped > end; exit' TERM
nice -n "$NICE" sh -c "$COMMAND" > out 2>&1
echo $? > end
) < /dev/null > /dev/null 2>&1 &"""
CAUSES = {"": None, "0": Reason.EXIT_ZERO, "stopped": Reason.STOPPED_BY_USER, "aborted": Reason.ABORTED_BY_USER}
LISTINGS = {"/example/jobs": Listing.RUNS, "/example/machines": Listing.VMS}


class ExampleReading(Reading):
    """Answers are JSON lists of rows, as `ExampleProvider._row` makes them."""

    makes_all_vms = True

    def scope(self, path: str, req: bytes) -> Scope | None:
        if path not in LISTINGS:
            return None
        project = json.loads(req)["folder"]
        return Scope(provider="example", source=f"example/{project}", listing=LISTINGS[path], watched=True)

    def shape(self, path: str, req: bytes) -> BodyShape | None:
        return BodyShape(kind="run" if path == "/example/jobs" else "vm", items="[]", identity="provider_id")

    def runs(self, item: bytes, scope: Scope) -> tuple[RunFacts, ...]:
        row = json.loads(item)
        end, exit_status = row["end"], int(row["end"]) if row["end"].isdecimal() else None
        begun = {"state": State.RUNNING, "submitted_at": row["created"], "status": end or "running"}
        over = {"finished_at": row["finished_at"], "over": bool(end), "exit_status": exit_status}
        job = AttemptFacts(hostname=row["hostname"], **begun, **over)
        run = RunFacts(
            **{key: row[key] for key in ("provider_id", "name", "project")},
            **begun,
            mark=row["provider_id"],
            final=bool(end),
            failed=bool(exit_status),
            cause=CAUSES.get(end, Reason.EXIT_NONZERO),
            jobs=(JobFacts(attempts=(job,)),),
        )
        return (run,)

    def vm(self, item: bytes, scope: Scope) -> VmFacts:
        row = json.loads(item)
        state = VmState.TERMINATED if row.pop("end") else VmState.BUSY
        return VmFacts(state=state, cause=VmReason.STOPPED_BY_USER, **row)


class ExampleProvider(Provider):
    """The jobs of one folder. A job's own folder is named by its run id."""

    name = "example"
    nearby = True

    def __init__(self, folder: Path, hourly: int, clock: Clock) -> None:
        self.project = folder.name
        self.source = f"example/{folder.name}"
        self._folder, self._hourly, self._clock = folder, hourly, clock

    def poll(self, follow: Collection[str], *, since: int | None) -> Iterator[Poll]:
        for path in LISTINGS:
            started, req = self._clock.now(), json.dumps({"folder": self.project}).encode()
            try:
                body, error = json.dumps([self._row(job) for job in self._jobs()]).encode(), None
            except ProviderUnreachable as problem:
                body, error = None, str(problem)
            yield Poll(
                source=self.source,
                path=path,
                req=req,
                started_at=started,
                observed_at=self._clock.now(),
                status=200 if body else None,
                error=error,
                body=body,
                answered=error is None,
                complete=error is None,
            )

    def submit(self, submission: Submission) -> Submitted:
        job, task = self._folder / submission.run_id, submission.configuration
        if any(run.provider_id != job.name and not run.ended for run in self.find(submission.name, 0)):
            raise NameInUse(f"an active job is named {submission.name}; stop it first, or choose another name")
        if not task.get("commands"):
            raise TaskInvalid("`commands` is empty: write what to run")
        variables = {"COMMAND": " && ".join(task["commands"]), "NICE": str(task.get("nice", 0))}
        try:
            job.mkdir(parents=True, exist_ok=True)
            (job / "name").write_text(submission.name)
            # a second process of the same job ends at `mkdir started`: so the job is started once, whoever crashes
            environ = os.environ | task["env"] | variables
            subprocess.run(["sh", "-c", SCRIPT], cwd=job, env=environ, start_new_session=True, check=True)
            while not (job / "out").exists():
                time.sleep(0.01)
        except OSError as error:
            raise ProviderUnreachable(f"cannot write {job}: {error.strerror}", sent=False) from None
        return Submitted(provider_id=job.name, name=submission.name)

    def find(self, name: str, since: int) -> tuple[Named, ...]:
        rows = (row for row in map(self._row, self._jobs()) if row["name"] == name and row["created"] >= since)
        return tuple(Named(provider_id=(job := row["provider_id"]), mark=job, ended=bool(row["end"])) for row in rows)

    def stop(self, stop: StopTarget) -> None:
        job = self._job(stop.provider_id, RunNotFound)
        if not (job / "end").exists():
            os.killpg(int((job / "group").read_text()), signal.SIGKILL if stop.abort else signal.SIGTERM)
            if stop.abort:
                (job / "end").write_text("aborted")

    def stop_vm(self, provider_id: str) -> None:
        if not (self._job(provider_id, VmNotFound) / "end").exists():
            raise VmInUse(f"machine {provider_id} has a job on it; stop the job")

    def logs(self, provider_id: str, name: str, *, follow: bool) -> Iterator[bytes]:
        job = self._job(provider_id, RunNotFound)
        with (job / "out").open("rb") as out:
            while True:
                ended = (job / "end").exists()
                yield out.read()
                if ended or not follow:
                    return
                self._clock.sleep(50_000)

    def _jobs(self) -> list[Path]:
        try:
            groups = list(self._folder.glob("*/group")) if self._folder.exists() else []
        except OSError as error:
            raise ProviderUnreachable(f"cannot read {self._folder}: {error.strerror}") from None
        return [file.parent for file in sorted(groups, key=lambda file: -file.stat().st_mtime_ns)]  # newest first

    def _job(self, provider_id: str, missing: type[Exception]) -> Path:
        if (folder := next((job for job in self._jobs() if job.name == provider_id), None)) is None:
            raise missing(f"there is no job {provider_id}")
        return folder

    def _row(self, job: Path) -> dict[str, object]:
        end = (job / "end").read_text().strip() if (job / "end").exists() else ""
        return {
            "provider_id": job.name,
            "name": (job / "name").read_text(),
            "project": self.project,
            "hostname": f"sh-{job.name[:8]}",
            "created": (job / "group").stat().st_mtime_ns // 1000,
            "finished_at": (job / "end").stat().st_mtime_ns // 1000 if end else None,
            "end": end,
            "price": self._hourly,
        }


class ExampleKind(ProviderKind):
    """The provider that the entry point names."""

    name = "example"
    summary = "shell processes in a folder"
    settings = Block(
        provider="example",
        known=(
            Known(name="example.folder", variables=("STENO_EXAMPLE_FOLDER",), default="jobs", help="The jobs' folder."),
            Known(name="example.price", default="0", help="Price of a machine in dollars per hour.", parse=price),
        ),
    )
    options = (Option(flag="--nice", field="nice", metavar="N", help="Lower the job's priority: 0 to 19."),)

    def reading(self) -> ExampleReading:
        return ExampleReading()

    def project(self, settings: Settings) -> str:
        return Path(settings.value("example.folder") or "").name

    def open(self, settings: Settings, *, clock: Clock, ids: Ids, record: Store | None) -> ExampleProvider:
        folder = Path(settings.value("example.folder") or "").absolute()
        return ExampleProvider(folder, price(settings.value("example.price") or "0"), clock)


KIND = ExampleKind()
