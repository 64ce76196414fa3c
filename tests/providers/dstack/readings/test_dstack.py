"""The reading of a run tolerates what it does not know, and both ways through it agree."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.dstack_history import job, read_run, run_item, single, submission

from steno.engine.providers.dstack import words
from steno.engine.providers.dstack.run_reading import RUNS, read_cost

ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYS = [*sorted(run_item()), "unknown_field"]
SUBMISSION_KEYS = sorted(submission())


def encoded(item: Any) -> bytes:
    return json.dumps(item).encode()


def test_a_run_reads_as_facts() -> None:
    """Status, reason, jobs in order, the newest submission by number whatever the order."""
    first, second = submission("failed", exit_status=7, num=0), submission("running", num=1, hostname="h", price=1.99)
    item = run_item(
        "two", "running", job(second, first, number=1, retry=["error"]), job(submission("pulling"), number=0), cost=0.5
    )
    facts = read_run(encoded(item))
    assert (facts.name, facts.finite, facts.status, facts.drift) == ("two", True, "running", ())
    assert [job.job_num for job in facts.jobs] == [0, 1]
    assert facts.jobs[1].newest is not None
    assert (facts.jobs[1].newest.num, facts.jobs[1].newest.price) == (1, 1_990_000)
    assert facts.jobs[1].retry_on == {"error"}
    assert read_cost(encoded(item)) == {item["id"]: 500_000}


@pytest.mark.parametrize(
    ("reason", "message", "unrun"),
    [
        ("executor_error", "failed to acquire GPUs: none is free", True),
        ("executor_error", "Failed to set up the repo", False),
        ("executor_error", None, False),
        ("container_exited_with_error", "failed to acquire GPUs", False),
    ],
)
def test_a_job_that_found_its_gpus_in_use_never_ran(reason: str, message: str | None, unrun: bool) -> None:
    """Seen of 0.19.37. What would fail again is not tried again."""
    ended = {**submission("failed", reason=reason), "termination_reason_message": message}
    (ended_job,) = read_run(encoded(run_item("a", "failed", job(ended)))).jobs
    assert ended_job.attempts[0].unrun is unrun


def test_both_forms_of_time_are_the_same_moment() -> None:
    """0.22.5 ends times in Z, 0.19.37 in +00:00."""
    item = run_item()
    other = {**item, "submitted_at": item["submitted_at"].replace("Z", "+00:00")}
    assert read_run(encoded(item)) == read_run(encoded(other))


@given(key=st.sampled_from(KEYS), value=ANY_JSON)
def test_a_field_of_any_type_never_raises(key: str, value: Any) -> None:
    """Law: an unknown status, reason or field never raises."""
    item = {**single("a", "running", "running", exit_status=0), key: value}
    if key == "id" and (not isinstance(value, str) or not value):
        with pytest.raises(ValueError, match="id"):
            read_run(encoded(item))
        return
    facts = read_run(encoded(item))
    assert facts.provider_id


@given(key=st.sampled_from(SUBMISSION_KEYS), value=ANY_JSON)
def test_a_field_of_a_submission_of_any_type_never_raises_and_other_values_stay(key: str, value: Any) -> None:
    """A value that fits is taken, whatever stands beside it."""
    changed = {**submission("running", exit_status=3), key: value}
    facts = read_run(encoded(run_item("a", "running", job(changed))))
    assert facts.jobs[0].newest is not None
    if key != "exit_status":
        assert facts.jobs[0].newest.exit_status == 3
    if key != "status":
        assert facts.jobs[0].newest.status == "running"


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "status": st.sampled_from([*sorted(words.RUN_STATUSES), "hibernating", None]),
            "termination_reason": st.text(max_size=5) | st.none(),
            "deleted": st.booleans() | st.none(),
            "cost": st.floats(0, 9) | st.none(),
        },
    )
)
def test_the_typed_and_the_lenient_way_agree(change: dict[str, Any]) -> None:
    """Whatever the typed step accepts, the lenient one reads alike and finds nothing odd in."""
    item = encoded({**single("a", "running", "running"), **change})
    assert RUNS.decode(item) == RUNS.decode_by_value(item)


@pytest.mark.parametrize(
    "broken", [b"", b"[]", b"null", b"7", b'"x"', b"{", b"{}", b'{"id": 4}', b'{"id": ""}', b'{"id":null}', b"\xff\xfe"]
)
def test_what_is_no_run_is_a_value_error(broken: bytes) -> None:
    """The only error a reading knows."""
    with pytest.raises(ValueError, match=r"id|JSON"):
        read_run(broken)


def test_doubt_never_ends_a_run() -> None:
    """A job that is not an object stays, without values; an unreadable retry policy covers everything."""
    item = single("a", "running", "done", exit_status=0)
    odd = {**item, "jobs": [*item["jobs"], "a job?"]}
    assert [job.newest is None for job in read_run(encoded(odd)).jobs] == [False, True]
    for spec in ({"retry": True}, {"retry": {}}, {"retry": {"on_events": 7}}, 7):
        policy = single("a", "running", "failed", exit_status=1)
        policy["jobs"][0]["job_spec"] = spec
        facts = read_run(encoded(policy))
        assert facts.jobs[0].retry_on == words.RETRY_EVENTS
        assert facts.drift


def test_unknown_words_are_kept_and_named() -> None:
    """The word as it came, and where it stood."""
    facts = read_run(encoded(single("a", "hibernating", "thinking", job_reason="bored")))
    assert (facts.status, facts.jobs[0].newest and facts.jobs[0].newest.status) == ("hibernating", "thinking")
    assert facts.drift == (
        "job status: unknown word 'thinking'",
        "job termination_reason: unknown word 'bored'",
        "status: unknown word 'hibernating'",
    )


@pytest.mark.parametrize("words_given", [{"reason": "error"}, {"job_reason": "error"}])
def test_the_reason_error_is_a_known_word(words_given: dict[str, Any]) -> None:
    """dstack gives it for a machine too."""
    assert read_run(encoded(single("a", "failed", "failed", **words_given))).drift == ()


def test_a_submission_without_a_number_opens_no_attempt() -> None:
    """It stands beside the one before it and is the newest."""
    nameless = {**submission("running"), "submission_num": None}
    facts = read_run(encoded(run_item("a", "running", job(submission("done", num=2, exit_status=0), nameless))))
    assert facts.jobs[0].newest is not None
    assert (facts.jobs[0].newest.num, facts.jobs[0].newest.exit_status) == (2, None)


@pytest.mark.parametrize("price", [1e308, -1e308, 1e15])
def test_an_amount_nobody_pays_is_none(price: float) -> None:
    """As micro-dollars it is beyond floats or beyond what a read model holds."""
    item = run_item("dear", "running", job(submission("running", price=price)), cost=price)
    assert read_cost(encoded(item)) == {item["id"]: None}
    latest = read_run(encoded(item)).jobs[0].newest
    assert latest is not None
    assert latest.price is None


@pytest.mark.parametrize("field", ["exit_status", "submission_num"])
@pytest.mark.parametrize("number", [2**63, -(2**70), 10**400])
def test_a_number_that_cannot_be_written_down_is_named(field: str, number: int) -> None:
    """It reads as not said, with drift, by both ways."""
    odd = submission("done") | {field: number}
    facts = read_run(encoded(run_item("odd", "done", job(odd))))
    assert any(field in drift for drift in facts.drift)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1970-01-01T00:00:00Z"])
def test_a_time_that_nothing_happened_at_is_named(text: str) -> None:
    """Go's zero time, Unix's and the end of calendars: a machine made then would be billed for centuries."""
    facts = read_run(encoded(run_item("odd", "running") | {"submitted_at": text}))
    assert facts.submitted_at is None
    assert any("submitted_at" in drift for drift in facts.drift)
