"""The placement of a run: laws over all machines that can be there."""

import json

from hypothesis import given
from hypothesis import strategies as st

from steno.engine.providers.base import Submission
from steno.engine.providers.local.placement import LocalOffer, MachineSpec, NoCapacity, Standing, Wanted, place, wanted
from steno.engine.providers.registry import READINGS

SLOTS = st.sampled_from([None, "steno-slot-1", "steno-slot-2"])
LABELS = st.sampled_from([(None, 0), ("MI300X", 1), ("MI300X", 2), ("MI210", 1)])


@st.composite
def standing(draw: st.DrawFn, number: int, slot: str | None) -> Standing:
    gpu, count = draw(LABELS)
    spec = MachineSpec(
        id=f"vm-{number}",
        name="any",
        num=number,
        slot=slot,
        hostname=f"host-{number}",
        created=draw(st.integers(0, 3)),
        price=0,
        boot=0,
        idle=draw(st.sampled_from([0, 1, -1])),
        gpu=gpu,
        gpu_count=count,
        cpus=1,
        memory_mib=1,
        disk_mib=1,
    )
    return Standing(spec=spec, free=spec.kept and draw(st.booleans()))


@st.composite
def hosts(draw: st.DrawFn) -> list[Standing]:
    """Machines that can stand beside one another: at most one in a slot."""
    slots = [*draw(st.sets(SLOTS.filter(bool))), *draw(st.lists(st.none(), max_size=3))]
    return [draw(standing(number, slot)) for number, slot in enumerate(slots)]


@st.composite
def wishes(draw: st.DrawFn) -> Wanted:
    return Wanted(
        slot=draw(SLOTS),
        fresh=draw(st.booleans()),
        reuse=draw(st.booleans()),
        gpus=draw(st.sampled_from([(), ("mi300x",), ("MI210", "MI300X")])),
        gpu_count=draw(st.integers(0, 2)),
    )


@st.composite
def offers(draw: st.DrawFn) -> LocalOffer:
    gpu, count = draw(LABELS)
    return LocalOffer(gpu=gpu, gpu_count=count)


@given(wishes(), offers(), hosts())
def test_a_place_is_a_free_machine_a_new_one_or_none(wish: Wanted, offer: LocalOffer, there: list[Standing]) -> None:
    """Never a busy one, never two in a slot, never a new one for `reuse`, never an old one for `create`."""
    placed = place(wish, offer, there)
    slots = [machine.spec.slot for machine in there]
    if isinstance(placed, MachineSpec):
        assert Standing(spec=placed, free=True) in there
        assert not wish.fresh
        assert wish.slot in (None, placed.slot)
        if wish.gpus and placed.gpu is not None:
            assert placed.gpu.lower() in [name.lower() for name in wish.gpus]
            assert placed.gpu_count >= wish.gpu_count
    elif placed is None:
        assert not wish.reuse
        assert wish.slot is None or wish.slot not in slots
        if offer.gpu is not None and wish.gpus:
            assert offer.gpu.lower() in [name.lower() for name in wish.gpus]
    else:
        assert "\n" not in placed.why


@given(wishes(), offers(), hosts(), st.randoms())
def test_the_order_in_which_machines_are_found_does_not_matter(
    wish: Wanted, offer: LocalOffer, there: list[Standing], random: object
) -> None:
    """Folders are listed in no order."""
    mixed = list(there)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    before, after = place(wish, offer, there), place(wish, offer, mixed)
    assert before == after or (isinstance(before, NoCapacity) and isinstance(after, NoCapacity))


def asks(**configuration: object) -> Wanted:
    terms = READINGS.terms("local", json.dumps(configuration).encode(), "me")
    return wanted(Submission(run_id="r", name="n", project="here", configuration=configuration), terms)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["gpu", "name", "count", "min"]), inner),
)


@given(ODD)
def test_odd_resources_are_no_trouble(value: object) -> None:
    """Whatever a file says there, a place is looked for."""
    assert asks(resources=value).gpu_count >= 0
    assert asks(resources={"gpu": value}).gpu_count >= 0
