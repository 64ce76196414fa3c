"""A kernel's request as a task, for every caller: its key, its name, and its order by the settings."""

from typing import TYPE_CHECKING

from engine.kernel.executor import Order, Terms, order_of
from engine.kernel.submission import KernelSubmission
from engine.providers.task import choose_name
from events.clock import SECOND
from events.shape.secrets import PREFIX

if TYPE_CHECKING:
    from engine.settings.settings import Settings
    from events.store.record import Record


def kernel_key(record: "Record", run_id: str) -> str:
    """The secret that marks the run's frames; unpredictable without the key of the record's vault."""
    return record.vault.commitment(f"kernel/{run_id}".encode()).removeprefix(PREFIX)


def kernel_order(kernel: KernelSubmission, run_id: str, key: str, settings: "Settings") -> tuple[str, Order]:
    """The run's name, and its order.

    Raises:
        Wrong: it is too large to be sent.
    """
    terms = Terms(
        image=settings.parsed("kernel.image"),
        compiler=settings.parsed("kernel.compiler"),
        max_duration=settings.parsed("kernel.max_duration") // SECOND,
    )
    stem = kernel.problem if kernel.problem[0].isalpha() else f"kernel-{kernel.problem}"
    return choose_name(run_id, stem), order_of(kernel, key, terms)
