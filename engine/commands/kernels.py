"""A kernel's request as a task, for every caller: its key, its name, and its order by the settings."""

from typing import TYPE_CHECKING, Final

from engine.errors import NotIsolated, RefusedByPolicy
from engine.fold.world_codec import WorldState, vms_of
from engine.kernel.executor import Order, Terms, order_of
from engine.kernel.listener_run import KERNELS as WARM
from engine.kernel.submission import KernelSubmission
from engine.kernel.warm.kind import is_warm
from engine.providers.kind import Check, CheckState, KernelRights
from engine.providers.registry import kind
from engine.providers.task import choose_name
from events.clock import SECOND
from events.shape.secrets import PREFIX

if TYPE_CHECKING:
    from engine.listener.health import EngineHealth
    from engine.settings.settings import Settings
    from events.store.record import Record

_OWN: Final = "(`steno kernel submit --unsafe-here` runs your own code as yourself.)"


def goes_to(settings: "Settings") -> str:
    """The provider that kernels are submitted to: that of the warm machines, or that of the settings."""
    return WARM if is_warm(settings) else settings.provider


def expect_isolation(
    settings: "Settings", provider: str, state: WorldState | None = None, *, own: bool = False
) -> None:
    """Refuse strangers' kernels that would not be isolated at that provider: they run in containers only.

    Args:
        state: while a machine is warm by it, its listener has answered for the container engine of this host.
        own: the kernel is the user's own, and may run as the user.

    Raises:
        NotIsolated: this host has no container engine; the message says what to install.
        RefusedByPolicy: the provider runs no kernels, or only as the user.
    """
    target = kind(provider)
    if (why := target.no_kernels()) is not None:
        raise RefusedByPolicy(why)
    if target.kernels is KernelRights.AS_USER:
        if own or settings.value("kernel.unsafe_local") == "true":
            return
        raise RefusedByPolicy(
            "kernel.warm is off, so a kernel would run as the service's user, not isolated: set it to on, or, for your "
            f"own code only, kernel.unsafe_local to true {_OWN}"
        )
    if provider != WARM or settings.provider != "local":
        return
    source = f"{WARM}/{target.project(settings)}"
    if state is not None and any(vm.billed for vm in vms_of(state, source)):
        return
    if found := _containers_here(settings).problems:
        why = " ".join(found)
        raise NotIsolated(f"kernels run in containers only, and here they cannot: {why} {_OWN}")


def checkup(settings: "Settings") -> Check:
    """Whether kernels can run by these settings, for `steno doctor`."""
    if not is_warm(settings):
        return Check(name="kernels", state=CheckState.SKIPPED, message="kernel.warm is off here")
    if settings.provider != "local":
        return Check(name="kernels", message=f"they go to warm machines of {settings.provider}")
    found = _containers_here(settings)
    message = f"they run in containers here: Docker {found.engine}. {' '.join(found.warnings)}".rstrip(". ")
    if found.problems:
        message = f"they are refused here, for they run in containers only. {' '.join(found.problems)}"
    state = CheckState.WARNING if found.problems or found.warnings else CheckState.OK
    return Check(name="kernels", state=state, message=message)


def _containers_here(settings: "Settings") -> "EngineHealth":
    """Whether the container engine of this host can run kernels."""
    from engine.listener.daemon import Daemon
    from engine.listener.health import examine

    return examine(Daemon(), settings.parsed("kernel.image"), ())


def kernel_key(record: "Record", run_id: str) -> str:
    """The secret that marks the run's frames; unpredictable without the key of the record's vault."""
    return record.vault.commitment(f"kernel/{run_id}".encode()).removeprefix(PREFIX)


def kernel_order(
    kernel: KernelSubmission, run_id: str, key: str, settings: "Settings", provider: str
) -> tuple[str, Order]:
    """The run's name, and its order for that provider.

    Raises:
        Wrong: it is too large to be sent.
    """
    terms = Terms(
        pooled=provider == WARM,
        image=settings.parsed("kernel.image"),
        compiler=settings.parsed("kernel.compiler"),
        max_duration=settings.parsed("kernel.max_duration") // SECOND,
    )
    stem = kernel.problem if kernel.problem[0].isalpha() else f"kernel-{kernel.problem}"
    return choose_name(run_id, stem), order_of(kernel, key, terms)
