"""Rule files on disk: `rules/NAME.toml` beside a `steno.toml`, or anywhere."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from steno.engine.rules.rule_file import MOST_BYTES, RuleFile, RuleFinding, read_rules
from steno.engine.rules.sets import CURRENT
from steno.events.errors import UnreadableInput

SUFFIX: Final = ".toml"
_DEEPEST: Final = 8  # sets that extend each other


def rule_files(folders: Sequence[Path]) -> dict[str, Path]:
    """The rule files of folders by name; of two of one name that of the first folder."""
    paths = [path for folder in folders for path in sorted(folder.glob(f"*{SUFFIX}")) if path.is_file()]
    return {path.stem: path for path in reversed(paths)}


def text_of_file(path: Path) -> str:
    """Raises UnreadableInput: it is not a text of at most `MOST_BYTES`; FileNotFoundError: it does not exist."""
    if not path.exists():
        raise FileNotFoundError(2, "the rule file does not exist", str(path))
    if not path.is_file():
        raise UnreadableInput(f"{path} is not a regular file")
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise UnreadableInput(f"{path} has more than {MOST_BYTES} bytes, the most that are read")
    try:
        return data.decode().removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UnreadableInput(f"{path}:{line}: is not UTF-8") from None


def file_of(path: Path) -> tuple[str, RuleFile | None, tuple[RuleFinding, ...]]:
    """The text of a rule file, what it says, and what is wrong with it; its name is that of the file, and what it
    extends is there.
    """
    text = text_of_file(path)
    file, findings = read_rules(text)
    if file is not None and file.name != path.stem:
        wrong = f"its name is {file.name!r}: call the file {file.name}{SUFFIX}, or the rule set {path.stem!r}"
        findings = (finding_at("name", text, wrong), *findings)
    base = None if file is None or file.extends in (None, CURRENT.name) else base_of(path, file)
    if base is not None and not base.exists():
        findings = (finding_at("extends", text, f"there is no {base} to extend"), *findings)
    return text, file, findings


def base_of(path: Path, file: RuleFile) -> Path:
    """The file of the set that a rule file extends."""
    return path.with_name(f"{file.extends}{SUFFIX}")


def finding_at(key: str, text: str, wrong: str) -> RuleFinding:
    """A finding that makes a file unusable, at the line of a key of its head."""
    line = next((at for at, line in enumerate(text.splitlines(), 1) if line.startswith(key)), 1)
    return RuleFinding(line=line, kind="unreadable", text=wrong)


def texts_of(path: Path) -> tuple[str, ...]:
    """The text of a rule file, then those of the sets that it extends, of its folder.

    Raises:
        UnreadableInput: a file is not understood; the message begins with `FILE:LINE`.
    """
    texts, before = list[str](), list[Path]()
    while True:
        text, file, findings = file_of(path)
        if file is not None and (file.name in (each.stem for each in before) or len(before) == _DEEPEST):
            wrong = f"{before[0].name} extends itself by way of {path.name}, or more than {_DEEPEST} sets"
            findings = (finding_at("extends", text, wrong),)
        if file is None or findings:
            more = f" (and {len(findings) - 1} more: `steno rules check {path}`)" if len(findings) > 1 else ""
            raise UnreadableInput(f"{path}:{findings[0].line}: {findings[0].text}{more}")
        texts.append(text)
        if file.extends in (None, CURRENT.name):
            return tuple(texts)
        before.append(path)
        path = base_of(path, file)


def current_rows() -> str:
    """The rule file that says what `current` does."""
    return files("steno.engine.rules").joinpath("current.toml").read_text(encoding="utf-8")
