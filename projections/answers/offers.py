"""GPUs on offer: those of machines in the record, and those that policies price."""

from typing import Final, Literal

from steno.engine.money.prices import price_of
from steno.engine.state.policy import Policy
from steno.engine.state.run import Requirements
from steno.engine.state.vm import Vm
from steno.engine.wire import DOLLAR, Shape, Usd
from steno.projections.read_models.reader_pool import Look

MEMORY_GB: Final = {  # GB per GPU, by its maker's data sheet; for models not in the record
    "MI210": 64,
    "MI250X": 128,
    "MI300X": 192,
    "MI308X": 192,
    "MI325X": 256,
    "MI350X": 288,
    "MI355X": 288,
    "H100": 80,
    "H200": 141,
    "L4": 24,
    "L40S": 48,
}
_MAKERS: Final = (("MI", "AMD"), ("H100", "NVIDIA"), ("H200", "NVIDIA"), ("A100", "NVIDIA"), ("L4", "NVIDIA"))


class Offer(Shape, frozen=True, kw_only=True, rename={"hourly": "price_usd_per_hour", "origin": "from"}):
    """A GPU with how many of it a machine has, and what that costs an hour."""

    gpu: str
    count: int
    memory_gb: int | None
    label: str  # as a person reads it: `AMD MI300X (192GB, $1.99/hr)`
    hourly: Usd
    origin: Literal["recorded", "assumed"]


def offers(look: Look, policy: Policy) -> list[Offer]:
    """Every GPU of the record's on-demand machines and of the policy's prices, by name and count."""
    machines = [row.decoded for row in look.view.store.vms.kinds() if row.archive is None]
    seen = [vm for vm in machines if vm.facts.gpu and vm.facts.gpu_count > 0 and vm.prices]
    on_demand = [vm for vm in seen if not vm.facts.spot]
    wanted = {rate.gpu.casefold(): rate.gpu for rate in (*policy.rates, *policy.assumed) if rate.gpu}
    wanted |= {(vm.facts.gpu or "").casefold(): vm.facts.gpu or "" for vm in seen}
    all_offers = []
    for key, gpu in sorted(wanted.items()):
        having = [vm for vm in seen if (vm.facts.gpu or "").casefold() == key]
        counts = sorted({vm.facts.gpu_count for vm in having}) or [1]
        all_offers += [_offer(gpu, count, having, on_demand or seen, policy) for count in counts]
    return [offer for offer in all_offers if offer is not None]


def _offer(gpu: str, count: int, having: list[Vm], known: list[Vm], policy: Policy) -> Offer | None:
    exactly = [vm for vm in known if vm.facts.gpu_count == count] or known
    guess = price_of(Requirements(submitter="", gpu=(gpu,), gpu_count=count), policy, exactly)
    if guess is None:
        return None
    memory = next((vm.facts.gpu_memory_mib for vm in reversed(having) if vm.facts.gpu_memory_mib), None)
    overridden = any(rate.gpu.casefold() == gpu.casefold() for rate in policy.rates)
    known_gb = MEMORY_GB.get(gpu.upper()) if memory is None else round(memory / 1024)
    return Offer(
        gpu=gpu,
        count=count,
        memory_gb=known_gb,
        label=_label(gpu, count, known_gb, guess.hourly),
        hourly=guess.hourly,
        origin="recorded" if having and not overridden else "assumed",
    )


def _label(gpu: str, count: int, memory_gb: int | None, hourly: int) -> str:
    maker = next((f"{name} " for begin, name in _MAKERS if gpu.upper().startswith(begin)), "")
    times = "" if count == 1 else f"{count} × "
    memory = "" if memory_gb is None else f"{memory_gb}GB, "
    return f"{times}{maker}{gpu} ({memory}${_cents(hourly)}/hr)"


def _cents(hourly: int) -> str:
    """Micro-dollars as dollars and cents, rounded half up."""
    cents = (2 * hourly + DOLLAR // 100) // (2 * (DOLLAR // 100))
    return f"{cents // 100}.{cents % 100:02d}"
