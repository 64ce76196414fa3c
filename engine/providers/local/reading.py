"""The reading of the local provider's answers, which are in dstack's words."""

from engine.providers.dstack.endpoints import local_scope
from engine.providers.dstack.reading import DstackReading


class LocalReading(DstackReading):
    """What this machine says of its runs and machines."""

    makes_all_vms = True

    def __init__(self) -> None:
        super().__init__(local_scope)
