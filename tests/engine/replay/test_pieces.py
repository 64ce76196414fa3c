"""Law: pieces of a record folded apart and joined are the record folded in one go, byte by byte."""

from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stenotest.dstack_history import DstackHistory, run_item
from stenotest.event_world import marked
from stenotest.inline_pool import InlinePool
from stenotest.records import temporary_record
from stenotest.rule_texts import ADOPTIONS

from steno.engine.fold.poll_reader import Until
from steno.engine.providers.registry import READINGS, every_rule_set
from steno.engine.replay.pieces import packed
from steno.engine.replay.replay import open_trace, replay_polls, replay_record
from steno.engine.replay.result import diff_object
from steno.events import types
from steno.events.clock import foreign_run_id
from steno.events.poll import Poll
from steno.events.store.record import Batch, Record

pytestmark = pytest.mark.slow

TRACES = Path(__file__).parents[2] / "traces"
NAMES = (
    "dstack-0.22.5/several",
    "dstack-0.22.5/warm_reuse",
    "dstack-0.22.5/unreachable",
    "dstack-0.22.5/no_capacity",
    "dstack-0.22.5/retry_success",
    "dstack-0.19.37/failure",
    "slurm-22.05/success",
    "slurm-22.05/checkpoint",
)
OURS = "0e0e0e0e-0000-4000-8000-00000000000{}"


@cache
def polls_of(name: str) -> tuple[Poll, ...]:
    """Some of a recording's polls, in order: every eighth of each endpoint, and its last polls."""
    polls = [poll for _, poll in open_trace(TRACES / f"{name}.jsonl.zst") if poll is not None]
    return tuple([poll for number, poll in enumerate(polls) if number // 6 % 8 == 0 or number > len(polls) - 12])


@cache
def shown_by(name: str) -> str:
    """The provider's id of the newest run that a recording shows."""
    runs = replay_polls((number, poll) for number, poll in enumerate(polls_of(name), 1)).runs
    return runs[-1].provider_id or ""


def project_of(name: str) -> str:
    """The project of a recording, as its polls name it."""
    return name.rpartition("/")[2].replace("_", "-")


def as_recorded(poll: Poll, project: str) -> Poll:
    """As Steno's own recorder names the source of a project's log."""
    return msgspec.structs.replace(poll, source=f"{poll.source}/{project}") if "/" not in poll.source else poll


recordings = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from(("live", "live", "live", "imported", "imported as another", "with its log apart")),
)
SITE = Path(__file__).parents[3] / "docs" / "examples" / "rules" / "site.toml"
own_events = st.tuples(
    st.sampled_from(("request", "hand over", "stop", "requeue", "start", "hide", "policy", "rules", "fleet")),
    st.integers(0, 5),
)


class Teller:
    """Records the polls of several recordings in turns, and events of our own between them."""

    def __init__(self, record: Record, sources: list[tuple[str, str]]) -> None:
        self.record = record
        self.sources = sources
        self._left = [list(self._polls(number)) for number in range(len(sources))]

    def _polls(self, number: int) -> list[Poll]:
        name, how = self.sources[number]
        polls = polls_of(name)
        project = project_of(name)
        if how == "with its log apart":
            return list(polls)
        kept = [as_recorded(poll, project) for poll in polls]
        if how == "imported as another":
            provider = kept[0].source.partition("/")[0]
            kept = [msgspec.structs.replace(poll, source=f"{provider}/as-{number}") for poll in kept]
        return kept

    def poll(self, number: int, count: int) -> None:
        """The next polls of one recording."""
        number %= len(self.sources)
        now, self._left[number] = self._left[number][:count], self._left[number][count:]
        ids = None
        if self.sources[number][1].startswith("imported"):
            ids = [f"{number:02x}{len(self._left[number]):04x}{place:04x}" for place in range(len(now))]
        self.record.append_polls(now, ids=ids)

    def rest(self) -> None:
        for number, left in enumerate(self._left):
            self.poll(number, len(left))

    def tell(self, kind: str, number: int) -> None:
        """An event of our own, about one of the recordings."""
        name, _ = self.sources[number % len(self.sources)]
        poll = as_recorded(polls_of(name)[0], project_of(name))
        provider, _, project = poll.source.partition("/")
        run_id, provider_id = OURS.format(number), shown_by(name)
        event: Any
        match kind:
            case "request":
                project = project if number != 5 else "nobody-polls-it"
                event = types.RunRequested(
                    run_id=run_id,
                    provider=provider,
                    project=project,
                    name=f"n-{number}",
                    configuration=b"{}",
                    submitter="a",
                )
            case "hand over":
                event = types.SubmitSucceeded(
                    run_id=run_id, provider=provider, provider_id=provider_id, name=f"n-{number}"
                )
            case "stop":
                event = types.StopRequested(
                    run_id=foreign_run_id(provider, provider_id), provider=provider, name="n", submitter="a"
                )
            case "requeue":
                event = types.RunRequeued(
                    run_id=run_id, provider=provider, provider_id=provider_id, attempt=2, not_before=0
                )
            case "start":
                event = types.RecorderStarted(source=poll.source, software="steno")
            case "hide":
                event = types.SourceHidden(source=poll.source, by="a")
            case "policy":
                event = types.PolicyAdopted(source=poll.source, policy=b"{}")
            case "rules":
                event = ADOPTIONS[number % len(ADOPTIONS)]
            case _:
                event = types.FleetEnsured(provider=provider, project=project, name="lab-fleet")
        self.record.append_many([Batch(f"told/{number}", [event])])


steps = st.lists(
    st.one_of(
        st.tuples(st.just("poll"), st.integers(0, 4), st.sampled_from((1, 7, 60))),
        st.tuples(st.just("tell"), own_events, st.none()),
    ),
    max_size=40,
)
UNSHRUNK = [*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture]


def compare(
    folder: Path, sources: list[tuple[str, str]], story: list[Any], rules: tuple[str, str], size: int, until: float
) -> None:
    """The results of both ways, and their differences, are equal; also up to a position and a moment."""
    for old in folder.glob("record.db*"):
        old.unlink()
    with temporary_record(folder, shapes=READINGS.shape) as record:
        teller = Teller(record, sources)
        for kind, what, count in story:
            if kind == "poll":
                teller.poll(what, count)
            else:
                teller.tell(*what)
        teller.rest()
        position = round(record.head().position * until)
        middle = record.at(max(position, 1))
        assert middle is not None
        for limit in (None, Until(position=position), Until(at=middle.observed_at)):
            serial = [replay_record(record, name, limit) for name in rules]
            apart = [replay_record(record, name, limit, pool=InlinePool(size)) for name in rules]
            for whole, other in zip(serial, apart, strict=True):
                assert msgspec.json.encode(other.to_json()) == msgspec.json.encode(whole.to_json())
            assert msgspec.json.encode(diff_object(*apart)) == msgspec.json.encode(diff_object(*serial))


@given(
    sources=st.lists(recordings, min_size=1, max_size=5),
    story=steps,
    rules=st.tuples(st.sampled_from(["current", "adopted"]), st.sampled_from([*sorted(every_rule_set()), str(SITE)])),
    size=st.integers(2, 6),
    until=st.floats(0.1, 0.9),
)
@settings(max_examples=settings.default.max_examples // 6, suppress_health_check=UNSHRUNK)
def test_pieces_joined_are_the_whole(
    sources: list[tuple[str, str]], story: list[Any], rules: tuple[str, str], size: int, until: float, tmp_path: Path
) -> None:
    """The law holds for any recordings, live and imported, that depend on each other or not, under any rules."""
    compare(tmp_path, sources, story, rules, size, until)


def recorded(folder: Path, *stories: DstackHistory) -> Record:
    """A record of some projects, polled in turns."""
    record = temporary_record(folder, shapes=READINGS.shape)
    polls = [[poll for _, poll in story.polls() if poll is not None] for story in stories]
    for turn in range(max(map(len, polls))):
        record.append_polls([of[turn] for of in polls if turn < len(of)])
    return record


def project(name: str, **more: Any) -> DstackHistory:
    """A project in which one run is listed three times."""
    story = DstackHistory(project=name)
    for status in ("submitted", "provisioning", "running"):
        story.listed(run_item(f"of-{name}", status, project=name, **more)).wait(5)
    return story


def maps(record: Record, size: int = 4) -> list[int]:
    """How many pieces were folded at once, each time; the result is that of one fold."""
    pool = InlinePool(size)
    assert replay_record(record, pool=pool).to_json() == replay_record(record).to_json()
    return pool.maps


def test_projects_are_folded_apart(tmp_path: Path) -> None:
    """Each in a piece of its own, once; not more pieces than are worked on at once."""
    with recorded(tmp_path, *map(project, "abcde")) as record:
        assert maps(record, 5) == [5]
        assert maps(record, 2) == [2]


def test_one_source_is_one_piece(tmp_path: Path) -> None:
    """Its history is folded here, in one go."""
    with recorded(tmp_path, project("a")) as record:
        assert maps(record) == []


def test_sources_that_show_one_run_are_folded_together(tmp_path: Path) -> None:
    """Pieces that meet are folded once more, as one; the others are not."""
    again = DstackHistory(project="b")
    again.listed(run_item("of-a", "running", project="a"))
    with recorded(tmp_path, project("a"), again, project("c"), project("d")) as record:
        assert maps(record) == [4, 1]


def test_a_source_that_asks_for_all_projects_is_folded_with_all(tmp_path: Path) -> None:
    """A run that it leaves out may be of any project."""
    everything = project("c").poll("/api/runs/list", {"limit": 100}, [])
    everything.lines[-1]["req"] = {"limit": 100}
    record = recorded(tmp_path, project("a"), project("b"))
    with record:
        polls = [msgspec.structs.replace(poll, source="dstack/c") for _, poll in everything.polls() if poll is not None]
        record.append_polls(polls)
        assert maps(record) == [3, 1]


def test_a_mark_of_another_projects_run_joins_the_two(tmp_path: Path) -> None:
    """It is reported at the run that carries it, and says what the other one is."""
    copy = DstackHistory(project="b").listed(marked(run_item("copy", "running", project="b"), OURS.format(1)))
    record = recorded(tmp_path, project("a"))
    with record:
        request = types.RunRequested(
            run_id=OURS.format(1), provider="dstack", project="a", name="x", configuration=b"{}", submitter="a"
        )
        record.append_many([Batch(f"run/{OURS.format(1)}", [request])])
        record.append_polls([poll for _, poll in copy.polls() if poll is not None])
        assert maps(record) == [2, 1]
        assert [anomaly.kind for anomaly in replay_record(record).anomalies] == ["ambiguous_submission"]


@given(weights=st.dictionaries(st.sampled_from([f"p{n}/{name}" for n in range(3) for name in "abcd"] + ["p0", "p1"]),
                               st.integers(0, 50)), bins=st.integers(1, 6))  # fmt: skip
def test_sources_are_packed_whole_and_evenly(weights: dict[str, int], bins: int) -> None:
    """Each once; no bin is empty, and none is heavier than the lightest by more than its lightest source."""
    packs = packed(weights, bins)
    assert sorted(chain(*packs)) == sorted(weights)
    assert all(packs)
    assert len(packs) <= bins
    sums = [sum(weights[name] for name in names) for names in packs]
    if not weights.keys() & {"p0", "p1"}:
        for names, weight in zip(packs, sums, strict=True):
            assert weight - min(weights[name] for name in names) <= min(sums)
