"""Twenty planted defects of rule files, each found at its line, and files that cannot be read."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.rule_texts import HEAD, rule_text

from steno.engine.providers.registry import UnknownRules, rules_named
from steno.engine.providers.rule_files import file_of, texts_of
from steno.engine.rules.check import check_rules
from steno.engine.rules.rule_file import MOST_ROWS, RuleFinding, read_rules
from steno.events.errors import UnreadableInput

WORDS = ("when.over", "when.any", "then", "state", "reason", "true", "137", '"failed"', '"none"', "exit_status", "not")
FAILED, STOPPED = 'state = "failed", reason = "timed_out"', 'state = "stopped", reason = "interrupted"'


def rows(*parts: tuple[str, str]) -> str:
    """Rows of (conditions, then); the first begins in line 7 of a file that extends `current`, else in line 6."""
    return "".join(f"\n[[row]]\n{when}\nthen = {{ {then} }}\n" for when, then in parts)


def findings_of(text: str, *, early: bool = False) -> list[RuleFinding]:
    """With the notes about rows that end a run early if `early`: most rows here end one without a look at `over`."""
    file, findings = read_rules(text)
    every = findings if file is None or findings else check_rules(file)
    return [finding for finding in every if early or finding.kind != "early"]


HIDDEN = {
    "the same conditions": ("when.over = true", "when.over = true"),
    "a value of a set": ('when.cause = ["interrupted", "none"]', 'when.cause = "none"'),
    "a part of a range": (
        "when.deciding = { exit_status = { from = 1, to = 200 } }",
        "when.deciding = { exit_status = { from = 130, to = 140 } }",
    ),
    "more words": ("when.final = true", "when.final = true\nwhen.requeued = true"),
    "a final run is over": ("when.over = true", "when.final = true"),
    "one of several jobs": ("when.any = { ended = true }", "when.all = { ended = true }"),
    "who decides fails": ("when.any = { fails = true }", 'when.deciding = { cause = { not = "none" } }'),
    "the first is one of all": ("when.any = { exit_status = 1 }", "when.first = { exit_status = 1 }"),
}
NEVER = {
    "over, and it does not end by itself": "when.over = true\nwhen.final = false\nwhen.finite = false",
    "none and one at once": "when.any = { retried = true }\nwhen.no = { retried = true }",
    "the provider's own fault has no attempt that decides": 'when.cause = "provider_error"\nwhen.decided = true',
    "a cause is a failure": 'when.any = { cause = "interrupted", fails = false }',
    "decided, and nothing failed": "when.decided = true\nwhen.no = { fails = true }",
    "failed, and no failure": "when.any = { failed = true, fails = false }",
    "an exit status that counts": "when.any = { decides = true, exit_status = 1, fails = false }",
    "a failure of nothing": 'when.any = { fails = true, cause = "none", failed = false, decides = false }',
    "a failure that exited 0": 'when.any = { fails = true, cause = "none", failed = false, exit_status = 0 }',
    "a cause decides before an exit status": (
        'when.cause = "none"\nwhen.deciding = { cause = "none" }\nwhen.any = { cause = "interrupted" }'
    ),
    "an exit status decides before a bare failure": (
        'when.cause = "none"\nwhen.deciding = { cause = "none", exit_status = 0 }\n'
        "when.any = { fails = true, exit_status = 1 }"
    ),
    "the first of equals decides": (
        'when.cause = "none"\nwhen.deciding = { cause = "interrupted" }\nwhen.first = { cause = "timed_out" }'
    ),
    "of a run that is done, a worker decides nothing": 'when.cause = "exit_zero"\nwhen.deciding = { decides = false }',
    "over, and an end that is retried": (
        'when.over = true\nwhen.final = false\nwhen.state = "running"\nwhen.any = { retried = true }'
    ),
    "over, and back in the queue": "when.over = true\nwhen.final = false\nwhen.requeued = true",
    "over, and a job without an attempt": "when.over = true\nwhen.final = false\nwhen.bare = true",
    "over, and no attempt": "when.over = true\nwhen.final = false\nwhen.attempts = false",
    "over, and a job goes on": "when.over = true\nwhen.final = false\nwhen.any = { ended = false }",
}


@pytest.mark.parametrize(("first", "second"), HIDDEN.values(), ids=HIDDEN)
def test_a_row_that_earlier_rows_hide_is_found(first: str, second: str) -> None:
    text = rule_text(rows((first, FAILED), (second, STOPPED)))
    (finding,) = findings_of(text)
    assert (finding.kind, finding.line, finding.error) == ("hidden", 7 + first.count("\n") + 4, True)
    assert "row-1 (line 7)" in finding.text


def test_a_row_that_several_rows_hide_together_is_found() -> None:
    parts = [(f"when.final = {value}", FAILED) for value in ("true", "false")]
    (finding,) = findings_of(rule_text(rows(*parts, ("when.bare = true", STOPPED))))
    assert (finding.kind, finding.line) == ("hidden", 15)
    assert "row-1 (line 7), row-2 (line 11)" in finding.text


@pytest.mark.parametrize("when", NEVER.values(), ids=NEVER)
def test_a_row_that_can_never_match_is_found(when: str) -> None:
    (finding,) = findings_of(rule_text(rows((when, FAILED))))
    assert (finding.kind, finding.line, finding.error) == ("never", 7, True)


GAPS = {
    "no row for a run that goes on": (
        rows(("when.over = true", FAILED)),
        "final = false, finite = true, requeued = true",
    ),
    "no row for a range": (
        rows(("when.any = { exit_status = { to = 9 } }", FAILED), ("when.no = { exit_status = { to = 10 } }", STOPPED)),
        "any = { exit_status = {to = 10} }, no = { exit_status = {to = 9} }",
    ),
    "no row for one state": (rows(('when.state = { not = "pulling" }', FAILED)), 'state = "pulling"'),
}


@pytest.mark.parametrize(("text", "missing"), GAPS.values(), ids=GAPS)
def test_a_gap_is_found_and_told_in_words(text: str, missing: str) -> None:
    findings = findings_of(rule_text(text, extends=None))
    assert {finding.kind for finding in findings} == {"gap"}
    assert any(missing in finding.text for finding in findings)


def test_two_rows_of_the_same_words_that_overlap_and_disagree_are_an_error() -> None:
    spans = [f"when.deciding = {{ exit_status = {{ from = {a}, to = {b} }} }}" for a, b in ((100, 140), (130, 150))]
    (finding,) = findings_of(rule_text(rows((spans[0], FAILED), (spans[1], STOPPED))))
    assert (finding.kind, finding.line, finding.error) == ("overlap", 11, True)


def test_rows_of_other_words_that_overlap_and_disagree_are_a_note() -> None:
    (finding,) = findings_of(rule_text(rows(("when.final = true", FAILED), ("when.bare = true", STOPPED))))
    assert (finding.kind, finding.line, finding.error) == ("overlap", 11, False)
    assert "row-1 (line 7, failed/timed_out)" in finding.text


def test_an_exception_before_its_rule_and_rows_that_agree_are_fine() -> None:
    exception = ("when.final = true\nwhen.bare = true", FAILED), ("when.final = true", STOPPED)
    agreeing = ("when.failed = true", STOPPED), ("when.stopped_by_policy = true", STOPPED)
    assert findings_of(rule_text(rows(*exception))) == []
    assert findings_of(rule_text(rows(*agreeing))) == []


EARLY = {
    "the first attempt ended": "when.first = { ended = true, exit_status = 137 }",
    "a cause": 'when.deciding = { cause = "interrupted" }',
    "every attempt ended": "when.all = { ended = true }",
    "it goes on": "when.over = false",
}
TIMELY = {
    "it is over": "when.over = true\nwhen.deciding = { exit_status = 137 }",
    "it is final": "when.final = true",
    "every job has ended for good": (
        'when.finite = true\nwhen.requeued = false\nwhen.bare = false\nwhen.state = "finishing"\n'
        "when.attempts = true\nwhen.all = { ended = true }"
    ),
}


@pytest.mark.parametrize("when", EARLY.values(), ids=EARLY)
def test_a_row_that_may_end_a_run_that_goes_on_is_noted(when: str) -> None:
    (finding,) = findings_of(rule_text(rows((when, FAILED))), early=True)
    assert (finding.kind, finding.line, finding.error) == ("early", 7, False)
    assert finding.text.endswith("it says failed/timed_out, and may end a run that goes on: test `over = true`")


@pytest.mark.parametrize("when", TIMELY.values(), ids=TIMELY)
def test_a_row_that_ends_only_what_is_over_is_not_noted(when: str) -> None:
    assert findings_of(rule_text(rows((when, FAILED))), early=True) == []


@pytest.mark.parametrize(("going_first", "kinds"), [(True, {"overlap"}), (False, {"early", "overlap"})])
def test_a_row_after_those_of_runs_that_go_on_ends_none_early(going_first: bool, kinds: set[str]) -> None:
    parts = [("when.over = false", 'state = "unchanged"'), ("when.bare = true", FAILED)]
    findings = findings_of(rule_text(rows(*parts if going_first else reversed(parts))), early=True)
    assert {finding.kind for finding in findings} == kinds


UNREADABLE = {
    "cut in a table": (HEAD.format("site") + "\n[[row]]\nwhen.deciding = { exit_sta", 7, "cut"),
    "cut in a text": ('format = 1\nname = "si', 2, "not valid TOML"),
    "of a later version": (rule_text().replace("format = 1", "format = 2"), 1, "later version"),
    "without a format": (rule_text().replace("format = 1\n", ""), 1, "`format = 1` is missing"),
    "a provider's word as a key": (rule_text(rows(('when.status = "done"', FAILED))), 8, "no provider's words"),
    "a provider's word as a cause": (
        rule_text(rows(('when.cause = "CONTAINER_EXITED_WITH_ERROR"', FAILED))), 8, "`cause` is never"
    ),
    "an unknown word in a box": (rule_text(rows(("when.any = { exit_code = 1 }", FAILED))), 8, "`exit_code` is not"),
    "an unknown state": (rule_text(rows(("when.over = true", 'state = "done"'))), 9, "'done' is not a state"),
    "an unknown reason": (
        rule_text(rows(("when.over = true", 'state = "failed", reason = "oom"'))), 9, "'oom' is not a reason"
    ),
    "a reason of a run that goes on": (
        rule_text(rows(("when.over = true", 'state = "running", reason = "timed_out"'))), 9, "only an end has one"
    ),
    "a word twice": (rule_text(rows(("when.over = true\nwhen.over = false", FAILED))), 9, "not valid TOML"),
    "a number as a truth": (rule_text(rows(("when.over = 1", FAILED))), 8, "`over` is never 1"),
    "a range that ends before it begins": (
        rule_text(rows(("when.deciding = { exit_status = { from = 9, to = 1 } }", FAILED))), 8, "{from = 9, to = 1};"
    ),
    "the name of our own": (rule_text().replace('"site"', '"current"'), 2, "'current' is a rule set of Steno's own"),
    "rows in one line": (rule_text('row = [{ when = {}, then = {} }]\n'), 6, "[[row]]"),
    "rows as one table": (rule_text('\n[row]\nthen = {}\n'), 7, "[[row]]"),
    "too many rows": (rule_text(rows(*[("", FAILED)] * (MOST_ROWS + 1))), 7 + 4 * MOST_ROWS, "at most 10000"),
    "depth": (rule_text("x = " + "[" * 10_000), 6, "not valid TOML"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "line", "why"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_not_understood_is_told_with_its_line(text: str, line: int, why: str) -> None:
    """A finding is a single line: what is wrong, and where; nothing is guessed."""
    (finding,) = findings_of(text)
    assert finding.line == line
    assert why in finding.text
    assert "\n" not in finding.text


def test_a_file_cut_anywhere_is_read_or_refused_in_one_line() -> None:
    """No cut raises anything else; one inside a row is found."""
    text = rule_text()
    for end in range(len(text)):
        file, findings = read_rules(text[:end])
        assert file is not None or findings
        assert all("\n" not in finding.text and 1 <= finding.line <= text.count("\n") + 1 for finding in findings)


@given(text=st.lists(st.sampled_from([*WORDS, "\n", " = ", "[[row]]\n", "{ ", " }", "[", "]", ", "]), max_size=30))
def test_a_text_of_the_right_words_in_any_order_raises_nothing(text: list[str]) -> None:
    findings_of(rule_text("".join(text)))


def test_the_example_of_the_documents_has_no_finding() -> None:
    """The page quotes the file."""
    docs = Path(__file__).parents[3] / "docs"
    text = (docs / "examples" / "rules" / "site.toml").read_text(encoding="utf-8")
    assert findings_of(text) == []
    assert f"```toml\n{text}```" in (docs / "rules.md").read_text(encoding="utf-8")


def test_a_rule_set_that_is_not_understood_is_named_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(rule_text(rows(('when.status = "done"', FAILED))))
    with pytest.raises(UnreadableInput, match=r"site\.toml:8: `status` is not a word"):
        rules_named("site", [tmp_path])


def test_a_path_is_a_rule_set_only_where_files_may_be_named(tmp_path: Path) -> None:
    """A name that came over HTTP opens no file."""
    (tmp_path / "site.toml").write_text(rule_text())
    assert rules_named(str(tmp_path / "site.toml"), files=True).name == "site"
    with pytest.raises(UnknownRules):
        rules_named(str(tmp_path / "site.toml"))


def test_a_file_that_is_no_text_or_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_bytes(b"format = 1\nname = \xff\n")
    with pytest.raises(UnreadableInput, match=r"site\.toml:2: is not UTF-8"):
        texts_of(tmp_path / "site.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (5 << 20))
    with pytest.raises(UnreadableInput, match="more than 4194304 bytes"):
        texts_of(tmp_path / "large.toml")


def test_sets_that_extend_each_other_in_a_circle_are_refused(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.toml").write_text(rule_text(name=name, extends=other))
    with pytest.raises(UnreadableInput, match=r"a\.toml:5: a\.toml extends itself"):
        texts_of(tmp_path / "a.toml")


def test_a_rule_set_has_the_name_of_its_file(tmp_path: Path) -> None:
    """`extends` and the commands look for the file."""
    (tmp_path / "other.toml").write_text(rule_text())
    _, _, findings = file_of(tmp_path / "other.toml")
    assert [(finding.line, finding.kind) for finding in findings] == [(2, "unreadable")]
