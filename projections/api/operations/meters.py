"""Everything that is counted while the service runs."""

from dataclasses import dataclass, field

from projections.api.operations.requests import Requests
from projections.api.operations.tally import Tally


@dataclass(slots=True)
class Meters:
    """One of each."""

    tally: Tally = field(default_factory=Tally)
    requests: Requests = field(default_factory=Requests)
