"""What the documents tell a reader to type exists, with the options they name; and their links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from cli.program import steno
from cli.wiring.app import App
from engine.notify.webhook import sign
from engine.providers.registry import settings_table

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", ".env.example")]
DOCS = sorted([*PAGES, *(ROOT / "docs").glob("*.md")])
DECISIONS = sorted((ROOT / "docs" / "adr").rglob("*.md"))
FENCE = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^(?: {4}|\t)(.*)$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
VARIABLE = re.compile(r"\b((?:STENO|AMD)_[A-Z][A-Z0-9_]+)\b")
NOT_SETTINGS = {
    "STENO_DEBUG", "STENO_EXAMPLE_FOLDER", "STENO_PICTURES", "STENO_REQUIRE_LAB", "STENO_TEST_POSTGRES",
    "STENO_TEST_POSTGRES_BIN", "STENO_TEST_STORE", "STENO_TEST_SEGMENTS", "STENO_TEST_EXAMPLES",
    "STENO_TEST_SERVERS", "STENO_CHECKPOINT_DIR", "STENO_OUTPUT_DIR", "STENO_TOTAL_ELAPSED",
}  # fmt: skip


def code(text: str) -> Iterator[str]:
    """Every piece of code in a document: fences, indented lines, inline."""
    yield from FENCE.findall(text)
    rest = FENCE.sub("", text)
    yield from INDENTED.findall(rest)
    yield from INLINE.findall(rest)


def typed(text: str) -> Iterator[list[str]]:
    """The words of every `steno …` a document shows, `steno` left out."""
    for piece in code(text):
        for line in piece.splitlines() or [piece]:
            found = re.match(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(?:export \S+ && )?steno (.+)$", line)
            if found is None:
                continue
            words = re.split(r"\s{2,}|\s[#|>&]", found[1])[0]
            try:
                yield shlex.split(words)
            except ValueError:
                yield words.split()


@cache
def command_of(words: tuple[str, ...]) -> tuple[click.Command, int]:
    """The command that these words call, and how many of them name it."""
    found: click.Command = steno
    for depth, word in enumerate(words):
        if not isinstance(found, click.Group):
            return found, depth
        context = click.Context(found, obj=App())
        inner = found.get_command(context, word)
        if inner is None:
            default = getattr(found, "default", None)
            assert default is not None, f"there is no command {' '.join(words[: depth + 1])!r}"
            return found.commands[default], depth
        found = inner
    if isinstance(found, click.Group) and hasattr(found, "default"):
        return found.commands[found.default], len(words)
    return found, len(words)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_a_document_shows_exists(path: Path) -> None:
    """With every option it is shown with."""
    for words in typed(path.read_text()):
        if words[0].startswith("-") or not re.fullmatch("[a-z]+", words[0]):
            continue
        command, depth = command_of(tuple(word for word in words if not word.startswith("-") or word == "--"))
        known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h"}
        shown = words[: words.index("--")] if "--" in words else words
        options = {word.split("=")[0] for word in shown if re.match("--?[a-z]", word)}
        assert options <= known, f"{path.name}: steno {' '.join(words)} ({depth})"


def test_the_documents_show_commands_at_all() -> None:
    """The search finds what it is meant to find."""
    shown = {words[0] for path in DOCS for words in typed(path.read_text())}
    assert shown >= {"submit", "explain", "doctor", "vms", "costs", "budget", "up", "config", "verify"}


@pytest.mark.parametrize("path", [*DOCS, *DECISIONS], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_inside_the_project_leads_somewhere(path: Path) -> None:
    """A file, or a folder."""
    missing = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_variable_and_setting_named_exists(path: Path) -> None:
    """A name nobody reads would be set in vain."""
    text = path.read_text()
    table = settings_table()
    known = {variable for entry in table.known for variable in entry.variables} | NOT_SETTINGS
    assert set(VARIABLE.findall(text)) <= known
    prefixes = "|".join(sorted({entry.name.split(".")[0] for entry in table.known if "." in entry.name} - {"record"}))
    named = re.findall(rf"`((?:{prefixes})\.[A-Za-z_0-9]+)(?: = [^`]*)?`", text)
    assert [name for name in named if table.setting(name) is None and not name.startswith("local.")] == []


def test_the_snippet_that_verifies_a_signature_verifies_ours() -> None:
    """Of this body, with this secret, and recently; as the document has it."""
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "notifications.md").read_text(), re.DOTALL)
    scope: dict[str, Any] = {}
    exec(snippet, scope)
    header, body = sign("s3cret", 1_795_201_781, b'{"kind":"budget"}'), b'{"kind":"budget"}'
    is_ours = scope["is_ours"]
    assert is_ours("s3cret", header, body, now=1_795_201_790.5)
    assert not is_ours("other", header, body, now=1_795_201_790.5)
    assert not is_ours("s3cret", header, body + b" ", now=1_795_201_790.5)
    assert not is_ours("s3cret", header, body, now=1_795_203_000.0)
