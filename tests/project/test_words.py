"""The rules of docs/style.md for names and prose; `make gates` holds every tracked file to them."""

from pathlib import Path

import pytest
from stenotest import words

PYTHON, PAGE = Path("module.py"), Path("page.md")
FLAGGED = (
    "An entry that is old is let go of.",
    "It had better be taken up again.",
    "The reader is told of its price.",
    "The cache is made anew.",
    "Keep so much as the budget allows.",
    "The rest shows what it is worth.",
    "The provider took our word for it.",
    "A word that is no state is drift.",
    "The old ones stay.",
    "Two are left, and the last one.",
    "A run and one that waits for it.",
    "A run that nobody asked for.",
    "No offer is to be had.",
    "The ledger and the sum thereof.",
    "The machine stopped, which is no end of the run.",
)
PLAIN = (
    "Evict an entry that nobody used for 60 s.",
    "The cache is too large; reload the world.",
    "There is no longer a lease; nothing is no state.",
    "The first one to see it writes it down: at most one poll a second.",
    "Only the provider decides whether a run succeeded.",
    "`one that` and `anew` are code.",
)


def found_in(path: Path, text: str) -> list[str]:
    return [finding.instead for finding in words.findings(path, text)]


@pytest.mark.parametrize(("rule", "sentence"), list(zip(words.RULES, FLAGGED, strict=True)))
def test_a_sentence_is_flagged(rule: words.Rule, sentence: str) -> None:
    """In a document, in a docstring and in a comment."""
    for path, text in ((PAGE, sentence), (PYTHON, f'"""Module.\n\n{sentence}\n"""'), (PYTHON, f"# {sentence}\n")):
        assert rule.instead in found_in(path, text)


@pytest.mark.parametrize("sentence", PLAIN)
def test_a_plain_sentence_is_not(sentence: str) -> None:
    assert found_in(PAGE, sentence) == []
    assert found_in(PYTHON, f"# {sentence}\n") == []


@pytest.mark.parametrize("name", sorted(words.NAMES))
def test_a_name_says_what_the_value_is(name: str) -> None:
    """As a variable and as a parameter; reading such an attribute is free."""
    assert found_in(PYTHON, f"{name} = 1\n") == ["name what the value is"]
    assert found_in(PYTHON, f"def read({name}): ...\n") == ["name what the value is"]
    assert found_in(PYTHON, f"machine = answer.{name}\n") == []


@pytest.mark.parametrize("line", ["Whether it runs.", "What it costs.", "Of a run.", "One run of several."])
def test_a_docstring_begins_with_what_it_gives(line: str) -> None:
    assert len(found_in(PYTHON, f'def read():\n    """{line}"""\n')) == 1
    assert found_in(PYTHON, f'def read():\n    """The answer. {line}"""\n') == []


def test_the_verb_is_not_last() -> None:
    assert found_in(PAGE, "It shows the fleet as it is.") == ["put the verb before its object"]
    assert found_in(PAGE, "It is as the fleet shows it.") == []


def test_code_in_a_document_is_not_prose() -> None:
    assert found_in(PAGE, "```console\n$ steno ps   # the old ones\n```\n") == []


def test_there_are_few_exceptions() -> None:
    """And each is there."""
    assert len(words.EXCEPTIONS) <= 10
    assert [name for name in words.EXCEPTIONS if not (words.ROOT / name).exists()] == []
