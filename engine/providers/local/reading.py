"""The reading of the local provider's answers, which are in dstack's words."""

from msgspec.structs import replace

from engine.providers.dstack.endpoints import local_scope
from engine.providers.dstack.reading import DstackReading
from engine.requirements import Requirements


class LocalReading(DstackReading):
    """What this machine says of its runs and machines."""

    makes_all_vms = True

    def __init__(self) -> None:
        super().__init__(local_scope)

    def terms(self, configuration: bytes, submitter: str, fallback: tuple[str, ...] = ()) -> Requirements:
        """As `Reading.terms`: a machine of this host takes every task, but for the GPU it is said to have."""
        return replace(super().terms(configuration, submitter, fallback), any_machine=True)
