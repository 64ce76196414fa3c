"""The catalogue names the cause of logs written after public reports, and of nothing else.

`corpus/*.txt`: a log begins with `=== name | cause | exit status`, and with `| cut` where no other line decides, and
`| docker` where a container's log has each line (`DRESSES`). `» ` marks the lines that decide, `%name` stands for a
block of blocks.txt. `python tests/engine/causes/test_corpus.py` from the top prints what is missed.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from steno.engine.causes.catalogue import shipped, shipped_causes
from steno.engine.causes.find import Found, find, lines_of

FOLDER: Final = Path(__file__).with_name("corpus")
MARK: Final = "» "
DRESSES: Final[dict[str, Callable[[str], str]]] = {  # what prints each line of a log
    "ansi": "\x1b[31m{}\x1b[0m".format,
    "crlf": "{}\r".format,
    "ts": "Nov 29 20:11:09 {}".format,
    "journal": "Nov 29 09:11:02 cn31 trainer[4411]: {}".format,
    "cri": "2026-11-29T09:11:02.117000001Z stderr F {}".format,
    "compose": "trainer-1  | {}".format,
    "srun": "3: {}".format,
    "mpi": "[1,3]<stderr>: {}".format,
    "ray": "(TrainWorker pid=1502, ip=10.4.0.3) {}".format,
    "elastic": "[default3]:{}".format,
    "docker": lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-29T09:11:02.117Z"}),
    "zap": lambda line: json.dumps({"level": "info", "ts": 1795943462.117, "caller": "pipe/pipe.go:41", "msg": line}),
}


class Log(NamedTuple):
    name: str
    cause: str  # "none": the run succeeded, or failed, and no line says why
    exit_status: int
    cut: bool  # True: without its decisive lines nothing explains it
    lines: list[str]

    @property
    def decisive(self) -> list[str]:
        return [line.removeprefix(MARK).rstrip("\r") for line in self.lines if line.startswith(MARK)]

    def output(self, *, cut: bool = False) -> bytes:
        kept = [line.removeprefix(MARK) for line in self.lines if not (cut and line.startswith(MARK))]
        return "\n".join(kept).encode()


def sections(path: Path) -> list[tuple[str, list[str]]]:
    parts = re.split(r"^=== (.+)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [(head, body.rstrip("\n").split("\n")) for head, body in zip(parts[::2], parts[1::2], strict=True)]


@cache
def corpus() -> tuple[Log, ...]:
    blocks = dict(sections(FOLDER / "blocks.txt"))
    logs = []
    for path in sorted(FOLDER.glob("*.txt")):
        for head, body in sections(path) if path.name != "blocks.txt" else ():
            name, cause, status, *marks = head.split(" | ")
            lines = [line for each in body for line in (blocks[each[1:]] if re.match(r"%\w+$", each) else [each])]
            for dress in (DRESSES[mark] for mark in marks if mark != "cut"):
                lines = [MARK * line.startswith(MARK) + dress(line.removeprefix(MARK)) for line in lines]
            logs.append(Log(f"{path.stem}/{name}", cause, int(status), "cut" in marks, lines))
    return tuple(logs)


FAILED: Final = [log for log in corpus() if log.cause != "none"]
SUCCEEDED: Final = [log for log in corpus() if log.cause == "none"]
CUT: Final = [log for log in FAILED if log.cut]


def cause_of(output: bytes, exit_status: int | None) -> Found | None:
    return find(lines_of([output]), shipped(), exit_status)


def named(quote: Found | None) -> str:
    return "unknown" if quote is None else quote.rule.cause


def macro_f1(pairs: list[tuple[str, str]]) -> float:
    """The mean over the true classes of 2 TP / (2 TP + FP + FN); pairs are (true, named)."""
    counts, true, guessed = Counter(pairs), Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    return sum(2 * counts[name, name] / (true[name] + guessed[name]) for name in true) / len(true)


def missed() -> list[str]:
    """A line for each log that the catalogue gets wrong."""
    lines = []
    for log in FAILED:
        quote = cause_of(log.output(), log.exit_status)
        if named(quote) != log.cause:
            lines.append(f"{log.name}: {log.cause} named {named(quote)} by {quote and (quote.rule.name, quote.line)}")
        elif quote and quote.line not in log.decisive:
            lines.append(f"{log.name}: quotes {quote.rule.name}: {quote.line}")
    wrong = [(log, "succeeded", cause_of(log.output(), None)) for log in SUCCEEDED]
    wrong += [(log, "cut", cause_of(log.output(cut=True), log.exit_status)) for log in CUT]
    return lines + [f"{log.name}: {how}, quotes {quote.rule.name}: {quote.line}" for log, how, quote in wrong if quote]


def test_the_corpus_is_large_enough() -> None:
    by_cause = Counter(log.cause for log in FAILED)
    assert set(by_cause) == set(shipped_causes())
    assert min(by_cause.values()) >= 8
    assert len(FAILED) >= 220
    assert len(SUCCEEDED) >= 100
    assert len(CUT) >= 100
    assert sum(bool(re.search("/(rocm|slurm)-", log.name)) for log in FAILED) >= 60
    assert all(log.decisive for log in FAILED)
    assert all(4 <= len(log.lines) <= 200 for log in corpus())
    assert len({log.name for log in corpus()}) == len(corpus())


def test_causes_are_right_and_the_line_quoted_decides() -> None:
    quotes = [(log, cause_of(log.output(), log.exit_status)) for log in FAILED]
    assert macro_f1([(log.cause, named(quote)) for log, quote in quotes]) >= 0.9
    right = [(log, quote) for log, quote in quotes if quote and named(quote) == log.cause]
    assert [log.name for log, quote in right if quote.line not in log.decisive] == []


@pytest.mark.parametrize("exit_status", [0, None])
def test_a_success_has_no_cause(exit_status: int | None) -> None:
    """Also if nobody says how it exited."""
    assert [log.name for log in SUCCEEDED if cause_of(log.output(), exit_status)] == []


def test_a_failure_that_no_line_explains_has_no_cause() -> None:
    silent = [log for log in SUCCEEDED if log.exit_status]
    assert len(silent) >= 10
    assert [log.name for log in silent if cause_of(log.output(), log.exit_status)] == []


def test_without_the_decisive_lines_there_is_no_cause() -> None:
    assert [log.name for log in CUT if cause_of(log.output(cut=True), log.exit_status)] == []


if __name__ == "__main__":
    print("\n".join(missed()))
    for part in sorted({log.name.split("/")[0] for log in FAILED}):
        logs = [log for log in FAILED if log.name.startswith(f"{part}/")]
        pairs = [(log.cause, named(cause_of(log.output(), log.exit_status))) for log in logs]
        print(part, len(logs), f"{macro_f1(pairs):.3f}")
    print("all", f"{macro_f1([(log.cause, named(cause_of(log.output(), log.exit_status))) for log in FAILED]):.3f}")
