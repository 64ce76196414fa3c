"""The cause of a failure is the line that others follow from, or nothing."""

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from steno.engine.causes.catalogue import (
    Catalogue,
    CauseRule,
    catalogue_of,
    rules_in,
    shipped,
    shipped_causes,
    with_rules,
)
from steno.engine.causes.find import LONGEST, Found, find, lines_of
from steno.events.errors import UnreadableInput

OOM = b"torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB."
PEER = b"[rank1]:[E1129] ProcessGroupNCCL.cpp:616 [Rank 1] Watchdog caught collective operation timeout"
TRACEBACK = b'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'


def docker(output: bytes) -> bytes:
    """The output as Docker's json-file driver keeps it."""
    lines = [json.dumps({"log": f"{line}\n", "stream": "stderr"}) for line in output.decode().splitlines()]
    return "\n".join(lines).encode() + b"\n"


def cause(output: bytes, exit_status: int | None = 1) -> str | None:
    quote = find(lines_of([output]), shipped(), exit_status)
    return None if quote is None else quote.rule.cause


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (PEER + b"\n" + OOM, "gpu_out_of_memory"),
        (TRACEBACK + b"ValueError: bad shape\n" + PEER, "python_error"),
        (PEER + b"\n" + TRACEBACK + b"ValueError: bad shape\n", "collective_error"),
        (b"\x1b[31mSegmentation fault\x1b[0m (core dumped)\n", "segfault"),
        (b"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-01T10:00:00 DUE TO PREEMPTION ***", "preempted"),
        (b"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-01T10:00:00 DUE TO TIME LIMIT ***", "timed_out"),
        (b"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-01T10:00:00 ***", "killed_by_signal"),
        (TRACEBACK, None),  # the line that decides is missing
        (b"ValueError: quoted by somebody, outside of any traceback", None),
        (b"Connection refused: retrying in 5 s (attempt 1/5)\nstarted\n", None),
        (OOM + b"\n" + b"".join(b"step %d loss 2.1\n" % step for step in range(20)), None),
        (b"WARNING: No CUDA GPUs are available, falling back to CPU\n", None),
        (b"cat: /sys/x: No such file or directory\n" + TRACEBACK + b"KeyError: 'x'\n", "python_error"),  # it went on
        (b"srun: error: n1: task 3: Exited with exit code 1\nsrun: error: n1: tasks 0-2: Terminated\n", None),
        (b"CUDA out of memory, trying a batch of 8\n", None),
        (OOM + b"\nretrying with a batch of 8\n", None),
        (b"", None),
        (b"curl: (7) Failed to connect to x port 9: Connection refused\nbuilt\nread\nSegmentation fault\n", "segfault"),
        (b"cat: /x: No such file or directory\nSegmentation fault\n", "missing_file"),  # it followed at once
        (b"/x: Permission denied\nepoch 1\n" + PEER, "collective_error"),
        (b"/x: Permission denied\nwaiting\nwaiting\n" + PEER, "permission_denied"),  # the peer may wait for it
        (TRACEBACK + b"KeyError: 'x'\nleaving\ncp: cannot stat 'out.pt': No such file or directory\n", "python_error"),
        (TRACEBACK + b"KeyError: 'x'\ncp: cannot stat 'out.pt': No such file or directory\n", "python_error"),
        (TRACEBACK + b"KeyError: 'x'\nSegmentation fault (core dumped)\n", "python_error"),  # while it tidied up
        (b"Segmentation fault (core dumped)\n" + TRACEBACK + b"KeyError: 'x'\n", "segfault"),
        (b"srun: error: n1: task 3: Exited with exit code 1\nsrun: error: n1: tasks 0-2: Killed\n", None),
        (b"srun: error: n1: task 3: Killed\n", "killed_by_signal"),
        (b"curl: (6) Could not resolve host: x\ntar: a.tar: Cannot open: No such file or directory\n", "network_error"),
        (b"Could not resolve host: x\n" + TRACEBACK + b"FileNotFoundError: [Errno 2] 'a'\n", "missing_file"),
        (b"Could not resolve host: x\n" + TRACEBACK + b"subprocess.CalledProcessError: 'git', 128\n", "network_error"),
        (b"Could not resolve host: x\n" + TRACEBACK + b"KeyError: 'x'\n", "python_error"),
        (b"Exception ignored in: <function f at 0x1>\n" + TRACEBACK + b"OSError: [Errno 28] No space left\n", None),
        (b"srun: error: n1: task 3: Aborted (core dumped)\n", None),  # it ended itself, and does not say why
        (b'{"exc":"Traceback (most recent call last):\\n  File \\"a.py\\", line 1\\nKeyError: 1"}\n', "python_error"),
        (b"[sweep] time's up, 23 points are not computed\n", "timed_out"),
        (b"[sweep] time's up, 23 points are not computed\n" + TRACEBACK + b"KeyError: 'x'\n", "python_error"),
        (TRACEBACK + b"RuntimeError: the evaluation ran into its limit\n", "timed_out"),
        (b"cat: /x: Datei oder Verzeichnis nicht gefunden\n", "missing_file"),
        (b"RANK=3 WORLD_SIZE=8\nStarting elastic_operator, min_nodes: 2\nheartbeat timeout: 60 s\nTIME_LIMIT\n", None),
        (b'{"level":"warn","msg":"connection refused"}\n', None),
        (docker(TRACEBACK + b"KeyError: 'x'\n"), "python_error"),
        (docker(b'level=WARN msg="connection refused"\n'), None),
        (b'{"log":"CUDA out of memory \\udc00","stream":"stderr"}\n', "gpu_out_of_memory"),  # half a character
        (b"2026-11-29T09:11:02.1Z stderr F [rank3]: curl: (6) Could not resolve host: x\n", "network_error"),
        (
            b"Nov 29 20:11:09 3: "
            + b"Nov 29 20:11:09 3: ".join(TRACEBACK.splitlines(True))
            + b"Nov 29 20:11:09 3: KeyError: 1\n",
            "python_error",
        ),
        (b"2026-11-29T18:00:00Z ERROR store: name server has no answer for a.example.org\n", "network_error"),
        (b"2026-11-29T18:00:00Z INFO store: name server has no answer for a.example.org\n", None),
        (
            b"2026-11-29T18:00:00Z ERROR store: name server has no answer for a.example.org\nKilled\n",
            "killed_by_signal",
        ),
        (b"[2026-11-29 19:00] [error] the upload exits with status 4\n", None),  # of another program
        (b'doc 4: "Traceback (most recent call last): x"\ndoc 5: "kernel: Out of memory: Killed process 8"\n', None),
        (b"cudaMalloc: it could be caused by a segmentation fault\n", None),
    ],
)
def test_the_line_that_others_follow_from_decides(output: bytes, expected: str | None) -> None:
    """Not what the task survived, not what came of it, and nothing that only looks like an error."""
    assert cause(output) == expected


@given(st.text("aZ9 :./|[]()_-\u2502", max_size=40), st.lists(st.integers(0, 9_999), min_size=4, max_size=4))
@example("2026-11-30T12:00:00.", [1, 22, 333, 0])
@example("\x1b[31mnid", [1, 2, 3, 4])
@example("999999", [0, 0, 0, 0])
def test_a_traceback_is_read_behind_any_prefix(prefix: str, numbers: list[int]) -> None:
    """Law: of a rank, a host, a time or a logger, with numbers that change from line to line."""
    lines = (TRACEBACK + b"    f(x)\nMy.pkg.WrongShape: 4 is not 5").decode().split("\n")
    output = "\n".join(f"{prefix}{number} {line}" for number, line in zip(numbers, lines, strict=True))
    assert cause(output.encode()) == "python_error"


def test_a_task_that_exited_0_has_no_cause() -> None:
    assert cause(OOM, 0) is None
    assert cause(OOM + b"\nTraining complete\n", None) is None
    assert cause(OOM + b"\nTraining complete\n", 1) == "gpu_out_of_memory"


def test_the_quoted_bytes_are_the_line() -> None:
    """Also behind a line that is longer than what is read at once, and whatever the pieces are."""
    output = b"x" * (3 * LONGEST + 7) + b"\n\n  " + OOM + b"\r\nbye\n"
    for size in (1, 1_000, len(output)):
        quote = find(lines_of(output[at : at + size] for at in range(0, len(output), size)), shipped(), 1)
        assert isinstance(quote, Found)
        assert output[quote.start : quote.end] == b"  " + OOM == quote.line.encode()


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_lines_are_the_output(pieces: list[bytes], size: int) -> None:
    """Law: places and lines make the output again, in whatever chunks it comes."""
    output = b"\n".join(pieces)
    whole = list(lines_of([output]))
    assert list(lines_of(output[at : at + size] for at in range(0, len(output), size))) == whole
    assert all(output[start : start + len(line)] == line for start, line in whole)


LINES = (
    OOM,
    PEER,
    *TRACEBACK.splitlines(),
    b"ValueError: bad shape",
    b"step 1 loss 2.1",
    b"y",
    b"",
    b"    x = 1",
    b"done",
)


@given(st.lists(st.tuples(st.sampled_from(LINES), st.integers(1, 12)), max_size=12), st.sampled_from([1, None]))
def test_a_line_that_comes_again_counts_as_any_other(runs: list[tuple[bytes, int]], exit_status: int | None) -> None:
    """Law: repeated lines, some of which are not looked at, give what lines give that differ in their end."""
    lines = [line for line, times in runs for _ in range(times)]
    varied = [line + b"\r" * (number % 2) for number, line in enumerate(lines)]
    plain, other = (find(lines_of([b"\n".join(each)]), shipped(), exit_status) for each in (lines, varied))
    assert (plain and (plain.rule, plain.line)) == (other and (other.rule, other.line))


@pytest.mark.parametrize("line", [b"\n", b"y\n", b"\0" * LONGEST])
def test_output_that_repeats_itself_takes_no_minutes(line: bytes) -> None:
    """A record keeps 32 MB, and each short line took some ten microseconds."""
    began = time.process_time()
    quote = find(lines_of([line * ((1 << 20) // len(line))] * 2), shipped(), 1)
    assert quote is None
    assert time.process_time() - began < 5


def test_each_of_many_rules_is_found() -> None:
    """Their patterns are several automata; the context before a line counts too."""
    names = [f"r{number}" for number in range(600)]
    rules = [CauseRule(name=n, cause="segfault", source="s", patterns=(f"{n}!",), needs=f"{n}[?]") for n in names]
    catalogue = Catalogue(shipped_causes(), rules)
    assert [[hit.rule.name for hit in catalogue.read(f"{name}!")[0]] for name in names] == [[name] for name in names]
    assert [catalogue.read(f"{name}?")[1] for name in names] == [[(name, f"{name}[?]")] for name in names]


def test_large_patterns_of_a_site_are_taken_together() -> None:
    """Each is small enough, and three of them are too large for the memory of an automaton."""
    rules = [
        CauseRule(name=f"r{n}", cause="segfault", source="site", patterns=(rf"{n:03}[\pL]{{440}}",)) for n in range(3)
    ]
    read = Catalogue(shipped_causes(), rules).read
    assert [[hit.rule.name for hit in read(f"{n:03}" + "a" * 440)[0]] for n in range(3)] == [[r.name] for r in rules]


def test_the_catalogue_is_whole() -> None:
    """Every cause has a rule, every name is one rule's, and each rule says where its lines come from."""
    rules = shipped().rules
    assert {rule.cause for rule in rules} == set(shipped_causes())
    assert max(Counter(rule.name for rule in rules).values()) == 1
    assert all(rule.source and rule.patterns for rule in rules)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]\n", "site.toml: Expected ']]'"),
        ("[[rule]]\nname = 'a'\n", "site.toml: Object missing required field `cause`"),
        ("[[rule]]\nname='a'\ncause='x'\nsource='s'\npatterns=['b']\n", "rule 'a': no cause is named 'x'"),
        ("[[rule]]\nname='a'\ncause='no_gpu'\nsource='s'\npatterns=['(a)\\1']\n", "rule 'a': RE2 does not take"),
        (
            "[[rule]]\nname='a'\ncause='no_gpu'\nsource='s'\npatterns=['.*']\n",
            "rule 'a': the pattern '.*' matches every",
        ),
    ],
)
def test_a_bad_rule_is_refused_with_its_name(text: str, message: str) -> None:
    with pytest.raises(UnreadableInput, match="^" + message.replace("(", r"\(").replace("]", r"\]")):
        with_rules(rules_in(text, "site.toml"))


def test_a_bad_rule_of_a_file_is_refused_with_its_line(tmp_path: Path) -> None:
    """The line of its pattern."""
    path = tmp_path / "site.toml"
    path.write_text("[[rule]]\nname='a'\ncause='no_gpu'\nsource='s'\npatterns=['fine',\n  '(?=look)ahead']\n")
    with pytest.raises(UnreadableInput, match=r"site\.toml, line 6: rule 'a': RE2 does not take"):
        catalogue_of(str(path))


def test_a_sites_rule_comes_first() -> None:
    """Between causes of one rank, and with its own blame and remedy."""
    text = "[[rule]]\nname='licence'\ncause='auth_error'\nsource='ours'\npatterns=['no licence left']\nremedy='wait'\n"
    catalogue = with_rules(rules_in(text, "site.toml"))
    quote = find(lines_of([b"fatal: no licence left"]), catalogue, 1)
    assert quote is not None
    assert (quote.rule.name, catalogue.remedy(quote.rule), catalogue.blame(quote.rule)) == ("licence", "wait", "task")


def test_the_order_of_rules_decides_only_among_equals() -> None:
    rules = [CauseRule(name=name, cause=name, source="", patterns=("bad",)) for name in ("python_error", "no_gpu")]
    quote = find(lines_of([b"bad"]), Catalogue(shipped_causes(), rules), 1)
    assert quote is not None
    assert quote.rule.name == "no_gpu"
