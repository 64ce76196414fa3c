"""An incident bundle opens anywhere, proves itself, hides what it was told to hide, and refuses to be changed."""

import json
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stenotest.bundle_files import lines_of, recorded, refused, sealed, unpacked, written
from stenotest.in_process import InProcess

from steno.engine.providers.registry import READINGS
from steno.engine.replay.redaction import KINDS, Private
from steno.events import types
from steno.events.bundle.form import VERSION, AnyLine, BundleEvent, BundlePart, Checker, Manifest, encoded, position_of
from steno.events.clock import SystemClock
from steno.events.errors import NotARecord, RecordTooNew
from steno.events.store.record import Record

TRACES = Path(__file__).parent.parent / "traces"
BUNDLES = Path(__file__).parent.parent / "incidents" / "bundles"
ALL = ",".join(KINDS)
DSTACK = TRACES / "dstack-0.22.5" / "success.jsonl.zst"
DSTACK_WORDS = (
    "ok-run", "admin", "lab-fleet", "echo hello", "sleep 8", "rocm/dev-ubuntu-24.04", "127.0.22.1", "400000001",
)  # fmt: skip
SLURM = TRACES / "slurm-22.05" / "fail_exit1.jsonl.zst"
_line = msgspec.json.Decoder(AnyLine)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A redacted bundle of the dstack recording, and its record, for tests that change neither."""
    folder = tmp_path_factory.mktemp("bundles")
    recorded(folder / "record.db", DSTACK)
    InProcess(folder).page("export", "ok-run", "-o", folder / "i.steno", "--redact", ALL)
    return folder


def verdicts(call: InProcess, *words: object) -> list[Any]:
    """The runs of a replay without their names."""
    runs = call.json("replay", *words)["runs"]
    return [{key: run[key] for key in run if key not in ("name", "vm_id", "attempt_list")} for run in runs]


@pytest.mark.parametrize(
    ("trace", "run", "words"),
    [
        (DSTACK, "ok-run", DSTACK_WORDS),
        (TRACES / "dstack-0.22.5" / "warm_reuse.jsonl.zst", "warm-b", ("warm-b", "warm-a", "lab-fleet")),
        (SLURM, "bad", ("games", "node1", "/lab/jobs")),
    ],
)
def test_a_redacted_bundle_has_no_redacted_byte_and_the_same_verdicts(
    call: InProcess, elsewhere: InProcess, tmp_path: Path, trace: Path, run: str, words: tuple[str, ...]
) -> None:
    """The chain proves its events though values are hidden, and its record writes just this bundle again."""
    record, bundle = tmp_path / "record.db", tmp_path / "i.steno"
    recorded(record, trace)
    done = call.json("export", run, "-o", bundle, "--redact", ALL)
    content = unpacked(bundle)
    assert not [word for word in words if word.encode() in content]
    with Record.open(record, shapes=READINGS.shape, clock=SystemClock()) as opened:
        private = Private(opened, KINDS)
        chosen = [line.position for line in Checker(bundle).lines() if isinstance(line, BundleEvent) and line.data]
        for position in chosen:
            private.read(position)
    strict = [value for value in private.values if len(value) > 3 and value not in "\n".join(private.keys)]
    assert set(words) & set(private.values)
    assert not [value for value in strict if value.encode() in content]
    proof = elsewhere.json("verify", bundle)
    assert (proof["ok"], proof["digest"], proof["events"]) == (True, done["digest"], len(chosen))
    assert proof["linked"] == len([at for at in chosen if at >= Checker(bundle).manifest.first])
    elsewhere.page("verify", bundle, "--against", record)
    mine = [run for run in verdicts(call) if run["run_id"] in done["runs"]]
    assert mine == [run for run in verdicts(elsewhere, bundle) if run["run_id"] in done["runs"]]
    assert mine


def test_events_of_our_own_are_redacted_too(call: InProcess, elsewhere: InProcess, tmp_path: Path) -> None:
    """The request's task, its folder and who asked; its verdict and id stay."""
    run = {"run_id": "0198f6a2-0000-7000-8000-000000000001", "provider": "dstack"}
    task = json.dumps({"type": "task", "name": "ok-run", "commands": ['echo "hello"', "sleep 8"], "image": "mine:1"})
    request = types.RunRequested(
        **run, project="success", name="ok-run", configuration=task.encode(), base="/home/maria/x", submitter="maria"
    )
    outcome = types.SubmitSucceeded(**run, provider_id="715be8a6-21f6-455a-a173-23185de966a5", name="ok-run", sent=task)
    recorded(tmp_path / "record.db", DSTACK, request, types.SubmitIntended(**run, name="ok-run", marked=True), outcome)
    bundle = tmp_path / "i.steno"
    call.page("export", "ok-run", "-o", bundle, "--redact", ALL)
    content = unpacked(bundle)
    assert not [word for word in ("maria", "mine:1", 'echo "hello"', *DSTACK_WORDS) if word.encode() in content]
    page = elsewhere.json("show", bundle)
    assert (page["run_id"], page["state"]) == (run["run_id"], "succeeded")
    elsewhere.page("verify", bundle, "--against", tmp_path / "record.db")


def test_values_that_are_words_of_ours_are_hidden_where_they_are_values(
    call: InProcess, elsewhere: InProcess, tmp_path: Path
) -> None:
    """A host `vm`, a command `true`, a run `7`: streams, answers' kinds, literals and numbers stay."""
    machine = {"id": "m1", "hostname": "vm", "price": 1_990_000}
    run = {
        "id": "r1", "name": "7", "host": "vm", "user": "run", "mark": None, "submitted_at": 7, "status": "ended",
        "reason": "exited", "exit_status": 0, "ended_at": 17, "machine": machine, "command": ["true", "--seven"],
        "folder": "/srv/7", "max_duration": 7, "grace": None, "ignored": [], "task": {},
    }  # fmt: skip
    line = {"t": "2026-11-20T13:00:00Z", "path": "/local/runs", "req": {"host": "vm"}, "status": 200, "ms": 7}
    trace = tmp_path / "t.jsonl"
    trace.write_text(json.dumps(line | {"body": [run]}) + "\n")
    recorded(tmp_path / "record.db", trace)
    call.page("export", "7", "-o", tmp_path / "i.steno", "--redact", ALL)
    content = unpacked(tmp_path / "i.steno")
    assert not re.search(
        rb'"vm\W|/vm\W|--seven|/srv/7|\W"7\W', content.replace(b'"text":"vm', b"").replace(b"vm/", b"")
    )
    assert b"true" in content
    page = elsewhere.json("show", tmp_path / "i.steno")
    assert (page["state"], page["exit_status"], page["ran"]["user"][:5]) == ("succeeded", 0, "name_")
    elsewhere.page("verify", tmp_path / "i.steno", "--against", tmp_path / "record.db")


def test_an_archive_is_exported_too(call: InProcess, elsewhere: InProcess, tmp_path: Path) -> None:
    """Ids of imported polls are hashes of what is hidden, so the chain alone proves little of a redacted bundle."""
    call.page("import", SLURM)
    for kinds, all_linked in ((), True), (("--redact", "names"), False):
        done = call.json("export", "bad", "-o", tmp_path / "i.steno", *kinds)
        proof = elsewhere.json("verify", tmp_path / "i.steno", "--against", tmp_path / "record.db")
        assert (proof["ok"], proof["linked"] == done["events"]) == (True, all_linked)
        assert elsewhere.json("show", tmp_path / "i.steno")["archive"]


def test_a_short_name_may_stand_in_the_bytes_of_a_sweep(call: InProcess, tmp_path: Path) -> None:
    """By chance: what is random there is not a name. The export was refused."""
    lines = [line.replace(b'"ok-run"', b'"a2"') for line in lines_of(DSTACK)]
    polls = [json.loads(line) | {"sweep": b" a2 ".hex() * 4} for line in lines]
    trace = tmp_path / "short.jsonl"
    trace.write_text("\n".join(map(json.dumps, polls)))
    recorded(tmp_path / "record.db", trace)
    call.page("export", "a2", "-o", tmp_path / "i.steno", "--redact", ALL)
    assert b'"a2"' not in unpacked(tmp_path / "i.steno")


def test_a_bundle_without_redaction_is_as_the_record(call: InProcess, elsewhere: InProcess, tmp_path: Path) -> None:
    """Several runs in one bundle, each with its costs and machine; commands without a run mean those of the bundle."""
    recorded(tmp_path / "record.db", TRACES / "dstack-0.22.5" / "warm_reuse.jsonl.zst")
    bundle = tmp_path / "i.steno"
    done = call.json("export", "warm-a", "warm-b", "-o", bundle)
    head = done["head"]
    assert "every byte unchanged" in call.page("verify", "--expect", head)
    for command in ("show", "explain", "timeline"):
        texts = [line for line in elsewhere.page(command, bundle).splitlines() if line.startswith("warm-")]
        assert [text.split()[0] for text in texts] == ["warm-a", "warm-b"]
    fields = ("cost_usd", "start", "vm_id", "evidence", "finished_at")
    for name in ("warm-a", "warm-b"):
        here, there = call.json("show", name), elsewhere.json("show", bundle, name)
        assert [here[field] for field in fields] == [there[field] for field in fields]
    assert "warm-a" in elsewhere.page("ps", "--all", "--record", bundle)
    assert elsewhere.page("verify", "--record", bundle) == elsewhere.page("verify", bundle)
    assert elsewhere.json("costs", "--record", bundle)["total"]


def test_a_record_may_be_named_as_a_bundle_is(call: InProcess, tmp_path: Path) -> None:
    """Its content decides."""
    recorded(tmp_path / "mine.steno", DSTACK)
    assert call("--record", tmp_path / "mine.steno", "show", "ok-run").exit_code == 0
    assert call("--record", tmp_path / "new.steno", "submit", "--", "true").exit_code == 0
    assert call("--record", tmp_path / "mine.steno", "export", "ok-run", "-o", tmp_path / "theirs.steno").exit_code == 0
    assert call("show", tmp_path / "theirs.steno").exit_code == 0


def test_what_would_write_or_call_a_provider_is_refused(shared: Path, elsewhere: InProcess) -> None:
    bundle = shared / "i.steno"
    for words in (("stop", bundle), ("logs", bundle), ("import", DSTACK, "--record", bundle)):
        code, line = refused(elsewhere, *words)
        assert (code, "incident bundle" in line) == (8, True)
    assert elsewhere.json("workers", "--record", bundle) is not None
    again = ("export", "-o", shared / "again.steno", "--record", bundle, Checker(bundle).manifest.runs[0])
    code, line = refused(elsewhere, *again)
    assert (code, "export from the record" in line) == (2, True)
    assert not (shared / "again.steno").exists()


def test_verify_names_the_event_of_an_edited_byte(shared: Path, elsewhere: InProcess, tmp_path: Path) -> None:
    """A byte of each of many lines; a part is named by the first event that uses it; and nothing opens it."""
    lines = lines_of(shared / "i.steno")
    positions = [position_of(line) for line in lines]
    for number in range(1, len(lines) - 1, len(lines) // 40):
        expected = next(at for at in positions[number:] if at is not None)
        line, at = lines[number], lines[number].rindex(b'":"') + 4
        changed = [*lines[:number], line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :], *lines[number + 1 :]]
        damage = Checker(written(tmp_path / "x.steno", changed)).run().damage
        assert expected in [each.position for each in damage]
    code, line = refused(elsewhere, "verify", tmp_path / "x.steno")
    assert (code, f"at position {expected}:" in line) == (7, True)
    code, line = refused(elsewhere, "replay", tmp_path / "x.steno")
    assert (code, "steno verify" in line) == (7, True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), data=st.data())
def test_no_byte_can_be_changed_unseen(
    shared: Path, tmp_path: Path, place: float, bit: int, data: st.DataObject
) -> None:
    """Nor a line left out, twice or elsewhere; and the check ends with an answer."""
    lines = lines_of(shared / "i.steno")
    number = data.draw(st.integers(0, len(lines) - 1))
    raw = lines[number]
    at = int(place * len(raw))
    flipped = [*lines[:number], raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :], *lines[number + 1 :]]
    without = [*lines[:number], *lines[number + 1 :]]
    retyped = [raw.replace(b'"type":1,', b'"type":0,') for raw in lines]  # a type that this version does not know
    for other in (flipped, retyped, without, [*lines[: number + 1], *lines[number:]], [*without, raw][: len(lines)]):
        if other != lines:
            try:
                assert not Checker(written(tmp_path / "h.steno", other)).run().ok
            except (NotARecord, RecordTooNew):  # its manifest
                assert number == 0


def test_a_forged_bundle_that_is_sealed_again_is_found(shared: Path, elsewhere: InProcess, tmp_path: Path) -> None:
    """Text that is not redacted is bound to the chain's hashes, redacted text to the record."""
    lines = [_line.decode(line) for line in lines_of(shared / "i.steno")]

    def forged(change: Callable[[AnyLine], AnyLine]) -> Path:
        return sealed(tmp_path / "f.steno", (change(line) for line in lines))

    events = [line for line in lines if isinstance(line, BundleEvent)]
    target = events[len(events) // 2]
    later = forged(lambda line: msgspec.structs.replace(line, at=line.at + 1) if line is target else line)
    assert [each.position for each in Checker(later).run().damage] == [target.position]
    without = sealed(tmp_path / "f.steno", (line for line in lines if line is not target))
    assert target.position in [each.position for each in Checker(without).run().damage]
    hidden = next(line for line in lines if isinstance(line, BundlePart) and line.salt is None)
    retold = forged(lambda line: msgspec.structs.replace(line, text=f"{line.text} ") if line is hidden else line)
    assert Checker(retold).run().ok
    code, line = refused(elsewhere, "verify", retold, "--against", shared / "record.db")
    assert (code, "is not what the record has" in line) == (5, True)


def test_without_redaction_everything_is_opened(call: InProcess, tmp_path: Path) -> None:
    """Else a forger would close what was changed: a part, the data of an event, or a whole event."""
    recorded(tmp_path / "record.db", SLURM)
    call.page("export", "bad", "-o", tmp_path / "i.steno")
    lines = [_line.decode(line) for line in lines_of(tmp_path / "i.steno")]
    part = next(line for line in lines if isinstance(line, BundlePart))
    event = next(line for line in reversed(lines) if isinstance(line, BundleEvent) and line.body is not None)
    closed = sha256(bytes.fromhex(event.salt or "") + (event.data or b"")).hexdigest()
    forgeries: list[tuple[AnyLine, dict[str, Any]]] = [
        (part, {"salt": None, "text": f"{part.text} "}),
        (event, {"salt": None, "commitments": closed, "data": b"\0"}),
        (event, {"hidden": True, "at": event.at + 1}),
        (event, {"body": None}),
    ]
    for line, change in forgeries:
        other = (msgspec.structs.replace(each, **change) if each is line else each for each in lines)
        assert not Checker(sealed(tmp_path / "f.steno", other)).run().ok, change


@pytest.mark.parametrize("kept", [0, 1, 40, 0.3, 0.9, -1])
def test_a_cut_bundle_is_one_clear_line(shared: Path, elsewhere: InProcess, tmp_path: Path, kept: float) -> None:
    whole, cut = (shared / "i.steno").read_bytes(), tmp_path / "cut.steno"
    cut.write_bytes(whole[: int(kept * len(whole)) if isinstance(kept, float) else kept])
    for command in ("verify", "replay", "show"):
        assert refused(elsewhere, command, cut)[0] == 7


def test_a_bomb_is_refused_before_it_fills_the_disk(elsewhere: InProcess, tmp_path: Path, shared: Path) -> None:
    manifest = lines_of(shared / "i.steno")[0]
    bomb = tmp_path / "bomb.steno"
    for line in (b"0" * (65 << 20), b"\n".join([b"0" * (1 << 20)] * 65)):
        written(bomb, [manifest, line])
        assert bomb.stat().st_size < 20_000
        assert refused(elsewhere, "replay", bomb)[0] == 7


def test_a_name_in_a_bundle_is_no_file(elsewhere: InProcess, tmp_path: Path, shared: Path) -> None:
    """Paths in names of streams, ids and parts lead nowhere."""
    lines = [_line.decode(line) for line in lines_of(shared / "i.steno")]
    names = {"stream": "source/../../../../x", "hidden": True, "salt": None}
    before = sorted(tmp_path.rglob("*"))
    bad = sealed(
        tmp_path / "p.steno",
        (msgspec.structs.replace(line, **names, version=n) if isinstance(line, BundleEvent) and line.data else line
         for n, line in enumerate(lines, 1)),
    )  # fmt: skip
    assert elsewhere("events", "--record", bad).exit_code == 0
    assert sorted(tmp_path.rglob("*")) == sorted([*before, bad])


def test_what_is_not_a_bundle_is_refused(elsewhere: InProcess, tmp_path: Path, shared: Path) -> None:
    later = msgspec.structs.replace(Checker(shared / "i.steno").manifest, version=VERSION + 1)
    cases = {
        "missing.steno": (None, 4, "There is no "),
        "text.steno": (b"hello\n", 7, "is not an incident bundle"),
        "later.steno": (encoded(later), 8, "update steno"),
        "broken.steno": (b'{"kind":"manifest","version":1}\n', 7, "manifest"),
    }
    for name, (content, code, words) in cases.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        for command in ("verify", "explain", "replay"):
            got, line = refused(elsewhere, command, tmp_path / name)
            assert (got, words in line) == (code, True), line


def test_words_that_make_no_bundle_are_usage_errors(call: InProcess, tmp_path: Path, shared: Path) -> None:
    bundle = tmp_path / "i.steno"
    for words, text in {
        ("export", "-o", bundle): "name them",
        ("export", "ok-run", "-o", bundle, "--redact", "name"): "did you mean names",
        ("export", "ok-run", "-o", bundle, "--redact", ","): "give any of names",
        ("export", "ok-run", "-o", bundle, "--from", "1h"): "leave --from",
        ("export", "ok-run", "--trace", "-", "--redact", "names"): "--redact is for a bundle",
        ("verify", bundle, "--jobs", 2): "leave the other options out",
        ("verify", "--against", bundle): "name one",
    }.items():
        code, line = refused(call, *words, STENO_RECORD=str(shared / "record.db"))
        assert (code, text in line) == (2, True), line
    assert refused(call, "export", "no-such", "-o", bundle, STENO_RECORD=str(shared / "record.db"))[0] == 4
    assert not list(tmp_path.glob("*.steno*"))


def test_bundles_of_every_version_are_read(elsewhere: InProcess) -> None:
    """The file of each version is kept as it was written."""
    for number, (run, state, reason, linked, redacted) in {
        1: ("df84ed27-5fc8-5c83-9dd3-843dcb71e90f", "succeeded", "exit_zero", 418, list(KINDS)),
        2: ("ef8ce72e-3ede-4998-8f35-e28d0aab6356", "failed", "exit_nonzero", 20, []),
    }.items():
        bundle = BUNDLES / f"version-{number}.steno"
        proof = elsewhere.json("verify", bundle)
        assert (proof["ok"], proof["linked"], proof["redacted"]) == (True, linked, redacted)
        assert Checker(bundle).manifest.version == number
        page = elsewhere.json("show", bundle)
        assert (page["run_id"], page["state"], page["reason"]) == (run, state, reason)
    assert elsewhere("logs", bundle).stdout == "hello\nfailed at step 7\n"


def test_the_manifest_says_what_the_bundle_is(shared: Path) -> None:
    """A reader needs no Steno to know what is in it."""
    first = _line.decode(lines_of(shared / "i.steno")[0])
    assert isinstance(first, Manifest)
    assert first.rules[0] == "current"
    assert {name.partition(":")[0] for name in first.pseudonyms} == set(KINDS)
