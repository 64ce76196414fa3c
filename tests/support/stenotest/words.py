"""Checks names and prose against docs/style.md: `python -m stenotest.words [FILE|FOLDER …]`, by default everything.

Prose is every docstring, comment and text of several words in Python, and every paragraph of a document outside code.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
NAMES = frozenset({"asked", "found", "one", "said", "shown", "told"})
"""Names that do not say what a value is."""
EXCEPTIONS = (
    "docs/adr/history/",  # withdrawn decisions, as they were written
    "docs/style.md",  # its examples
    "tests/project/test_words.py",  # its examples
    "tests/support/stenotest/words.py",
)
"""Files and folders that are not checked."""


class Rule(NamedTuple):
    """A pattern that prose does not have, and the words to write in its place."""

    pattern: re.Pattern[str]
    instead: str


def _rule(pattern: str, instead: str, flags: re.RegexFlag = re.IGNORECASE) -> Rule:
    return Rule(re.compile(pattern, flags), instead)


_DEGREE = r"(same|other|last|first|next|only|old|new|right|wrong|\w+est|\w+er)"
RULES = (
    _rule(r"\b(let(s|ting)? go of|let go\b)", "evict, release, drop"),
    _rule(r"\btak(e|es|en|ing) up\b", "load, begin, accept"),
    _rule(r"\b(tell|tells|told|telling) of\b", "report, name"),
    _rule(r"\banew\b", "again, or: restart, rebuild, reload"),
    _rule(r"\bso (much|many) (as|that|was|were|is|are|times)\b", "the number, or: too large"),
    _rule(r"\bwhat (it|they) (is|are) worth\b", "the value, or: whether it pays"),
    _rule(r"\b(takes?|took|by|gives?|gave) (our|its|their|his) word\b", "accept; name who says what"),
    _rule(
        r"\b(?<!there )(?<!nothing )(is|are|was|were) no (?!longer\b|more than\b|less than\b|such\b)[a-z]", "is not a"
    ),
    _rule(r"\bones\b", "repeat the noun"),
    _rule(rf"\b(this|that|each|every|another|which|the {_DEGREE}) one\b(?! \w)", "repeat the noun"),
    _rule(r"\bone (that|which|who|whose)\b", "repeat the noun"),
    _rule(
        r"\bnobody('s| else's)?\b(?= (asked|wants?|wanted|knows?|needs?|needed))",
        "say who does not, or use the passive",
    ),
    _rule(r"\b(be|been|is|are|was|were) to be (had|found|told|said)\b", "is available, or: must be …"),
    _rule(r"\b(whence|thereof|therein|hence of|wherefore|henceforth|thereby|lest)\b", "the usual word"),
    _rule(r"\b(cannot bear its|without =VALUE it is ours|which is no end|after which nothing comes)\b", "rewrite it"),
)
"""The rules of all prose."""
FIRST = (
    _rule(r"^Whether\b", "True if …", re.NOFLAG),
    _rule(r"^(What|Who|Those|Which|Of)\b", "name the thing: The runs that …", re.NOFLAG),
    _rule(
        r"^(One|Ones)\b(?! \w+(ly)? (answer|row|line|page|file|process|thread|second|day|way|record|event|poll|run"
        r"|machine|container|cell|batch|case))",
        "name the thing: A run that …",
        re.NOFLAG,
    ),
)
"""The rules of the first line of a docstring."""
LAST = _rule(
    r"\b(it|they|he|who|that|which|there|what|where|as|than) (is|are|was|were|has|have|had|does|do|did|can|will|may)"
    r"[.;]?$",
    "put the verb before its object",
    re.NOFLAG,
)
"""The rule of the end of a sentence."""


class Finding(NamedTuple):
    """A place that a rule finds."""

    path: Path
    line: int
    text: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text!r}: {self.instead}"


def findings(path: Path, text: str) -> Iterator[Finding]:
    """Every finding in the text of a document or of a module of Python."""
    yield from _python(path, text) if path.suffix == ".py" else _document(path, text)


def _python(path: Path, text: str) -> Iterator[Finding]:
    tree = ast.parse(text)
    fields = {  # their names are keys of events and answers
        line.target
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for line in node.body
        if isinstance(line, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name() if node in fields:
                pass
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) if name in NAMES:
                yield Finding(path, node.lineno, name, "name what the value is")
            case ast.Constant(value=str(words)) if len(words.split()) > 2:
                yield from _prose(path, node.lineno, words)
            case ast.Expr(value=ast.Constant(value=str(words))):
                yield from _matches(path, node.lineno, words.strip(), FIRST)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield from _prose(path, token.start[0], token.string.lstrip("# "))


def _document(path: Path, text: str) -> Iterator[Finding]:
    """Findings in the paragraphs outside code."""
    for code in re.finditer(r"(?ms)^```.*?^```\s*$|`[^`\n]*`", text):
        text = text[: code.start()] + re.sub(r"[^\n]", "_", code[0]) + text[code.end() :]
    for paragraph in re.finditer(r"(?s)\S.*?(?=\n\s*\n|\Z)", text):
        yield from _prose(path, text.count("\n", 0, paragraph.start()) + 1, paragraph[0])


def _prose(path: Path, line: int, words: str) -> Iterator[Finding]:
    words = re.sub(r"`[^`]*`", "_", words)
    yield from _matches(path, line, words, RULES)
    for sentence in re.finditer(r"[^.;:?!]+[.;:?!]", " ".join(words.split())):
        yield from _matches(path, line, sentence[0], (LAST,))


def _matches(path: Path, line: int, words: str, rules: Sequence[Rule]) -> Iterator[Finding]:
    for rule in rules:
        for match in rule.pattern.finditer(words):
            yield Finding(path, line + words.count("\n", 0, match.start()), match[0], rule.instead)


def tracked(words: Sequence[str]) -> list[Path]:
    """The files of these files and folders that git knows, without the exceptions."""
    listed = subprocess.run(["git", "ls-files", "-z", *words], cwd=ROOT, capture_output=True, check=True, text=True)
    names = [
        name
        for name in listed.stdout.split("\0")
        if name and name.endswith((".md", ".py")) and not name.startswith(EXCEPTIONS)
    ]
    return [path for name in names if (path := ROOT / name).is_file() and not path.is_symlink()]


def main(words: Sequence[str]) -> int:
    everything = sorted(finding for path in tracked(words) for finding in findings(path, path.read_text("utf-8")))
    for finding in everything:
        print(finding)
    return bool(everything)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
