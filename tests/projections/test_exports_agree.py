"""Metrics and traces say what the commands say: money, states, machines, spans, GPUs; without a server."""

import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from stenotest.recorded_trace import FOR_LAWS, TRACES
from stenotest.sampled_record import SampledRecord
from stenotest.service import isolated
from stenotest.traces import spans_of, values

from steno.cli.wiring.http_service import assembled
from steno.engine.live.live_world import LiveWorld
from steno.engine.notify.collector import metrics_of, traces_of
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.engine.state.policy import Policy
from steno.engine.state.samples import Sample, pack
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND, Clock, SystemClock, parse_time
from steno.events.store.record import Record
from steno.events.types import SamplesRecorded
from steno.projections.answers.costs import costs
from steno.projections.answers.timeline import timeline_of
from steno.projections.api.operations import ServiceCollector
from steno.projections.api.service import Service
from steno.projections.frames import frame
from steno.projections.frames.perfetto import PerfettoTrace
from steno.projections.frames.run_tables import microusd
from steno.projections.frames.source import opened
from steno.projections.read_models.projector import caught_up
from steno.projections.read_models.view import View

Gauges = dict[str, dict[tuple[str, ...], float]]


@contextmanager
def looking(path: Path, clock: Clock | None = None) -> Iterator[tuple[Record, View, LiveWorld, Service]]:
    """The record, its read models, its world, and the parts of a service that is not started."""
    app = isolated(path)
    app.clock = app.clock if clock is None else clock
    with Record.open(path, shapes=READINGS.shape, clock=SystemClock()) as record, caught_up(record) as store:
        live = LiveWorld(READINGS, record)
        live.catch_up()
        service = assembled(app, path, live)
        with store.reading():
            yield record, View(store), live, service
        service.closing.close()
        service.pool.close()


def scraped(collector: ServiceCollector) -> tuple[Gauges, str]:
    """(each metric by the values of its labels, by name; the text)."""
    registry = CollectorRegistry()
    registry.register(collector)
    text = generate_latest(registry).decode()
    gauges = defaultdict[str, dict[tuple[str, ...], float]](dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            gauges[sample.name][tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return gauges, text


def sent(record: Record, live: LiveWorld, now: int) -> Gauges:
    """The metrics of all sources as OpenTelemetry gets them, added up."""
    gauges = defaultdict[str, dict[tuple[str, ...], float]](lambda: defaultdict(float))
    with live.reading() as state:
        assert state is not None
        for source in state.sources:
            (resource,) = ExportMetricsServiceRequest.FromString(
                metrics_of(source, state, record, now)
            ).resource_metrics
            for metric in resource.scope_metrics[0].metrics:
                for point in metric.gauge.data_points:
                    gauges[metric.name][tuple(map(str, values(point.attributes).values()))] += point.as_double
    return gauges


@pytest.fixture(scope="module", params=FOR_LAWS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of each recording."""
    made = tmp_path_factory.mktemp("record") / "record.db"
    with Record.open(made, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        record.append_polls([poll for _, poll in open_trace(TRACES / request.param) if poll is not None])
    return made


def test_figures_are_those_of_the_commands(path: Path) -> None:
    """Money, runs and machines are the figures of `costs`, `ps --all` and `vms --all`."""
    with looking(path) as (record, view, live, service):
        (prometheus, _), otlp = scraped(ServiceCollector(service)), sent(record, live, service.clock.now())
        report = costs(view.store, "vm").report
        for spent in (prometheus["steno_budget_spent_usd"][()], otlp["steno.spend"][()]):
            assert round(spent * DOLLAR) == report.total.total_usd
            assert report.low_usd <= round(spent * DOLLAR) <= report.high_usd
        assert prometheus["steno_spend_rate_usd_per_hour"] == pytest.approx(otlp["steno.cost.hourly"])
        runs = Counter((run.reason or "", run.state) for run in view.runs())
        assert {key: number for key, number in prometheus["steno_runs"].items() if number} == runs
        states = Counter((run.state,) for run in view.runs())
        assert {key: number for key, number in otlp["steno.runs"].items() if number} == states
        machines = Counter((vm.state,) for vm in view.vms() if vm.state != "terminated")
        assert {key: number for key, number in prometheus["steno_machines"].items() if number} == machines
        sums = Counter[tuple[str]]()
        for (state, _), number in otlp["steno.machines"].items():
            sums[state,] += int(number)
        assert sums == machines


def test_a_trace_has_the_states_of_the_timeline(path: Path) -> None:
    """Each run that ended has them up to its end; the picture for Perfetto has the seconds and sums of the tables."""
    with looking(path) as (record, view, live, service):
        with live.reading() as state:
            assert state is not None
            traces = traces_of(state.runs.ids(), state, record.id)
        spans = defaultdict[str, list[Any]](list)
        for span in spans_of(ExportTraceServiceRequest.FromString(traces)):
            spans[span.trace_id.hex()].append(span)
        for run in view.runs():
            whole, *phases = spans[run.run_id.replace("-", "")]
            if run.finished_at is None:
                continue
            end, line = parse_time(run.finished_at), timeline_of(view, view.row(run.run_id), service.clock.now())
            assert (whole.start_time_unix_nano, whole.end_time_unix_nano) == (line.start * 1000, end * 1000)
            assert [(span.name, span.start_time_unix_nano, span.end_time_unix_nano) for span in phases] == [
                (span.state, min(span.start, end) * 1000, min(span.end or end, end) * 1000) for span in line.spans
            ]
        with opened(record) as source:
            PerfettoTrace(source).write(file := BytesIO())
        slices = Counter[tuple[str, str]]()
        paid = 0
        for event in msgspec.json.decode(file.getvalue())["traceEvents"]:
            if event["ph"] == "X" and "vm_id" in event["args"]:
                slices[event["args"]["vm_id"], event["name"]] += event["dur"]
                paid += microusd(event["args"]["cost_usd"]) or 0
        seconds = Counter[tuple[str, str]]()
        for row in frame("intervals", record).to_arrow().to_pylist():
            seconds[row["vm_id"], row["phase"]] += round(row["seconds"] * SECOND)
        assert +slices == +seconds
        assert paid == sum(row["cost_microusd"] for row in frame("costs", record).to_arrow().to_pylist())


HOSTILE = 'MI "300"\\n\nX ü {a="b"}'


def test_gpus_are_those_of_the_samples(tmp_path: Path) -> None:
    """The newest sample of each GPU, under whatever name its provider gives; no label names a user."""
    site = SampledRecord(tmp_path, Policy(max_vms=2))
    site.begin("train", "m1")
    site.machine("m1", "busy", gpus=4, gpu=HOSTILE)
    site.sample("train", (80, 0, 2, 4), 60)
    now = site.clock.now()
    newest = [Sample(at=now, device=str(gpu), use=10 * gpu, memory=gpu, power=gpu or None) for gpu in range(4)]
    event = SamplesRecorded(run_id="run-train", provider="dstack", provider_id="1", source="x", block=pack(newest))
    site.write("run/run-train", event)
    site.record.close()
    with looking(tmp_path / "record.db", site.clock) as (record, view, live, service):
        (prometheus, text), otlp = scraped(ServiceCollector(service)), sent(record, live, now)
        rows: dict[str, dict[str, Any]] = {}
        for row in frame("samples", record).to_arrow().to_pylist():
            rows[row["device"]] = row
        gpus = [row for device, row in rows.items() if device]
        (source,) = view.state.sources
        ours = {name: values for name, values in prometheus.items() if name.startswith("steno_gpu_")}
        assert {name: values[HOSTILE, source] for name, values in ours.items()} == {
            "steno_gpu_runs": 1,
            "steno_gpu_low_use_runs": 0,
            "steno_gpu_devices": len(gpus),
            "steno_gpu_use_ratio": sum(row["use"] for row in gpus) / 100,
            "steno_gpu_memory_used_bytes": sum(row["memory_mib"] for row in gpus) << 20,
        }
        assert otlp["steno.gpu.use"] == {("run-train",): sum(row["use"] for row in gpus) / len(gpus)}
        assert otlp["steno.gpu.power"] == {("run-train",): sum(row["power_w"] or 0 for row in gpus)}
        assert otlp["steno.machines"] == {("busy", f"{HOSTILE}:4"): 1}
    named = {
        label for family in text_string_to_metric_families(text) for each in family.samples for label in each.labels
    }
    assert named <= {"source", "gpu", "state", "reason", "phase", "version", "python"}
    if shutil.which("promtool") is not None:
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_clock_turns_a_counter_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time in which a source was silent only grows, as a server's rate expects of it."""
    site = SampledRecord(tmp_path, Policy(max_vms=2))
    site.begin("train", "m1")
    site.record.close()
    with looking(tmp_path / "record.db", site.clock) as (_, _, _, service):
        collector, seen, begun = ServiceCollector(service), list[float](), site.clock.now()
        for seconds in (500, 5, 100, -1_000, 2_000):
            monkeypatch.setattr(site.clock, "now", lambda ahead=seconds: begun + ahead * SECOND)
            (total,) = scraped(collector)[0]["steno_source_blind_seconds_total"].values()
            seen.append(total)
    assert seen == [500, 500, 500, 500, 2_000]
