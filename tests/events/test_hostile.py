"""Answers that are not proper JSON, or hardly: kept, given back, and never a reason to fail."""

import json

import pytest
from stenotest.records import poll_of

from steno.events.store.record import Record

HOSTILE = {
    "nothing": b"",
    "white space": b"  \n",
    "NaN": b'[{"id":"a","cost":NaN}]',
    "half a surrogate pair": b'[{"id":"a","status":"\\ud800"}]',
    "not UTF-8": b'[{"id":"a","status":"\xff\xfe"}]',
    "a zero byte": b'[{"id":"a\x00b"}]',
    "the bytes of our own marks": b'[{"id":"a","x":"\x00\x01"}]',
    "very deep": b"[" * 100_000 + b"]" * 100_000,
    "cut": b'[{"id":"a","jobs":[{"job_sp',
    "a page": b"<html><body>502 Bad Gateway</body></html>",
}
JUST_JSON = {
    "repeated keys": b'[{"id":"a","cost":1,"cost":2,"id":"b"}]',
    "escaped keys": b'[{"i\\u0064":"a","c\\u006fst":1.5}]',
    "a huge number": b'[{"id":"a","cost":%s}]' % (b"9" * 400),
    "no number Python has": b'[{"id":"a","cost":1e400}]',
    "minus zero and exponents": b'[{"id":"a","cost":-0.0},{"id":"b","cost":1E+2},{"id":"c","cost":0.10}]',
    "an identity that is not a text": b'[{"id":5},{"id":null},{"id":{}},{"id":[]},{}]',
    "items that are not objects": b'[1,"two",null,[3],{"id":"a"}]',
    "an object where a list is expected": b'{"detail":"no"}',
    "a list in a list": b"[[[]]]",
    "white space everywhere": b' [ { "id" : "a" ,\n"cost":\t1 } , {"id":"b"} ]\r\n',
    "empty": b"[]",
    "a word": b"null",
    "a text": b'"Internal Server Error"',
    "jobs of the wrong type": b'[{"id":"a","jobs":7,"latest_job_submission":[],"cost":{"a":1}}]',
}


@pytest.mark.parametrize("path", ["/api/runs/list", "/api/project/main/runs/get", "/api/unknown"])
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_what_is_no_json_comes_back_byte_for_byte(name: str, path: str, record: Record) -> None:
    """A body nobody can parse is evidence like any other."""
    appended = record.append_polls([poll_of(HOSTILE[name], path=path)] * 2)
    assert [record.poll(poll.position).body for poll in appended] == [HOSTILE[name]] * 2
    assert record.verify().ok


@pytest.mark.parametrize("path", ["/api/runs/list", "/api/project/main/runs/get", "/api/unknown"])
@pytest.mark.parametrize("name", sorted(JUST_JSON))
def test_odd_json_comes_back_equal(name: str, path: str, record: Record) -> None:
    """Equal as JSON, with the same text of every number."""
    appended = record.append_polls([poll_of(JUST_JSON[name], path=path)] * 2)
    for poll in appended:
        back = record.poll(poll.position).body
        assert back is not None
        assert json.loads(back) == json.loads(JUST_JSON[name])
        assert json.loads(back, parse_float=str, parse_int=str) == json.loads(
            JUST_JSON[name], parse_float=str, parse_int=str
        )
    assert record.verify().ok


def test_a_failed_poll_keeps_its_error_and_its_body(record: Record) -> None:
    """A missing or useless answer is recorded unchanged."""
    refused = poll_of(None, status=None, answered=False, error="ConnectError: [Errno 111] Connection refused")
    page = poll_of(b'"<h1>oops</h1>"', status=500, answered=False)
    for appended, poll in zip(record.append_polls([refused, page]), (refused, page), strict=True):
        assert record.poll(appended.position) == poll
    assert [event.type for event in record.read()] == ["PollFailed", "PollFailed"]
