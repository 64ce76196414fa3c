"""What a machine's object leaves out, as JSON values beside it."""

from engine.fold.vm import Vm
from events.clock import format_time


def beside(vm: Vm) -> dict[str, object]:
    """The provider's facts and our intents about one machine."""
    facts = vm.facts
    return {
        "project": facts.project,
        "backend": facts.backend,
        "region": facts.region,
        "fleet": facts.fleet,
        "gpu": facts.gpu,
        "gpu_count": facts.gpu_count,
        "spot": facts.spot,
        "ours": vm.ours,
        "made_for": vm.made_for,
        "created_at": format_time(vm.created),
        "idle_since": None if vm.idle_since is None else format_time(vm.idle_since),
        "unreachable": facts.unreachable,
    }
