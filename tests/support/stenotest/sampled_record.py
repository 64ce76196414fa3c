"""A record with samples of GPUs: runs that use some of what they asked for, and a run without samples."""

from collections.abc import Sequence
from pathlib import Path

from steno.engine.state.policy import Policy
from steno.engine.state.samples import TASK, Sample, pack
from steno.events.clock import SECOND
from steno.events.types import SamplesRecorded
from stenotest.decided_record import DecidedRecord
from stenotest.dstack_history import provider_id

ASKED = {"gpu": {"name": "MI300X", "count": 4}, "memory": "64GB..", "cpu": "16.."}
ONE_OF_FOUR, NONE_OF_FOUR = (80, 0, 2, 4), (1, 0, 2, 4)  # percent
WORKING, IDLE, BLIND, BETWEEN = 600, 1_200, 300, 240  # seconds


class SampledRecord(DecidedRecord):
    """A site whose runs have samples of their GPUs."""

    def sample(self, name: str, use: Sequence[int | None], seconds: int, every: int = 15) -> None:
        """Time passes, in which a run's GPUs do that; one answer of its provider says so."""
        begun = self.clock.now()
        self.wait(seconds)
        samples = list[Sample]()
        for at in range(begun, begun + seconds * SECOND + 1, every * SECOND):
            samples.append(Sample(at=at, device=TASK, use=130, memory=2_960))
            for gpu, percent in enumerate(use):
                memory = 10_240 * (gpu + 1)
                samples.append(
                    Sample(at=at, device=str(gpu), use=percent, memory=memory, memory_total=196_608, power=90 + gpu)
                )
        block, about = pack(samples), {"run_id": f"run-{name}", "provider": "dstack"}
        event = SamplesRecorded(**about, provider_id=provider_id(name), source="nvidia-smi", block=block)
        self.write(f"run/run-{name}", event)

    def begin(self, name: str, machine: str, **resources: object) -> None:
        """A run of somebody who asks for four GPUs starts on a machine that has them."""
        self.request(name, resources=ASKED | resources)
        self.start(name, machine)
        self.machine(machine, "busy", gpus=4)
        self.round()


def sampled_record(folder: Path) -> Path:
    """`train` works, is idle and is not sampled; its machine idles, and then has `blind`, of which nothing is known."""
    site = SampledRecord(folder, Policy(max_vms=2))
    site.begin("train", "m1")
    site.sample("train", ONE_OF_FOUR, WORKING)
    site.sample("train", NONE_OF_FOUR, IDLE)
    site.wait(BLIND)
    site.end("train", "m1")
    site.machine("m1", "idle", gpus=4)
    site.wait(BETWEEN)
    site.begin("blind", "m1")
    site.wait(BLIND)
    site.record.close()
    return folder / "record.db"
