"""The reading of a run whose shape is not the one we know: each value that fits is taken, each that does not is named.

Doubt never ends a run: a job or submission that is no object stays in the list as one that says nothing, and a retry
policy we cannot read counts as covering everything.
"""

import msgspec

from engine.providers.dstack import words
from engine.providers.dstack.loose import FieldReader
from engine.providers.dstack.run_reading import (
    ConfigurationWire,
    JobWire,
    MachineWire,
    OfferWire,
    RetryWire,
    RunSpecWire,
    RuntimeWire,
    RunWire,
    SpecWire,
    SubmissionWire,
    TagsWire,
)


def lenient_run(item: bytes) -> tuple[RunWire, tuple[str, ...]]:
    """As `run_reading.decode_run`, for an item of any shape.

    Raises:
        ValueError: the item is no JSON object with an id.
    """
    try:
        value = msgspec.json.decode(item)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError("a run is not valid JSON") from error
    if not isinstance(value, dict) or not isinstance(value.get("id"), str) or not value["id"]:
        raise ValueError("a run is not a JSON object with an id")
    drift: list[str] = []
    run = FieldReader(value, "", drift)
    spec = run.inner("run_spec")
    configuration = spec.inner("configuration") if spec is not None else None
    tags = configuration.inner("tags") if configuration is not None else None
    latest = run.inner("latest_job_submission")
    wire = RunWire(
        id=value["id"],
        run_spec=RunSpecWire(
            run_name=spec.text("run_name") if spec is not None else None,
            configuration=ConfigurationWire(
                type=configuration.text("type") if configuration is not None else None,
                tags=TagsWire(mark=tags.text(words.MARK)) if tags is not None else None,
            ),
        ),
        jobs=[_job(job) for job in run.items("jobs")],
        project_name=run.text("project_name"),
        user=run.text("user"),
        status=run.text("status"),
        status_message=run.text("status_message"),
        termination_reason=run.text("termination_reason"),
        deleted=run.flag("deleted"),
        submitted_at=run.text("submitted_at"),
        latest_job_submission=_submission(latest) if latest is not None else None,
    )
    return wire, tuple(dict.fromkeys(drift))


def _job(job: FieldReader | None) -> JobWire:
    if job is None:
        return JobWire(job_spec=SpecWire(), job_submissions=[])
    spec = job.inner("job_spec")
    if spec is None:
        return JobWire(job_spec=SpecWire(retry=_any_event()), job_submissions=_submissions(job))
    return JobWire(
        job_spec=SpecWire(
            replica_num=spec.whole("replica_num") or 0, job_num=spec.whole("job_num") or 0, retry=_retry(spec)
        ),
        job_submissions=_submissions(job),
    )


def _retry(spec: FieldReader) -> RetryWire | None:
    if spec.value.get("retry") is None:
        return None
    retry = spec.inner("retry")
    events = retry.value.get("on_events") if retry is not None else None
    if isinstance(events, list) and all(isinstance(event, str) for event in events):
        return RetryWire(on_events=events)
    spec.drift.append(f"{spec.where}retry.on_events: no list of texts")
    return _any_event()


def _any_event() -> RetryWire:
    return RetryWire(on_events=sorted(words.RETRY_EVENTS))


def _submissions(job: FieldReader) -> list[SubmissionWire]:
    return [SubmissionWire() if item is None else _submission(item) for item in job.items("job_submissions")]


def _submission(submission: FieldReader) -> SubmissionWire:
    machine = submission.inner("job_provisioning_data")
    runtime = submission.inner("job_runtime_data")
    offer = runtime.inner("offer") if runtime is not None else None
    return SubmissionWire(
        id=submission.text("id"),
        submission_num=submission.whole("submission_num"),
        status=submission.text("status"),
        termination_reason=submission.text("termination_reason"),
        termination_reason_message=submission.text("termination_reason_message"),
        status_message=submission.text("status_message"),
        exit_status=submission.whole("exit_status"),
        submitted_at=submission.text("submitted_at"),
        finished_at=submission.text("finished_at"),
        job_provisioning_data=MachineWire(hostname=machine.text("hostname"), price=machine.number("price"))
        if machine is not None
        else None,
        job_runtime_data=None if offer is None else RuntimeWire(offer=OfferWire(blocks=offer.whole("blocks"))),
    )
