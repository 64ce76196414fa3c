"""Sealed files in a bucket, of a real server that speaks S3."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from pyarrow import fs
from stenolab.environment import EnvironmentUnavailable, ensure
from stenolab.versions import LAB, MOTO, interpreter
from stenotest.big import big_record
from stenotest.readings_of import everything
from stenotest.records import START, StandingClock

from engine.providers.readings import READINGS
from events.clock import SECOND
from events.errors import RecordDamaged, RecordNotWritable, RecordUnreachable, StenoError
from events.store import sealing
from events.store.record import Record
from events.store.sealed.place import SealedFolder
from events.store.store import Store, store_at

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.lab
CLOCK = StandingClock(START + 90 * 24 * 3600 * SECOND)


class Server:
    """A server with an empty bucket `records`."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [interpreter(MOTO), LAB / "s3_server.py"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.place = f"127.0.0.1:{int(self.process.stdout.readline())}"
        urllib.request.urlopen(urllib.request.Request(f"http://{self.place}/records", method="PUT")).close()

    def url(self, bucket: str = "records") -> str:
        return f"s3://{bucket}/steno?scheme=http&region=us-east-1&endpoint_override={quote(self.place, safe='')}"

    def files(self) -> fs.FileSystem:
        return fs.FileSystem.from_uri(self.url())[0]

    def stop(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    try:
        ensure(MOTO)
    except EnvironmentUnavailable as error:
        if os.environ.get("STENO_REQUIRE_LAB") == "1":
            raise
        pytest.skip(f"no server of buckets: {error}")
    for name, value in (("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret"), ("EC2_METADATA_DISABLED", "true")):
        monkeypatch.setenv(f"AWS_{name}", value)
    started = Server()
    yield started
    started.stop()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    big_record(tmp_path / "record.db", events=700)
    return store_at(tmp_path / "record.db")


def seal(store: Store, url: str) -> sealing.Sealing:
    return sealing.seal(store, before=CLOCK.now(), size=300, place=url, clock=CLOCK, progress=lambda done, total: None)


def test_a_record_in_a_bucket_is_read_as_before(server: Server, store: Store) -> None:
    """All that is read, and verified; the manifest is there; files are named without what reaches the server."""
    with Record.open(store, clock=CLOCK, shapes=READINGS.shape) as record:
        before = everything(record, sample=17)
    done = seal(store, server.url())
    assert len(done.files) == 2
    with Record.open(store, clock=CLOCK, write=True, shapes=READINGS.shape) as record:
        assert everything(record, sample=17) == before
        assert record.verify(expect=before["head"]).ok
        assert record.sealed_files() == tuple(f"s3://records/steno/{one.file}" for one in done.files)
    kept = {
        one.path
        for one in server.files().get_file_info(fs.FileSelector("records/steno", recursive=True))
        if one.is_file
    }
    assert {f"records/steno/{one.file}" for one in done.files} < kept
    assert any(path.endswith("/manifest.json") for path in kept)


def test_a_file_of_many_megabytes_is_put_in_parts(server: Server) -> None:
    """Above 10 MB pyarrow sends parts."""
    content = os.urandom(1 << 16) * 400
    folder = SealedFolder(server.url())
    folder.write("one/large.parquet", content)
    assert folder.size("one/large.parquet") == len(content)
    assert folder.read("one/large.parquet") == content


def test_a_lost_object_is_one_line(server: Server, store: Store) -> None:
    """Removed, cut, or the server is away."""
    done = seal(store, server.url())
    first, second = (f"records/steno/{one.file}" for one in done.files)
    with server.files().open_input_file(second) as opened:
        content = opened.read()
    server.files().delete_file(first)
    with server.files().open_output_stream(second) as out:
        out.write(content[:-9])
    with Record.open(store, clock=CLOCK, shapes=READINGS.shape) as record:
        with pytest.raises(RecordDamaged, match=r"s3://records/steno/\S+ \(positions 1 to 300\) is missing"):
            record.poll(1)
        with pytest.raises(RecordDamaged, match=r"\(positions 301 to 600\) is damaged"):
            list(record.read(after=300, until=310))
        assert [(one.position, one.kind) for one in record.verify().damage] == [(1, "sealed"), (301, "sealed")]
    server.stop()
    with (
        Record.open(store, clock=CLOCK, shapes=READINGS.shape) as record,
        pytest.raises(RecordUnreachable, match=r"s3://records/steno/\S+ \(positions 1 to 300\) cannot be reached"),
    ):
        record.poll(1)


def test_what_cannot_be_written_is_one_line(server: Server, store: Store) -> None:
    """No such bucket, or a key in the URL, which would be kept; nothing was sealed."""
    with pytest.raises(RecordNotWritable, match="s3://nowhere/steno"):
        seal(store, server.url("nowhere"))
    for url in (server.url() + "&access_key=a&secret_key=b", server.url().replace("s3://", "s3://a:b@")):
        with pytest.raises(StenoError, match="AWS_ACCESS_KEY_ID"):
            seal(store, url)
    with Record.open(store, clock=CLOCK) as record:
        assert record.sealed_files() == ()
        assert record.verify().ok
