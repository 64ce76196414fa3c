"""The samples that a dstack server keeps: for an hour of a run that goes on, for a week of an ended one."""

import re
from threading import Lock
from typing import Final
from urllib.parse import quote

from steno.engine.errors import RunNotFound
from steno.engine.providers.dstack.client import Client, time_of
from steno.engine.providers.dstack.lenient import at, objects
from steno.engine.providers.dstack.run_reading import facts_in
from steno.engine.state.samples import MOST_TIMES, TASK, Sample, whole
from steno.events.clock import SECOND, format_time

PERIOD: Final = 10 * SECOND  # the server asks all machines of a run once in it, at about one moment
_BELIEVED: Final = 3600 * SECOND  # how long the jobs of a run are kept: services start and stop some
_MOST: Final = 10_000  # runs whose jobs are kept
_PAUSE: Final = SECOND // 2  # between two requests about one run
_WHAT: Final = "read the metrics"
_OF_GPU: Final = re.compile(r"(gpu_util_percent|gpu_memory_usage_bytes)_gpu([0-9]{1,4})")
_FIELDS: Final = {
    "cpu_usage_percent": "use",
    "gpu_util_percent": "use",
    "memory_working_set_bytes": "memory",
    "gpu_memory_usage_bytes": "memory",
    "memory_total_bytes": "memory_total",
}


class JobMetrics:
    """Asks for the samples of runs, one question at a time."""

    def __init__(self, client: Client) -> None:
        """`client`: a connection that nobody else uses."""
        self.client = client
        self._lock = Lock()
        self._jobs: dict[str, tuple[int, list[tuple[int, int]]]] = {}  # by run: when asked; replicas and jobs

    def samples(self, provider_id: str, name: str, since: int) -> list[Sample]:
        """The samples after `since` of the newest submission of each job. Errors as in `Provider`."""
        with self._lock:
            answers = list[object]()
            for replica, job in self._jobs_of(provider_id):
                if answers:
                    self.client.clock.sleep(_PAUSE)
                # of this run by its id: a later run can have its name
                query = {"run_id": provider_id.partition("#")[0], "replica_num": str(replica), "job_num": str(job)}
                query |= {"limit": str(MOST_TIMES)} | ({"after": format_time(since)} if since else {})
                answer = self.client.get(self.client.address.path(f"metrics/job/{quote(name, safe='')}"), query)
                if not answer.ok:
                    raise self.client.trouble(answer, _WHAT, gone=RunNotFound)
                answers.append(answer.json())
            return read_samples(answers)

    def _jobs_of(self, provider_id: str) -> list[tuple[int, int]]:
        """The jobs of a run; of a firing of a schedule, those whose newest submission it has: the server gives no other
        samples. A newer submission has none for its first seconds.
        """
        row, _, firing = provider_id.partition("#")
        now = self.client.clock.now()
        then, jobs = self._jobs.get(provider_id, (0, []))
        if firing or not now - _BELIEVED < then <= now:
            facts = facts_in(self.client.run({"id": row}, _WHAT))
            self.client.clock.sleep(_PAUSE)
            there = [job for job in facts.jobs if not firing or (job.newest and str(job.newest.firing) == firing)]
            jobs = [(job.replica_num, job.job_num) for job in there]
            if len(self._jobs) >= _MOST:
                self._jobs.clear()
            self._jobs[provider_id] = now, jobs
        return jobs


def read_samples(answers: list[object]) -> list[Sample]:
    """The samples in the answers about each job, without values and times that are missing or cannot be read. Of
    several jobs, the machine's number stands before a GPU's, and the task's processes are added up for each period in
    which every job has a sample of them.
    """
    rows: dict[tuple[str, int], dict[str, dict[int, int]]] = {}  # by device and time; each field by job
    for job, answer in enumerate(answers):
        machine, gpu_memory = f"{job}:" if len(answers) > 1 else "", None
        for metric in objects(at(answer, "metrics")):
            name, times, values = metric.get("name"), metric.get("timestamps"), metric.get("values")
            if not isinstance(name, str) or not isinstance(times, list) or not isinstance(values, list):
                continue
            of_gpu = _OF_GPU.fullmatch(name)
            key, device = (name, TASK) if of_gpu is None else (of_gpu[1], f"{machine}{int(of_gpu[2])}")
            for moment, value in zip(map(time_of, times), map(whole, values), strict=False):
                if moment is None or value is None:
                    continue
                number = (value + (1 << 19)) >> 20 if key.endswith("_bytes") else value
                if key == "gpu_memory_total_bytes":
                    gpu_memory = number
                elif key in _FIELDS:
                    row = device, moment - (moment % PERIOD if machine and device == TASK else 0)
                    rows.setdefault(row, {}).setdefault(_FIELDS[key], {})[job] = number
        for (device, _), fields in rows.items():
            if gpu_memory is not None and device != TASK and device.startswith(machine):
                fields["memory_total"] = {job: gpu_memory}
    samples = list[Sample]()
    for (device, moment), fields in rows.items():
        jobs = len(answers) if device == TASK else 1
        added = {name: sum(each.values()) for name, each in fields.items() if len(each) == jobs}
        samples += [Sample(at=moment, device=device, **added)] if added else []
    return samples
