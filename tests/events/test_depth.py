"""Nesting is measured without recursion, so nothing ever runs at the interpreter's limit."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.providers.dstack.client import HttpAnswer
from steno.events.poll import MAX_DEPTH, MAX_VALUES, too_deep, too_wide

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='[]{}"\\\\a'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='[]{}"a'), inner),
    max_leaves=40,
)


@pytest.mark.parametrize(
    "text",
    [b"[" * 100_000, b'{"a":' * 5_000, b"[" * 900 + b"]" * 900, b'[{"a":' * 700, b'["]]]]",' * 700],
    ids=["open lists", "open objects", "closed", "both", "brackets in strings between"],
)
def test_what_nests_too_deeply_is_found(text: bytes) -> None:
    """Closed or not, lists or objects, whatever stands in the strings between."""
    assert too_deep(text)


@pytest.mark.parametrize(
    "text",
    [b'"' + b"[" * 10_000 + b'"', b"[" + b"[[]]," * 10_000 + b"[]]", b"[" * 100 + b"]" * 100, b"", b"\xff\xfe"],
    ids=["brackets in a string", "wide", "deep enough", "empty", "no text"],
)
def test_what_is_only_large_is_not(text: bytes) -> None:
    """Width, and brackets that are data, do not count as depth."""
    assert not too_deep(text)


@given(JSON)
def test_no_ordinary_document_is_refused(document: object) -> None:
    """Law: JSON of few levels is never called too deep, whatever its strings hold."""
    assert not too_deep(json.dumps([document] * 50).encode())


def test_a_deep_answer_reads_as_no_json_without_recursing() -> None:
    """The limit is far below the interpreter's: a finalizer that runs meanwhile has room."""
    assert HttpAnswer(started_at=0, observed_at=0, status=200, body=b"[" * 100_000).json() is None
    assert MAX_DEPTH < 500


def test_what_is_too_wide_is_found() -> None:
    """A page of a hundred genuine runs has 30,000 values; a bomb of 4 MB has more than a million."""
    assert too_wide(b"[" + b"[]," * MAX_VALUES + b"[]]")
    assert too_wide(b"[" + b"0," * MAX_VALUES + b"0]")
    assert not too_wide(b"[" + b"{}," * 30_000 + b"{}]")
