"""A kernel as a task, for every caller, and whether the settings let it run."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import msgspec

from steno.engine.errors import NotIsolated, RefusedByPolicy
from steno.engine.kernel.executor import order_of
from steno.engine.kernel.submission import KernelSubmission
from steno.engine.kernel.warm_provider.kind import is_warm
from steno.engine.providers.kind import Check, CheckState, KernelRights
from steno.engine.providers.registry import kind
from steno.engine.providers.task import Draft, choose_name
from steno.engine.state.kernel_mark import KERNELS as WARM
from steno.engine.state.world import World, vms_of
from steno.events.clock import SECOND
from steno.events.installation import installing
from steno.events.shape.secrets import PREFIX
from steno.events.store.vault import Vault

if TYPE_CHECKING:
    from steno.engine.listener.daemon import EngineHealth
    from steno.engine.settings.settings import Settings

_OWN: Final = "(`steno kernel submit --unsafe-here` runs your own code as yourself.)"


def goes_to(settings: "Settings") -> str:
    """The provider that kernels are submitted to: that of the warm machines, or that of the settings."""
    return WARM if is_warm(settings) else settings.provider


def expect_isolation(settings: "Settings", provider: str, state: World | None = None, *, own: bool = False) -> None:
    """Refuse strangers' kernels that would not be isolated at that provider: they run in containers only.

    Args:
        state: while a machine is warm by it, its listener has answered for the container engine of this host.
        own: the kernel is the user's own, and may run as the user.

    Raises:
        NotIsolated: this host has no container engine, or no numpy; the message says what to install.
        RefusedByPolicy: the provider runs no kernels, or only as the user.
    """
    target = kind(provider)
    if (why := target.no_kernels()) is not None:
        raise RefusedByPolicy(why)
    if provider != WARM:
        if target.kernels is not KernelRights.AS_USER:
            raise RefusedByPolicy(
                "kernel.warm is off, and kernels run on machines that are kept warm for them: set it to on"
            )
        if own or settings.value("kernel.unsafe_local") == "true":
            if find_spec("numpy") is None:
                raise NotIsolated(
                    f"numpy is not installed, which the judge of kernels needs: `{installing('listener')}`"
                )
            return
        raise RefusedByPolicy(
            "kernel.warm is off, so a kernel would run as the service's user, not isolated: set it to on, or, for your "
            f"own code only, kernel.unsafe_local to true {_OWN}"
        )
    if settings.provider != "local":
        return
    source = f"{WARM}/{target.project(settings)}"
    if state is not None and any(vm.billed for vm in vms_of(state, source)):
        return
    if problems := _containers_here(settings).problems:
        why = " ".join(problems)
        raise NotIsolated(f"kernels run in containers only, and here they cannot: {why} {_OWN}")


def checkup(settings: "Settings") -> Check:
    """The check of `steno doctor` whether kernels can run by these settings."""
    if not is_warm(settings):
        return Check(name="kernels", state=CheckState.SKIPPED, message="kernel.warm is off here")
    if settings.provider != "local":
        return Check(name="kernels", message=f"they go to warm machines of {settings.provider}")
    health = _containers_here(settings)
    message = f"they run in containers here: Docker {health.engine}. {' '.join(health.warnings)}".rstrip(". ")
    if health.problems:
        message = f"they are refused here, for they run in containers only. {' '.join(health.problems)}"
    state = CheckState.WARNING if health.problems or health.warnings else CheckState.OK
    return Check(name="kernels", state=state, message=message)


def _containers_here(settings: "Settings") -> "EngineHealth":
    """The health of the container engine of this host, as kernels need it."""
    from steno.engine.listener.daemon import Daemon

    return Daemon().health(settings.parsed("kernel.image"), ())


def kernel_draft(
    kernel: KernelSubmission, run_id: str, vault: Vault, settings: "Settings", provider: str, where: str
) -> Draft:
    """The kernel's task for that provider; `where` names it in messages. Its mark names the source by a commitment: the
    same for the same source in a record, and of no use to whoever would guess it.

    Raises:
        Wrong: it is too large.
    """
    source = vault.commitment(f"solution/{kernel.solution_code}".encode()).removeprefix(PREFIX)
    configuration, mark = order_of(
        kernel,
        source,
        isolated=provider == WARM,
        image=settings.parsed("kernel.image"),
        compiler=settings.parsed("kernel.compiler"),
        max_duration=settings.parsed("kernel.max_duration") // SECOND,
        batch_memory=settings.parsed("kernel.batch_memory"),
    )
    stem = kernel.problem if kernel.problem[0].isalpha() else f"kernel-{kernel.problem}"
    task = {**configuration, "name": choose_name(run_id, stem)}
    return Draft(configuration=task, where=where, environ={}, kernel=msgspec.json.encode(mark))
