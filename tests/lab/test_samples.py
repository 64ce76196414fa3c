"""The samples of a run's GPUs: in a genuine server for a while, in our record for ever."""

import pytest
from stenolab.lab import Gate, Lab
from stenolab.plugin import StenoAt
from stenolab.rest import ask
from stenolab.steno import Steno
from stenolab.versions import NEWEST

from steno.engine.state.samples import TASK, Sample, unpack

pytestmark = pytest.mark.slow

EVERY = {"STENO_SAMPLES_EVERY": "1s"}


def samples(steno: Steno) -> list[Sample]:
    """All of the record."""
    return [sample for event in steno.recorded("SamplesRecorded") for sample in unpack(event.block)]


def kept(lab: Lab, project: str, name: str, run_id: str) -> list[object]:
    """The metrics that the server has of the run's first job."""
    path = f"/api/project/{project}/metrics/job/{name}?run_id={run_id}&limit=1000"
    metrics: list[object] = ask(lab.port, path, method="GET", token=lab.token).json["metrics"]
    return metrics


@pytest.mark.ci
@pytest.mark.suffices(NEWEST)
def test_samples_outlive_the_server_s_memory(dstack: Lab, steno_at: StenoAt) -> None:
    """While the run goes on they are fetched as they come, each once; what the server forgot is in the record."""
    project = dstack.project()
    steno = steno_at(dstack, project, **EVERY)
    steno.follow()
    gate = Gate(dstack, project)
    steno.submit("trains", [gate.passed])
    steno.until(lambda: len(samples(steno)) > 2, what="two samples of the GPU and the host")
    run_id = dstack.run(project, "trains")["id"]
    assert kept(dstack, project, "trains", run_id)
    gate.open()
    steno.wait("trains", "succeeded")
    dstack.wait(lambda: not kept(dstack, project, "trains", run_id), what="the server to forget")
    recorded = samples(steno)
    assert {(sample.device, sample.use, sample.memory) for sample in recorded if sample.device != TASK} == {
        ("0", 90, 8 * 1024)
    }
    assert {sample.memory for sample in recorded if sample.device == TASK} == {1024}
    assert len({(sample.device, sample.at) for sample in recorded}) == len(recorded)
