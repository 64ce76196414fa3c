"""Rule files: what they say, and what of them is refused."""

from importlib.resources import files

from hypothesis import given, settings
from stenotest.cases import CASES

from steno.engine.rules.cases import RunCase
from steno.engine.rules.rule_file import rules_of
from steno.engine.rules.sets import judge


def current_text() -> str:
    return files("steno.engine.rules").joinpath("current.toml").read_text(encoding="utf-8")


@settings(max_examples=200)
@given(case=CASES)
def test_the_rows_of_current_say_what_its_function_says(case: RunCase) -> None:
    """`steno rules show current` shows what runs: state, reason, exit status, and the rule's own name."""
    rows = rules_of((current_text(),))
    assert rows.judge is not None
    by_rows, runs = rows.judge(case), judge(case)
    assert by_rows.rule.partition("/")[2] == runs.rule.partition("/")[2]
    assert (
        type(by_rows)(**{name: getattr(by_rows, name) for name in by_rows.__struct_fields__} | {"rule": runs.rule})
        == runs
    )
