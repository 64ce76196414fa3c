"""What a run asks of its machine, read from its request: where it may run, and for how long."""

from typing import Final, Literal

import msgspec


class Range(msgspec.Struct, frozen=True):
    """An inclusive range; None: no limit on that side."""

    least: float | None = None
    most: float | None = None

    def holds(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def contains(self, other: "Range") -> bool:
        """Whether every value of the other range lies in it."""
        least = self.least is None or (other.least is not None and other.least >= self.least)
        return least and (self.most is None or (other.most is not None and other.most <= self.most))

    def __str__(self) -> str:
        if self.least == self.most and self.least is not None:
            return f"{self.least:g}"
        least = "" if self.least is None else f"{self.least:g}"
        return f"{least}.." if self.most is None else f"{least}..{self.most:g}"


ANY: Final = Range()


class Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """What a run we submitted asks of its machine. Sizes are GB of 1024 MiB."""

    submitter: str
    gpu: tuple[str, ...] = ()  # models it takes, as written; empty: any, or none
    gpu_count: int = 0  # the least number of GPUs a machine must have; 0: none asked for
    gpu_counts: Range = ANY  # as `gpu_count`, with the most it may have
    gpu_vendor: str | None = None
    gpu_memory: Range = ANY  # of one GPU
    total_gpu_memory: Range = ANY  # of all GPUs of a machine
    cpus: Range = ANY
    memory: Range = ANY
    disk: Range = ANY
    any_machine: bool = False  # every machine of its provider fits, unless it has other GPUs than asked for
    nodes: int = 1
    tasks: int = 1  # runs that it is carried out as, each on a machine of its own
    backends: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    instance_types: tuple[str, ...] = ()
    fleets: tuple[str, ...] = ()  # fleets the task itself names
    spot: Literal["spot", "on-demand", "auto"] | None = None  # none: not said, which gets an on-demand machine
    creation: Literal["create", "reuse", "reuse-or-create"] = "reuse-or-create"
    retry: bool = False  # its provider itself tries it again: as it was submitted, as often as the task allows
    idle: int | None = None  # how long its machine may idle after it, microseconds; -1: for ever; None: not said
    max_duration: int | None = None  # microseconds; None: no limit
    max_price: int | None = None  # micro-dollars an hour
    fallback: tuple[str, ...] = ()  # GPU models to ask for after the task's own
    race: str | None = None  # runs with the same value were asked for together, and only the first that runs is wanted
    plan: str = ""  # equal for tasks that its provider plans alike; empty: it plans none
    crons: tuple[str, ...] = ()  # when it is due: it is a schedule, and all else is of each firing; empty: run it once
    strategy: str | None = None  # what distinguishes it within its race, in a few words
