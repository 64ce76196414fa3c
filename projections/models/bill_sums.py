"""What a machine's bill is made of and how a run's cost compares, small enough to be kept: costs are sums of these."""

from collections.abc import Iterable
from typing import Final
from zlib import crc32

import msgspec

from engine.fold.vm import Vm
from engine.money.bill import Bill
from engine.money.costs import Charge, charges, cut_at
from engine.money.life import silent_from
from engine.money.reconcile import Reconciliation
from engine.money.report import gpu_of, midnights
from events.clock import SECOND

DAY: Final = 86_400 * SECOND


class ChargeSum(msgspec.Struct, frozen=True, array_like=True):
    """Charges of one machine that are for the same, in one day."""

    run_id: str | None
    """Who pays; None: nobody."""
    line: str
    day: int
    """In UTC, since 1970."""
    cost: int
    """Micro-dollars."""
    time: int
    """Microseconds of the machine."""


class Paid(msgspec.Struct, frozen=True, array_like=True):
    """One machine's bill, in the order in which its parts first come up."""

    low: int
    high: int
    gpu: str
    """`MI300X:2`; `none`."""
    spot: bool
    parts: tuple[ChargeSum, ...]


class Against(msgspec.Struct, frozen=True, array_like=True):
    """One run's cost against the provider's figure. Micro-dollars."""

    machines: dict[str, int]
    """Those it was ever on, it pays for these; and the basis on each that this rests on (`basis_of`)."""
    ours: int
    theirs: int | None
    """None: the provider gives no figure."""
    causes: tuple[tuple[str, int], ...]


_encoder: Final = msgspec.msgpack.Encoder()
_paid: Final = msgspec.msgpack.Decoder(Paid)
_against: Final = msgspec.msgpack.Decoder(Against)


def encode_paid(vm: Vm, bill: Bill) -> bytes:
    """A machine's bill as the store keeps it."""
    sums: dict[tuple[str | None, str, int], list[int]] = {}
    for charge in charges(bill):
        for part in cut_at(charge, midnights(charge.since, charge.until)):
            found = sums.setdefault((part.run_id, part.line.value, part.since // DAY), [0, 0])
            found[0] += part.cost
            found[1] += part.until - part.since
    parts = tuple(ChargeSum(*key, *found) for key, found in sums.items())
    spot = bool(vm.facts.spot)
    return _encoder.encode(Paid(low=bill.low, high=bill.high, gpu=gpu_of(vm), spot=spot, parts=parts))


def decode_paid(data: bytes) -> Paid:
    """What `encode_paid` wrote."""
    return _paid.decode(data)


def encode_against(one: Reconciliation, machines: dict[str, int]) -> bytes:
    """A run's comparison as the store keeps it; `machines` as in `Against`."""
    causes = tuple((line.cause.value, line.amount) for line in one.lines)
    return _encoder.encode(Against(machines=machines, ours=one.ours, theirs=one.theirs, causes=causes))


def decode_against(data: bytes) -> Against:
    """What `encode_against` wrote."""
    return _against.decode(data)


class Basis:
    """What a machine tells about the money of the runs on it, as numbers that are compared, not read."""

    def __init__(self, vm: Vm) -> None:
        self._start = crc32(_encoder.encode((vm.prices, vm.facts.total_blocks, silent_from(vm))))

    def of(self, paid: Iterable[Charge]) -> int:
        """Of a run with these charges."""
        told = tuple((one.line.value, one.since, one.until, one.cost, one.hourly) for one in paid)
        return crc32(_encoder.encode(told), self._start)
