"""Traces and metrics, against a real HTTP server that decodes them with OpenTelemetry's own messages."""

import json
from itertools import pairwise
from uuid import UUID

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from stenotest.gated_run import holding
from stenotest.traces import gauges_of, requests_of, spans_of, values

from steno.engine.decide.budget import spent
from steno.engine.errors import NotConfigured
from steno.engine.notify import collector as traces
from steno.engine.notify import notices as notices_module
from steno.engine.notify import webhook as posting
from steno.engine.notify.collector import EVERY, MOST_SAMPLED, Collector, collector_at, metrics_of
from steno.engine.notify.routes import Route
from steno.engine.state.samples import Sample, pack
from steno.events import types
from steno.events.clock import SECOND

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """A server of this machine answers, however late."""
    monkeypatch.setattr(posting, "TIMEOUT", 600.0)


@pytest.fixture
def traced(open_bench, tmp_path, hook):
    """A bench whose ends of runs go to the collector."""
    return open_bench(tmp_path / "record.db", collector=Collector(url=hook.url + "/v1/traces"))


def outcomes(bench):
    return bench.facts("NoticeDelivered", "NoticeFailed")


def until_told(bench, count=1):
    bench.poll_until(lambda: len(outcomes(bench)) >= count)


def test_a_run_is_a_trace_with_its_states_and_its_polls(traced, hook):
    """A root, a child for each state in which it was, and links to the polls that say so."""
    run = traced.finish(traced.ask("exit 3", name="matmul"))
    until_told(traced)
    (request,) = requests_of(hook)
    (resource,) = request.resource_spans
    assert values(resource.resource.attributes) == {"service.name": "steno", "steno.record": traced.record.id}
    root, *phases = spans_of(request)
    assert root.trace_id == UUID(run.run_id).bytes
    assert (root.name, root.parent_span_id, root.kind) == ("matmul", b"", Span.SPAN_KIND_INTERNAL)
    assert (root.status.code, root.status.message) == (Status.STATUS_CODE_ERROR, "exit_nonzero")
    attributes = values(root.attributes)
    assert (attributes["steno.run_id"], attributes["steno.state"], attributes["steno.exit_status"]) == (
        run.run_id,
        "failed",
        3,
    )
    assert attributes["steno.rule"] == run.rule
    assert [values(link.attributes)["steno.position"] for link in root.links] == list(run.evidence)
    steps = run.transitions
    assert [phase.name for phase in phases] == [steps[0].before.value, *(step.after.value for step in steps[:-1])]
    causes = [[values(link.attributes)["steno.position"] for link in phase.links] for phase in phases]
    assert causes == [[], *([step.position] for step in steps[:-1])]
    for phase in phases:
        assert (phase.trace_id, phase.parent_span_id) == (root.trace_id, root.span_id)
        assert root.start_time_unix_nano <= phase.start_time_unix_nano <= phase.end_time_unix_nano
        assert phase.end_time_unix_nano <= root.end_time_unix_nano
    assert all(left.end_time_unix_nano == right.start_time_unix_nano for left, right in pairwise(phases))
    ids = [span.span_id for span in (root, *phases)]
    assert len(set(ids)) == len(ids)
    assert all(len(span_id) == 8 and any(span_id) for span_id in ids)
    assert root.start_time_unix_nano % 1000 == 0
    assert root.end_time_unix_nano // 1000 == run.finished_at


def test_what_is_sent_again_is_the_same_trace(traced, hook, open_bench, tmp_path):
    """By the same process after a refusal, and by the next one after a crash, byte for byte."""
    hook.answers = [503, "close"]
    traced.finish(traced.ask("true"))
    until_told(traced, 1)
    traced.clock.ahead += 2 * SECOND
    until_told(traced, 2)
    traced.controller.close()
    after = open_bench(tmp_path / "record.db", collector=traced.collector)
    after.clock.ahead = traced.clock.ahead + 10 * SECOND
    until_told(after, 3)
    bodies = {body for _, body in hook.taken}
    assert len(hook.taken) == 3
    assert len(bodies) == 1
    assert [type(notice).__name__ for notice in outcomes(after)] == ["NoticeFailed", "NoticeFailed", "NoticeDelivered"]
    assert "the collector answered 503" in outcomes(after)[0].error
    assert all(hook.url not in str(notice) for notice in outcomes(after))


def test_only_what_ends_while_somebody_looks_is_told(open_bench, tmp_path, hook):
    """Nothing of the past is sent by the first recorder with an endpoint, and nothing twice by the next."""
    before = open_bench(tmp_path / "record.db")
    before.finish(before.ask("true", name="past"))
    before.controller.close()
    names = []
    for name in ("first", "second"):
        bench = open_bench(tmp_path / "record.db", collector=Collector(url=hook.url + "/v1/traces"))
        bench.controller.round()
        bench.finish(bench.ask("true", name=name))
        until_told(bench, len(names) + 1)
        bench.controller.close()
        names.append(name)
    assert [
        span.name for request in requests_of(hook) for span in spans_of(request) if not span.parent_span_id
    ] == names


def test_runs_that_end_together_share_requests(traced, hook, gate):
    """Each is a trace of its own."""
    runs = [traced.ask(holding(gate)) for _ in range(12)]
    traced.poll_until(lambda: all(traced.run(run).started_at for run in runs if run in traced.world.state.runs))
    gate.touch()
    traced.poll_until(lambda: len(roots(hook)) == len(runs))
    assert roots(hook) == {UUID(run).bytes for run in runs}
    assert len(requests_of(hook)) < len(runs)


def roots(hook):
    return {span.trace_id for request in requests_of(hook) for span in spans_of(request) if not span.parent_span_id}


def test_the_webhook_and_the_collector_each_get_their_own(open_bench, tmp_path, hook):
    """A receiver that is down does not hold up the other."""
    broken = "http://127.0.0.1:9/v1/traces"
    bench = open_bench(
        tmp_path / "record.db",
        notify=Route(url=hook.url, kinds=frozenset({"run_end"})),
        collector=Collector(url=broken),
    )
    for number in range(notices_module.ROOM + 2):
        bench.finish(bench.ask("true", name=f"run-{number}"))
    bench.poll_until(lambda: len(hook.taken) == notices_module.ROOM + 2)
    assert {json.loads(body)["kind"] for _, body in hook.taken} == {"run_end"}
    kinds = [notice.kind for notice in bench.facts("NoticeIntended")]
    assert kinds.count("trace") == notices_module.ROOM


def test_an_endpoint_is_read_as_exporters_read_it(monkeypatch):
    """Without the path of a signal; and the library is asked for by name."""
    assert collector_at(None) is None
    assert collector_at("") is None
    for endpoint in ("http://x:4318", "http://x:4318/", "http://x:4318/v1/traces"):
        assert collector_at(endpoint) == Collector(url="http://x:4318/v1/traces")
        assert collector_at(endpoint).metrics == "http://x:4318/v1/metrics"
    assert "x:4318" not in repr(collector_at("http://x:4318"))
    monkeypatch.setattr(traces, "find_spec", lambda _: None)
    with pytest.raises(NotConfigured, match="EXTRAS=otlp"):
        collector_at("http://x:4318")


def sampled(bench, run_id, *samples):
    """Record these samples of a run."""
    event = types.SamplesRecorded(
        run_id=run_id, provider="local", provider_id="1", source="amd-smi", block=pack(samples)
    )
    bench.journal.write(f"run/{run_id}", event)


def test_metrics_are_sent_each_minute(open_bench, tmp_path, hook, gate):
    """They show the world as it is then: what ran, what is paid for, and what the GPUs of running runs did last."""
    bench = open_bench(
        tmp_path / "record.db",
        collector=Collector(url=hook.url + "/v1/traces"),
        price=3_600_000_000,
        gpu="MI300X",
        gpu_count=1,
    )
    bench.finish(bench.ask("true"))
    run_id = bench.ask(holding(gate))
    bench.poll_until(lambda: run_id in bench.world.state.runs and bench.run(run_id).started_at)
    assert gauges_of(hook) == []
    now = bench.clock.now()
    bench.clock.ahead += EVERY
    old = Sample(at=now, device="0", use=1, power=1)
    sampled(
        bench, run_id, old, Sample(at=now + SECOND, device="0", use=40, power=300), Sample(at=now, device="", use=9)
    )
    bench.poll_until(lambda: gauges_of(hook))
    ((about, gauges),) = gauges_of(hook)
    assert about == {"service.name": "steno", "steno.record": bench.record.id, "steno.source": bench.provider.source}
    states = [run.state.value for run in bench.world.state.runs.all()]
    assert {state: count for (state,), count in gauges["steno.runs"].items() if count} == {
        state: states.count(state) for state in states
    }
    assert gauges["steno.machines"] == {("busy", "MI300X:1"): 1}
    assert gauges["steno.cost.hourly"] == {(): 3600}
    assert 0 < gauges["steno.spend"][()] * 1_000_000 <= spent(bench.world.state)
    assert gauges["steno.gpu.use"] == {(run_id,): 40}
    assert gauges["steno.gpu.power"] == {(run_id,): 300}
    for _ in range(3):
        bench.controller.round()
    assert len(gauges_of(hook)) == 1
    bench.clock.ahead += EVERY
    bench.poll_until(lambda: len(gauges_of(hook)) == 2)


def test_metrics_that_are_not_taken_are_dropped(traced, hook):
    """No event says so, nothing is sent again, traces go on, and the next minute's are sent."""
    hook.answers = ["close", 503]
    traced.controller.round()  # what ends from now on is news
    for count in (1, 2, 3):
        traced.clock.ahead += EVERY
        traced.poll_until(lambda count=count: len(hook.taken) == count)
    assert outcomes(traced) == []
    traced.finish(traced.ask("true"))
    until_told(traced)
    assert [type(notice).__name__ for notice in outcomes(traced)] == ["NoticeDelivered"]


def test_only_the_holder_sends_metrics(traced, hook, open_bench, tmp_path):
    """Whoever follows the record sends none."""
    assert traced.controller.hold()
    other = open_bench(tmp_path / "record.db", collector=traced.collector)
    other.clock.ahead += 2 * EVERY
    for _ in range(3):
        assert not other.controller.watch().polls
    assert hook.taken == []


def test_metrics_have_a_bound(traced, gate):
    """However many runs there are, and whatever is recorded of them; samples that are old, or of a run that ended, are
    not there.
    """
    now = traced.clock.now()
    (run_id, other, ended) = (traced.ask(holding(gate)), traced.ask(holding(gate)), traced.ask("true"))
    traced.finish(ended)
    traced.poll_until(lambda: all(traced.run(run).started_at for run in (run_id, other)))
    sampled(traced, run_id, Sample(at=now, device="0", use=1, power=2))
    sampled(traced, other, Sample(at=now - 3600 * SECOND, device="0", use=1, power=2))
    sampled(traced, ended, Sample(at=now, device="0", use=1, power=2))
    record, state = traced.record, traced.journal.state()
    of_runs = [run for run, _ in traces.newest_samples(record, state.runs.all(), now)]
    assert [run.run_id for run in of_runs] == [run_id]
    many = list(traces.newest_samples(record, [state.runs[run_id]] * (MOST_SAMPLED + 50), now))
    assert len(many) == MOST_SAMPLED
    assert len(metrics_of(traced.provider.source, state, record, now)) < 10_000
