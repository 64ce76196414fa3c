"""What a job has while it runs, as a machine of its own: nodes, GPUs, price. Pure."""

from engine.facts import VmFacts
from engine.providers.reading import Scope
from engine.providers.slurm.money import price_of
from engine.providers.slurm.question import Question
from engine.providers.slurm.rows import Row
from engine.providers.slurm.words import REQUEUED, cause
from engine.states import VmReason, VmState


def hostname(row: Row) -> str | None:
    """Nodes are shared, so the link of an attempt to its machine is node and job."""
    return None if row.nodes is None else f"{row.nodes}#{row.job}"


def _resources(row: Row) -> dict[str, str]:
    return dict(one.split("=", 1) for one in (row.tres or "").split(",") if "=" in one)


def price_in(row: Row, asked: Question) -> tuple[int | None, str | None]:
    """As `price_of`; (None, None) before it has anything."""
    return price_of(_resources(row), asked.environment.get("STENO_RATES")) if row.tres else (None, None)


def allocation(row: Row, asked: Question, scope: Scope) -> VmFacts | None:
    if row.started is None or row.nodes is None or row.tres is None or row.state == "PENDING":
        return None
    over = cause(row.state, row.derived) is not None
    tres = _resources(row)
    models = [name.rpartition(":")[2] for name in tres if name.startswith("gres/gpu:")]
    count = tres.get(f"gres/gpu:{models[0]}" if models else "gres/gpu", "0")
    price, unpriced = price_in(row, asked)
    return VmFacts(
        provider_id=f"{row.job}@{(row.submitted or 0) // 1_000_000}",
        name=row.nodes,
        project=scope.project,
        hostname=hostname(row),
        backend="slurm",
        region=row.partition,
        status=row.state,
        reason=row.reason,
        state=VmState.TERMINATED if over else VmState.BUSY,
        cause=VmReason.INTERRUPTED if row.state in REQUEUED else VmReason.RUN_ENDED,
        created=row.started,
        finished_at=row.ended if over else None,
        charged=asked.tool == "sacct",
        suspended=row.suspended or 0,
        limit=row.limit,
        price=price,
        instance_type=row.partition,
        gpu=models[0] if models else None,
        gpu_count=int(count) if count.isdecimal() else 0,
        cpus=int(tres["cpu"]) if tres.get("cpu", "").isdecimal() else None,
        drift=() if unpriced is None else (f"price: {unpriced}",),
    )
