"""Levers: what somebody does to many runs at once, or to a machine for a while, and its end."""

from typing import Literal

from steno.events.codec import Fact

LeverAction = Literal["pause", "drain", "stop", "keep"]


class LeverPulled(Fact, kind=53):
    """Somebody acts on many runs at once, or on a machine for a while. A field that is None restricts nothing."""

    lever_id: str
    action: LeverAction
    """`pause`: runs get no place; `drain`: as `pause`, and machines end when idle; `stop`: runs are stopped, and,
    without `state` and `vm_id`, later runs get no place; `keep`: the machine `vm_id` does not end for being idle.
    """
    user: str | None = None  # runs of this submitter
    gpu: str | None = None  # runs that may ask for this GPU model
    source: str | None = None  # of this source (`PROVIDER/PROJECT`) or provider
    state: str | None = None  # runs in this state
    vm_id: str | None = None  # runs on this machine; the machine to keep
    until: int | None = None  # by record time; None: until it is released
    why: str
    by: str


class LeverReleased(Fact, kind=54):
    """The lever holds nothing from now on; what it stopped stays stopped."""

    lever_id: str
    why: str = ""
    by: str


LeverEvent = LeverPulled | LeverReleased
