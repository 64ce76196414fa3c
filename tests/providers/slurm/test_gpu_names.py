"""GPUs by the names that a cluster gives them: case, types without a name, slices (MIG), node states, aliases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.errors import TaskInvalid
from steno.engine.providers.slurm.cluster import UNTYPED, Cluster, describe, gpus_of, is_slice_of, slice_of, spelled
from steno.engine.providers.slurm.plan import Request, make, resolve
from steno.engine.providers.slurm.spec import gpus, gres

SLICES = ("1g.10gb", "a100_3g.20gb", "nvidia_h200_nvl_4g.71gb", "a100l.2g.20gb", "A100-MIG-1G.5GB", "1c.3g.20gb")
WHOLE = ("a100", "A100", "a100_80", "nvidia_h100_80gb_hbm3", "tesla_v100-sxm2-32gb", "2080ti", "3090", UNTYPED)


def cluster(*nodes: str, partition: str = "p") -> Cluster:
    """Nodes of `state|GRES`, 64 CPUs and 512 GB each."""
    lines = (
        f"n{at}|{partition}|{node.split('|')[0]}|64|524288|0/64/0/64|{node.split('|')[1]}\n"
        for at, node in enumerate(nodes)
    )
    return describe("".join(lines), f"PartitionName={partition} Default=YES MaxTime=1-00:00:00 State=UP\n")


def types(*gres_of_nodes: str) -> list[str]:
    return [pool.gpu for pool in cluster(*(f"idle|{text}" for text in gres_of_nodes)).pools]


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("gpu:a100:2(S:0,2),gpu:a100_1g.5gb:7(S:1)", {"a100": 2, "a100_1g.5gb": 7}),
        ("gpu:tesla", {"tesla": 1}),
        ("gpu:a100:0,craynetwork:4", {}),
        ("(null)", {}),
        ("", {}),
    ],
)
def test_the_gres_of_a_node(text: str, counts: dict[str, int]) -> None:
    """A count that is left out or 0, no GPUs at all, a node of a real cluster; the property below draws the rest."""
    assert gpus_of(text) == counts


_names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True).filter(lambda name: not name.isdecimal())
_behind = st.sampled_from(["", "(S:0-3)", "(S:0,2)", "(IDX:0-1,4)", "(IDX:)"])
_others = st.sampled_from(["shard:8", "craynetwork:4", "mps:a100:400(S:0)", "gpux:2"])


@given(
    listed=st.lists(st.tuples(st.none() | _names, st.integers(1, 64), _behind), max_size=5),
    others=st.lists(_others, max_size=2),
)
def test_every_gpu_of_a_node_is_counted_under_its_own_name(
    listed: list[tuple[str | None, int, str]], others: list[str]
) -> None:
    """Whatever stands beside or behind them; and what is asked for is what was listed."""
    parts = [
        f"gpu:{count}{behind}" if kind is None else f"gpu:{kind}:{count}{behind}" for kind, count, behind in listed
    ]
    expected: dict[str, int] = {}
    for kind, count, _ in listed:
        expected[kind or UNTYPED] = expected.get(kind or UNTYPED, 0) + count
    counts = gpus_of(",".join((*parts, *others)))
    assert counts == expected
    assert gpus_of(",".join(gres(kind, count) for kind, count in counts.items())) == counts


@given(kind=_names, count=st.integers(1, 64))
def test_a_type_survives_task_and_script(kind: str, count: int) -> None:
    """`resources.gpu` of a plan is read back as it was written."""
    model, number = gpus(f"{kind}:{count}", "resources.gpu")
    assert gres(model, number) == gres(kind, count)


def test_a_slice_is_known_by_its_size() -> None:
    """With or without the name of its model; a memory size in a model's name makes no slice."""
    assert all(slice_of(name) is not None for name in SLICES)
    assert all(slice_of(name) is None for name in WHOLE)
    assert slice_of("nvidia_h200_nvl_4g.71gb") == ("nvidia_h200_nvl", "4g.71gb")
    assert slice_of("A100-MIG-1G.5GB") == ("a100", "1g.5gb")
    assert slice_of("1g.10gb") == ("", "1g.10gb")


@given(
    model=st.sampled_from(["a100", "H200", "nvidia_h200_nvl", "a100l"]),
    apart=st.sampled_from("._-"),
    gib=st.integers(1, 99),
)
def test_a_slice_of_a_model_is_no_slice_of_a_longer_name(model: str, apart: str, gib: int) -> None:
    """`a100l.2g.20gb` is not of an A100."""
    gpu = f"{model}{apart}2g.{gib}gb"
    assert is_slice_of(gpu, model)
    assert is_slice_of(gpu, "a100") is (model == "a100")
    assert not is_slice_of(model, model)


def test_a_typed_name_means_the_clusters_own_spelling() -> None:
    """Any case may be typed; where two types differ in nothing else, only the exact one."""
    assert spelled("a100", ["A100", "v100"]) == "A100"
    assert spelled("A100", ["A100", "a100"]) == "A100"
    assert spelled("b300", ["A100"]) is None
    with pytest.raises(TaskInvalid, match="Gh200 or gH200"):
        spelled("gh200", ["Gh200", "gH200", "A100"])


def test_an_alias_hides_no_type_of_the_cluster() -> None:
    """The default `a100=a100_80`: a cluster with a type `a100` means that first."""
    aliases = {"a100": ("a100_80",)}
    both = cluster("idle|gpu:a100:4", "idle|gpu:a100_80:8")
    assert resolve("a100", aliases, both) == ("a100", "a100_80")
    assert resolve("A100", aliases, cluster("idle|gpu:a100:4")) == ("a100",)
    assert resolve("A100", aliases, cluster("idle|gpu:A100_80:4")) == ("A100_80",)


def test_slices_are_for_mig_only() -> None:
    """`--type a100` never gets one, `--type a100 --mig` gets those of that model; a plain size is of any."""
    mixed = cluster(
        "idle|gpu:a100:2,gpu:a100_3g.20gb:4", "idle|gpu:a100l.2g.20gb:8", "idle|gpu:nvidia_h200_nvl_4g.71gb:2"
    )

    def gets(*names: str, mig: bool) -> set[str]:
        wanted = tuple(kind for name in names for kind in resolve(name, {}, mixed, mig=mig))
        return {way.gpu for way in make(Request(types=wanted, mig=mig), mixed).strategies}

    assert gets("a100", mig=False) == {"a100"}
    assert gets("A100", mig=True) == {"a100_3g.20gb"}
    assert gets("h200", mig=True) == {"nvidia_h200_nvl_4g.71gb"}
    assert gets(mig=False) == {"a100"}
    assert gets(mig=True) == {"a100_3g.20gb", "a100l.2g.20gb", "nvidia_h200_nvl_4g.71gb"}


@pytest.mark.parametrize(
    ("state", "up", "idle"),
    [
        ("idle", True, True),
        ("idle*", False, False),  # does not respond
        ("mixed*", False, False),
        ("idle~", True, False),  # powered off
        ("idle#", True, False),  # powering up
        ("idle!", True, False),  # will be powered off
        ("idle%", True, False),  # powering off
        ("powered_down~", True, False),
        ("idle$", False, False),  # maintenance
        ("maint$", False, False),
        ("mixed@", True, False),  # reboots later
        ("idle@", True, False),
        ("reboot^", False, False),  # reboots now
        ("idle^", False, False),
        ("idle-", True, False),  # planned for another job
        ("planned", True, False),
        ("mixed-", True, False),
        ("allocated+", True, False),
        ("completing", True, False),
        ("down~", False, False),
        ("drained", False, False),
        ("draining@", False, False),
        ("reserved", False, False),
        ("future", False, False),
        ("inval", False, False),
        ("unknown*", False, False),
    ],
)
def test_which_nodes_are_up_and_idle(state: str, up: bool, idle: bool) -> None:
    """`idle*` does not respond and gets no job; what saves power takes jobs later."""
    pools = cluster(f"{state}|gpu:a100:4").pools
    assert [(pool.nodes, pool.idle) for pool in pools] == ([(1, int(idle))] if up else [])
