"""Commands in documents exist, with the options they name; and links lead somewhere."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
from stenotest.page import commands_of

from steno.cli.program import steno
from steno.cli.wiring.app import App
from steno.engine.notify.webhook import sign
from steno.engine.providers.registry import settings_table
from steno.events.errors import RecordNotFound

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", ".env.example")]
DOCS = sorted([*PAGES, *(ROOT / "docs").glob("*.md")])
DECISIONS = sorted((ROOT / "docs" / "adr").rglob("*.md"))
FENCE = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^(?: {4}|\t)(.*)$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#:\s]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
VARIABLE = re.compile(r"\b((?:STENO|AMD)_[A-Z][A-Z0-9_]+)\b")
NOT_SETTINGS = {
    "STENO_DEBUG", "STENO_EXAMPLE_FOLDER", "STENO_PICTURES", "STENO_REQUIRE_LAB", "STENO_TEST_POSTGRES",
    "STENO_TEST_POSTGRES_BIN", "STENO_TEST_STORE", "STENO_TEST_SEGMENTS", "STENO_TEST_EXAMPLES",
    "STENO_TEST_SERVERS", "STENO_TEST_FORK", "STENO_CHECKPOINT_DIR", "STENO_OUTPUT_DIR", "STENO_TOTAL_ELAPSED",
    "STENO_KEEP_IDLE", "AMD_SERIALIZE_KERNEL",
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
            match = re.match(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(?:export \S+ && )?steno (.+)$", line)
            if match is None:
                continue
            words = re.split(r"\s{2,}|\s[#|>&]", match[1])[0]
            try:
                yield shlex.split(words)
            except ValueError:
                yield words.split()


@cache
def command_of(words: tuple[str, ...]) -> tuple[click.Command, int]:
    """The command that these words call, and how many of them name it."""
    command: click.Command = steno
    for depth, word in enumerate(words):
        if not isinstance(command, click.Group):
            return command, depth
        context = click.Context(command, obj=App())
        inner = command.get_command(context, word)
        if inner is None:
            default = getattr(command, "default", None)
            assert default is not None, f"there is no command {' '.join(words[: depth + 1])!r}"
            return command.commands[default], depth
        command = inner
    if isinstance(command, click.Group) and hasattr(command, "default"):
        return command.commands[command.default], len(words)
    return command, len(words)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_a_document_shows_exists(path: Path) -> None:
    """With every option it is shown with."""
    for words in typed(path.read_text()):
        if words[0].startswith("-") or not re.fullmatch("[a-z]+", words[0]):
            continue
        command, depth = command_of(tuple(word for word in words if not word.startswith("-") or word == "--"))
        known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h"}
        before_dashes = words[: words.index("--")] if "--" in words else words
        options = {word.split("=")[0] for word in before_dashes if re.match("--?[a-z]", word)}
        assert options <= known, f"{path.name}: steno {' '.join(words)} ({depth})"


def called(text: str) -> Iterator[list[str]]:
    """The words of every `steno …` in a command that a reader types, `steno` left out."""
    tokens = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=True)
    tokens.whitespace_split = True
    words: list[str] = []
    for token in [*tokens, ";"]:
        if set(token) <= set("();<>|&"):
            if words[:1] == ["steno"]:
                yield words[1:]
            words = []
        elif words or "=" not in token:
            words.append(token)


def parse(words: list[str]) -> None:
    """As the command line reads them: the command, its options, their values, and as many arguments as it takes.

    Raises:
        click.UsageError: it does not.
    """
    command: click.Command = steno
    with suppress(click.exceptions.Exit, RecordNotFound):  # --version; a record that the reader has
        context = steno.make_context("steno", [*words], obj=App())
        while isinstance(command, click.Group) and (rest := [*context._protected_args, *context.args]):
            name, inner, rest = command.resolve_command(context, rest)
            assert inner is not None
            context, command = inner.make_context(name, rest, parent=context), inner


@pytest.mark.parametrize(
    "path", [path for path in DOCS if path.suffix == ".md"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_command_that_a_reader_types_is_parsed(path: Path) -> None:
    """Commands of most pages are typed by `make test-long` only (`tests/cli/test_documents.py`)."""
    for command in commands_of(path):
        for words in called(command.text):
            if "site" not in words:  # a rule set that the page has its reader write
                parse(words)


def test_a_command_that_is_none_is_not_parsed() -> None:
    """Another option, another value, an argument too many; behind a pipe and a variable too."""
    for text in ("steno ps --alll", "A=1 steno costs --by moon", "true | steno ps now", "steno polll 1"):
        with pytest.raises(click.UsageError):
            parse(*called(text))


def test_the_documents_show_commands_at_all() -> None:
    """The search finds what it is meant to find."""
    commands = {words[0] for path in DOCS for words in typed(path.read_text())}
    assert commands >= {"submit", "explain", "doctor", "vms", "costs", "budget", "up", "config", "verify"}


@pytest.mark.parametrize("path", [*DOCS, *DECISIONS], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_inside_the_project_leads_somewhere(path: Path) -> None:
    """A file, or a folder."""
    missing = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("folder", ["docs/adr", "docs/adr/history"])
def test_every_decision_is_in_the_index_of_its_folder(folder: str) -> None:
    """Once."""
    listed = LINK.findall((ROOT / folder / "README.md").read_text())
    decisions = sorted(path.name for path in (ROOT / folder).glob("0*.md"))
    assert sorted(name for name in listed if re.match(r"\d{4}-", name)) == decisions


def anchors_of(path: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    headings = HEADING.findall(FENCE.sub("", path.read_text()))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", [*DOCS, *DECISIONS], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_anchor_of_a_link_is_a_heading(path: Path) -> None:
    """On the same page, or on the page that it names."""
    pages = [(path.parent / page if page else path, anchor) for page, anchor in ANCHOR.findall(path.read_text())]
    assert [(page.name, anchor) for page, anchor in pages if anchor not in anchors_of(page)] == []


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
    """It accepts this body with this secret, signed recently."""
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "notifications.md").read_text(), re.DOTALL)
    scope: dict[str, Any] = {}
    exec(snippet, scope)
    header, body = sign("s3cret", 1_795_201_781, b'{"kind":"budget"}'), b'{"kind":"budget"}'
    is_ours = scope["is_ours"]
    assert is_ours("s3cret", header, body, now=1_795_201_790.5)
    assert not is_ours("other", header, body, now=1_795_201_790.5)
    assert not is_ours("s3cret", header, body + b" ", now=1_795_201_790.5)
    assert not is_ours("s3cret", header, body, now=1_795_203_000.0)


def test_the_notes_of_each_release_are_short_and_those_of_this_version_are_first() -> None:
    """Readers of a release read 60 lines; the diary is in the history of git."""
    notes = re.split("^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    assert [note.splitlines()[0] for note in notes if len(note.splitlines()) > 60] == []
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert notes[0].split()[0] == version
