"""A bundle has the recorded output of its runs, proven as its events are."""

from pathlib import Path

import msgspec
import zstandard
from msgspec.structs import replace
from stenotest.in_process import InProcess
from stenotest.outputs import keep_output

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.events.bundle import form
from steno.events.bundle.form import AnyLine, BundleOutput, Checker, encoded
from steno.events.clock import SystemClock
from steno.events.store.output_rows import pack
from steno.events.store.record import Record

DSTACK = Path(__file__).parent.parent / "traces" / "dstack-0.22.5" / "success.jsonl.zst"
_line = msgspec.json.Decoder(AnyLine)


def lines_of(bundle: Path) -> list[AnyLine]:
    with bundle.open("rb") as file:
        return list(map(_line.decode, zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()))


def test_a_bundle_has_the_output_of_its_runs(call: InProcess, elsewhere: InProcess, tmp_path: Path) -> None:
    """Not a redacted one. A chunk that the record dropped since is still proven; an edited one is damage."""
    polls = [poll for _, poll in open_trace(DSTACK) if poll is not None]
    with Record.open(
        tmp_path / "record.db", write=True, create=True, shapes=READINGS.shape, clock=SystemClock()
    ) as record:
        record.append_polls(polls)
    run = call.json("show", "ok-run")
    with Record.open(tmp_path / "record.db", clock=SystemClock(), write=True) as record:
        ids = run["run_id"], run["provider_id"]
        positions = keep_output(record, *ids, b"one\n", b"two\n", b"three\n", provider="dstack", drop=[1])
    bundle = tmp_path / "i.steno"
    call.page("export", "ok-run", "-o", bundle)
    assert elsewhere("logs", bundle).stdout == "one\n… 4 bytes were not kept …\nthree\n"
    assert elsewhere.page("logs", bundle, "--search", "hre") == "ok-run:8: three\n"
    with Record.open(tmp_path / "record.db", clock=SystemClock(), write=True) as record:
        record.append_output("", (), positions)
    assert elsewhere.json("verify", bundle, "--against", tmp_path / "record.db")["ok"]
    seal, edited = "", []
    for line in lines_of(bundle):
        other = replace(line, data=pack(b"One\n")) if isinstance(line, BundleOutput) else line
        edited.append(form.sealed(other, seal))
        seal = edited[-1].seal
    (tmp_path / "edited.steno").write_bytes(zstandard.compress(b"".join(encoded(line) + b"\n" for line in edited)))
    assert "output" in {damage.kind for damage in Checker(tmp_path / "edited.steno").run().damage}
    assert "output of the runs is left out" in call.page("export", "ok-run", "-o", bundle, "--redact", "names")
    assert not any(isinstance(line, BundleOutput) for line in lines_of(bundle))
