"""The local files that a command uses: in its arguments, behind launchers, variables and options."""

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from steno.engine.errors import TaskInvalid

_OPERATORS: Final = "();<>|&\n"
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
_PYTHON: Final = re.compile(r"python[\d.]*")
_WRAPPERS: Final = {  # programs that run another program → options with a value
    "env": ("-u", "-C"),
    "uv run": ("--with", "--python", "-p", "--extra", "--group", "--env-file", "--with-requirements", "--index"),
    "srun": ("-n", "-N", "-c", "-p", "-w"),
    "nohup": (),
    "exec": (),
    "time": (),
}
_LAUNCHERS: Final = frozenset({"torchrun", "deepspeed", "accelerate launch"})
_LAUNCHER_MODULES: Final = frozenset(
    {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed.launcher.runner"}
)
_SHELLS: Final = frozenset({"bash", "sh", "zsh"})
_WORKERS: Final = re.compile(r"--(?:[a-z]+[-_])*(?:num[-_])?workers[= ](\d+)")


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """A shell line, and what it needs of this machine."""

    line: str
    files: tuple[Path, ...] = ()  # existing files and folders, absolute, in the order of the words
    project: bool = False  # runs code of the current folder, by a file, a module or `uv run`

    @property
    def workers(self) -> int | None:
        """The data workers that one of its options asks for."""
        match = _WORKERS.search(self.line)
        return None if match is None else int(match[1])


def invocation(words: Sequence[str], folder: Path) -> Invocation:
    """The command as a shell line, with its files; `folder` is the current folder. One word is a shell line, or a
    file; several are quoted.

    Raises TaskInvalid if it runs a missing file or ends within a quote.
    """
    line = words[0] if len(words) == 1 and not _is_there(folder / words[0]) else shlex.join(words)
    if not line.strip():
        raise TaskInvalid("the command is empty")
    files: list[Path] = []
    project, place = False, folder
    for command in _with_nested(line):
        if command[0] == "cd" and len(command) == 2:
            place /= command[1]
            continue
        meant = [name for name in _meant(command) if not name.startswith(("/", "~", "$"))]
        for path in (place / name for name in meant):
            if not _is_there(path):
                raise TaskInvalid(
                    f"there is no file {str(path)!r}, which the command would run; name an existing file, or write "
                    f"its absolute path on the cluster"
                )
        named = [path for word in command for path in _paths(word, place)]
        modules = [path for path in _modules(command, place) if _is_there(path)]
        files += [*named, *modules]
        project = project or bool(meant or named or modules) or command[:2] == ["uv", "run"]
    first = next(_commands(line))[0]
    runner = {".py": "python3 ", ".sh": "bash "}.get(Path(first).suffix, "") if "\n" not in line else ""
    return Invocation(line=f"{runner}{line}", files=tuple(dict.fromkeys(files)), project=project)


def _commands(line: str) -> Iterator[list[str]]:
    """The words of each simple command of a line, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    try:
        tokens = list(lexer)
    except ValueError:
        raise TaskInvalid(f"the command has a quote that is not closed: {line.splitlines()[0][:80]}") from None
    left = iter(tokens)
    for word in left:
        if not word or not set(word) <= set(_OPERATORS):
            words.append(word)
        elif ">" in word:
            next(left, None)
        elif word != "<" and words:
            yield words
            words = []
    if words:
        yield words


def _with_nested(line: str) -> Iterator[list[str]]:
    """The simple commands of a line, and those of `bash -c LINE` in it."""
    for words in _commands(line):
        yield words
        left = _unwrapped(words)
        if left and left[0].rpartition("/")[2] in _SHELLS and "-c" in left[:-1]:
            yield from _with_nested(left[left.index("-c") + 1])


def _meant(words: Sequence[str]) -> Iterator[str]:
    """The file that a command runs, if any: it must exist."""
    left = _unwrapped(words)
    if not left:
        return
    tool, options = left[0].rpartition("/")[2], left[1:]
    if " ".join((tool, *options[:1])) in _LAUNCHERS or tool in _LAUNCHERS:
        yield from _launched(options)
    elif _PYTHON.fullmatch(tool):
        yield from _by_python(options)
    elif tool in _SHELLS:
        if "-c" not in options:
            yield from [word for word in options if not word.startswith("-")][:1]
    elif left[0].endswith((".py", ".sh")) or left[0].startswith("./"):
        yield left[0]


def _unwrapped(words: Sequence[str]) -> list[str]:
    """The command behind `A=B`, `env`, `uv run` and the like."""
    left = list(words)
    while left:
        wrapper = " ".join(left[:2]) if left[0] == "uv" else left[0]
        if _ASSIGNMENT.match(left[0]):
            left = left[1:]
        elif wrapper in _WRAPPERS:
            left = left[len(wrapper.split()) :]
            while left and left[0].startswith("-"):
                left = left[2 if left[0] in _WRAPPERS[wrapper] else 1 :]
        else:
            break
    return left


def _launched(options: Sequence[str]) -> Iterator[str]:
    """The script of a launcher: the first word that ends as one, since its options may have values."""
    if not {"-m", "--module"} & set(options):
        yield from [word for word in options if word.endswith(".py") and not word.startswith("-")][:1]


def _by_python(options: Sequence[str]) -> Iterator[str]:
    left = list(options)
    while left:
        word = left.pop(0)
        if word == "-m" and left and left[0] in _LAUNCHER_MODULES:
            yield from _launched(left[1:])
        if word in ("-m", "-c"):
            return
        if word in ("-W", "-X"):
            left = left[1:]
        elif not word.startswith("-"):
            yield word
            return


def _modules(words: Sequence[str], folder: Path) -> Iterator[Path]:
    """Where the module of `-m NAME` is, if it is in the current folder."""
    for flag, name in pairwise(words):
        if flag in ("-m", "--module") and re.fullmatch(r"[\w.]+", name):
            path = folder / name.replace(".", "/")
            yield from (path.with_suffix(".py"), path / "__main__.py")


def _paths(word: str, folder: Path) -> Iterator[Path]:
    """Existing files that a word names, as itself or as the value of `--flag=VALUE` or `A=VALUE`."""
    for text in (word, word.partition("=")[2]):
        if text and not text.startswith(("/", "~", "-")) and text not in (".", "..") and _is_there(folder / text):
            yield folder / text


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long to be a name, or with a NUL
        return False
