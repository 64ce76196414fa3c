"""The reading of a machine: well-formed rows in one step, everything else value by value."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.dstack_history import START, provider_id
from stenotest.machines import HOST, machine_item, placeholder

from steno.engine.providers.dstack.vm_reading import read_vm
from steno.engine.replay.replay import open_trace
from steno.engine.state.facts import VmFacts
from steno.engine.state.states import VmReason, VmState
from steno.events.clock import SECOND

TRACES = Path(__file__).parents[3] / "traces"


def read(item: Any) -> VmFacts:
    return read_vm(json.dumps(item).encode())


def test_a_row_reads_as_its_values() -> None:
    """Money in micro-dollars, times in microseconds."""
    facts = read(machine_item("lab-fleet-0", "busy", blocks=(1, 2), gpus=2, created=1.5, finished=9, reason="error"))
    assert facts == VmFacts(
        provider_id=provider_id("machine lab-fleet-0"),
        name="lab-fleet-0",
        project="main",
        fleet="lab-fleet",
        instance_num=0,
        hostname=HOST,
        backend="amddevcloud",
        region="atl1",
        status="busy",
        state=VmState.BUSY,
        reason="error",
        cause=VmReason.PROVIDER_ERROR,
        by_request=False,
        created=START + 3 * SECOND // 2,
        finished_at=START + 9 * SECOND,
        price=1_990_000,
        spot=False,
        instance_type="gpu-mi300x1-192gb-devcloud",
        gpu="MI300X",
        gpu_count=2,
        gpu_memory_mib=196_608,
        cpus=20,
        memory_mib=245_760,
        disk_mib=737_280,
        total_blocks=2,
        busy_blocks=1,
    )


def test_a_placeholder_has_no_price_and_no_type() -> None:
    """0.22.5's row of what waits for an offer."""
    facts = read(placeholder())
    assert (facts.status, facts.price, facts.gpu, facts.gpu_count, facts.drift) == ("pending", None, None, 0, ())


def test_a_server_that_tells_no_ends_is_known_by_the_missing_key() -> None:
    """0.19.37."""
    assert not read(machine_item(old=True)).gives_end
    assert read(machine_item()).gives_end
    assert read({**machine_item(), "finished_at": 5}).gives_end


@pytest.mark.parametrize(
    ("change", "drift"),
    [
        ({"status": "hibernating"}, "status: unknown word 'hibernating'"),
        ({"termination_reason": "cosmic_ray"}, "termination_reason: unknown word 'cosmic_ray'"),
        ({"created": "yesterday"}, "created: not a time: 'yesterday'"),
        ({"price": "1.99"}, "price: not a number"),
        ({"price": -1.0}, "price: not a price: -1.0"),
        ({"price": True}, "price: not a number"),
        ({"price": 1e300}, "price: not a price: 1e+300"),
        ({"status": 7}, "status: not text"),
        ({"hostname": []}, "hostname: not text"),
        ({"unreachable": "no"}, "unreachable: not true or false"),
        ({"total_blocks": -1}, "total_blocks: below zero"),
        ({"total_blocks": 2**70}, "total_blocks: not a whole number"),
        ({"instance_type": "big"}, "instance_type: not an object"),
        ({"instance_type": {"resources": {"gpus": [3]}}}, "instance_type.resources.gpus[]: not an object"),
        ({"instance_type": {"resources": {"gpus": "MI300X"}}}, "instance_type.resources.gpus: not a list"),
        ({"finished_at": 5}, "finished_at: not text"),
    ],
)
def test_what_does_not_fit_is_named_and_the_rest_is_read(change: dict[str, Any], drift: str) -> None:
    """Each path once."""
    facts = read({**machine_item(), **change})
    assert facts.drift == (drift,)
    assert (facts.provider_id, facts.project) == (provider_id("machine a-machine"), "main")


def test_old_sentences_are_no_drift() -> None:
    """0.19.37 writes reasons as free text."""
    assert read(machine_item(reason="Idle timeout", old=True)).drift == ()


@pytest.mark.parametrize("item", [b"", b"[]", b'"x"', b"{}", b'{"id": 7}', b'{"id": ""}', b"{broken"])
def test_what_has_no_id_is_no_row(item: bytes) -> None:
    """Nor a text that is not JSON."""
    with pytest.raises(ValueError, match="a machine"):
        read_vm(item)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(machine_item())), JSON, max_size=6))
def test_a_row_of_any_shape_reads_as_facts(change: dict[str, Any]) -> None:
    """Law: never raises where there is an id; what fits is there, what does not is named."""
    facts = read({**machine_item(), **change, "id": "x"})
    assert facts.provider_id == "x"
    assert facts.price is None or 0 <= facts.price <= 10**12
    for key in ("status", "hostname", "name"):
        if key in change and isinstance(change[key], str):
            assert getattr(facts, key) == (change[key] or (None if key == "hostname" else ""))


def test_every_row_of_the_recordings_is_read_without_drift() -> None:
    """Both versions of the server."""
    seen = 0
    for path in sorted(TRACES.rglob("*.zst")):
        for _, poll in open_trace(path):
            if poll is not None and poll.path == "/api/instances/list" and poll.body is not None and poll.answered:
                for row in json.loads(poll.body):
                    facts = read(row)
                    assert facts.drift == ()
                    assert facts.gives_end == ("0.22.5" in str(path))
                    assert facts.one_at_a_time != facts.gives_end
                    seen += 1
    assert seen > 1000
