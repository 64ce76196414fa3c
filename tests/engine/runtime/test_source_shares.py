"""Sources are spread evenly, by a rule that needs no leader."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from steno.engine.runtime.shared_sources import spread

SOURCES = st.sets(st.sampled_from([f"dstack/{number}" for number in range(12)]))
WORKERS = st.sets(st.sampled_from("abcdef"))
HOLDERS = st.dictionaries(
    st.sampled_from([f"dstack/{number}" for number in range(14)]), st.sampled_from("abcdefxyz"), max_size=14
)


@given(SOURCES, HOLDERS, WORKERS)
def test_every_source_has_one_living_worker_and_no_worker_two_more_than_another(sources, holders, workers):
    """Whoever held what."""
    shares = spread(sources, holders, workers)
    assert shares.keys() == (sources if workers else set())
    assert set(shares.values()) <= workers
    counts = [Counter(shares.values())[worker] for worker in workers]
    assert max(counts, default=0) - min(counts, default=0) <= 1


@given(SOURCES, HOLDERS, WORKERS)
def test_what_follows_from_the_shares_is_the_same_again(sources, holders, workers):
    """A worker keeps its share: nothing moves to and fro."""
    shares = spread(sources, holders, workers)
    assert spread(sources, shares, workers) == shares


@given(SOURCES, HOLDERS, WORKERS)
def test_no_more_sources_move_than_an_even_share_needs(sources, holders, workers):
    """A source leaves a worker that lives only if it has more than the largest fair share, or one of too many such."""
    shares = spread(sources, holders, workers)
    held = Counter(holders[source] for source in sources if holders.get(source) in workers)
    moved = sum(shares[source] != holders[source] for source in sources if holders.get(source) in workers)
    least, more = divmod(len(sources), max(1, len(workers)))
    kept = sum(least + (place < more) for place in range(len(workers)))
    assert kept == len(sources) or not workers
    richest = sorted((held[worker] for worker in workers), reverse=True)
    needed = sum(max(0, count - (least + (place < more))) for place, count in enumerate(richest))
    assert moved == needed


def test_a_dead_workers_sources_go_to_the_others():
    """Three recorders of six sources, of which one dies."""
    holders = {f"dstack/{number}": "abc"[number % 3] for number in range(6)}
    after = spread(holders.keys(), holders, {"a", "b"})
    assert Counter(after.values()) == {"a": 3, "b": 3}
    assert all(after[source] == worker for source, worker in holders.items() if worker != "c")
