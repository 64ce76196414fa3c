"""What one observation says, in plain values: the output of a reading, the input of every rule.

A reading never raises on what it does not know: an unknown word is kept as it came, a value of the wrong type reads
as None and its path is listed in `drift`. Times are microseconds since the epoch, UTC, as the provider gave them;
money is micro-dollars.
"""

import msgspec


class SubmissionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One submission of one job (dstack's `job_submissions[i]`)."""

    id: str | None = None
    num: int = 0
    """`submission_num`: counts the provider's retries from 0."""
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    exit_status: int | None = None
    submitted_at: int | None = None
    finished_at: int | None = None
    hostname: str | None = None
    price: int | None = None
    """Micro-dollars an hour of the machine it runs on, where the provider says."""
    blocks: int | None = None
    """How many of the machine's blocks it has (a machine can be shared), where the provider says."""


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a run, with its newest submission (the highest `submission_num`)."""

    replica_num: int = 0
    job_num: int = 0
    retry_on: frozenset[str] = frozenset()
    """Events the task's own retry policy covers: `no-capacity`, `interruption`, `error`."""
    newest: SubmissionFacts | None = None
    submissions: tuple[SubmissionFacts, ...] = ()
    """Every submission the answer carried, in order of `num`."""


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One run as one poll showed it."""

    provider_id: str
    name: str | None = None
    project: str | None = None
    user: str | None = None
    kind: str | None = None
    """`task`, `dev-environment`, `service`, or a word we do not know."""
    status: str | None = None
    message: str | None = None
    reason: str | None = None
    deleted: bool = False
    mark: str | None = None
    """The run id that whoever submitted it told the provider to keep with it; None: it carries none."""
    submitted_at: int | None = None
    jobs: tuple[JobFacts, ...] = ()
    """In order of (replica_num, job_num)."""
    latest: SubmissionFacts | None = None
    """`latest_job_submission`: the newest submission of the *first* job only; what the first pollers read."""
    drift: tuple[str, ...] = ()
    """Paths whose value had an unknown word or the wrong type."""


class VmEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A status change of a machine that the provider dates in its own log (dstack's `events/list`)."""

    provider_id: str
    at: int
    before: str
    """Statuses, in the words of `VmFacts.status`."""
    after: str


class VmFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One machine as one poll showed it (dstack's instance; the local provider speaks the same words)."""

    provider_id: str
    name: str | None = None
    """`lab-fleet-0`: given again to the next machine, so never a key."""
    project: str | None = None
    fleet: str | None = None
    instance_num: int | None = None
    hostname: str | None = None
    """None until it has an address; the only link from a run to its machine."""
    backend: str | None = None
    region: str | None = None
    status: str | None = None
    unreachable: bool = False
    reason: str | None = None
    message: str | None = None
    created: int | None = None
    finished_at: int | None = None
    gives_end: bool = True
    """The server has a `finished_at` for machines; 0.19.37 has none."""
    price: int | None = None
    """Micro-dollars an hour of the whole machine; None: a placeholder, no machine."""
    spot: bool | None = None
    instance_type: str | None = None
    gpu: str | None = None
    """Model of its GPUs, as the provider spells it; None: it has none."""
    gpu_count: int = 0
    gpu_memory_mib: int | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    disk_mib: int | None = None
    total_blocks: int | None = None
    busy_blocks: int | None = None
    drift: tuple[str, ...] = ()
    """Paths whose value had an unknown word or the wrong type."""
