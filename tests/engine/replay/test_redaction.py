"""The values that a redaction finds."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from stenotest.recorded_trace import recorded_trace

from steno.engine.providers.dstack.reading import DstackReading
from steno.engine.providers.registry import READINGS
from steno.engine.replay.redaction import KINDS, Private
from steno.events.clock import SystemClock
from steno.events.errors import StenoError
from steno.events.store.record import Record

TRACE = Path(__file__).parents[2] / "traces" / "slurm-22.05" / "fail_exit1.jsonl.zst"
KEYS = {"user": "names", "NodeList": "hosts"}


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Private]:
    recorded_trace(tmp_path, TRACE)
    with Record.open(tmp_path / "record.db", shapes=READINGS.shape, clock=SystemClock()) as record:
        yield Private(record, KINDS)


def test_text_that_nobody_decodes_is_searched_too(private: Private) -> None:
    """An error page, or the lines of a log."""
    private.search(b"502: user=secretary NodeList=gpu07 wanted", KEYS)
    assert private.values == {"secretary": "names", "gpu07": "hosts"}


def test_what_a_providers_log_names_is_found_though_no_list_shows_it(private: Private) -> None:
    """Runs of other projects, and runs that ended before; not the projects."""
    targets = [("run", "theirs"), ("job", "theirs-0-0"), ("fleet", "pool"), ("instance", "pool-0"), ("project", "main")]
    event = {"message": "Job status changed", "targets": [{"type": what, "name": name} for what, name in targets]}
    private.search(msgspec.json.encode([event]), DstackReading.private)
    assert private.values == dict.fromkeys(("theirs", "theirs-0-0", "pool", "pool-0"), "names")


def nested(depth: int) -> bytes:
    return b'{"user": ' + b"[" * depth + b'"secretary"' + b"]" * depth + b"}"


def test_a_nested_value_is_found(private: Private) -> None:
    private.search(nested(100), KEYS)
    assert private.values == {"secretary": "names"}


def test_text_that_is_nested_too_deep_is_refused(private: Private) -> None:
    """Else what is to be hidden would stay in the bundle."""
    with pytest.raises(StenoError, match="nested too deep"):
        private.search(nested(90_000), KEYS)
