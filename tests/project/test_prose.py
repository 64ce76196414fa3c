"""Sentences that newcomers had to read twice are in no product text and no document."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("cli", "engine", "events", "projections", "docs", "examples")
TEXTS = {".py", ".js", ".html", ".md", ".toml", ".yml", ".css"}
FILES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / ".env.example",
    *(
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in TEXTS and "vendor" not in path.parts
    ),
]
SENTENCES = (
    "cannot bear its worst case",
    "without =VALUE it is ours",
    "is none dstack takes",
    "machines that are allowed",
    "that was asked for earlier gets the next place",
    "after which nothing comes",
    "is no poll but RunRequested",
    "for what happened between two polls",
    "says in words nobody knows",
    "Not to be had",
    ">All there is",
    ">Nothing runs",
    "Nothing runs.",
    "the low bound of its bill has stopped",
    "which is no end",
    "not ended, and billed on",
    "the provider took our word",
    "`next` of the page before was",
    "is told of",
    "says its provider alone",
    "taken up anew",
    "nobody wanted is let go of",
    "It rests so many times",
    "is no YAML",
    "wrong with a request, or with us",
    "begins anew",
)


@pytest.fixture(scope="module")
def texts() -> dict[Path, str]:
    found = {path: " ".join(path.read_text().split()).lower() for path in FILES}
    assert len(found) > 400
    return found


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_sentence_is_gone(sentence: str, texts: dict[Path, str]) -> None:
    """Over line ends too; the plain one stands in its place."""
    assert [path for path, text in texts.items() if sentence.lower() in text] == []
