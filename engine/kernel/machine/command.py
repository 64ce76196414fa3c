"""Runs a solution that is a command, for the judge: what `harness.hpp` is for a function, on the same channel. For each
call it starts `./solution` with the case as JSON on its standard input, and reads the outputs as JSON from its standard
output. The judge believes nothing of this: it compares the outputs and has a clock of its own. It runs as an archive
with `signature.json`, `solution` and `tensors.py`. Exit status 5: the last line of its output says what the command did
wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

CALL, CASE = 1, 2  # what is asked; else only an answer
WRONG_OUTPUT = 5
_FEWEST, _EACH = 65_536, 64  # bytes of standard output that are read: at least, and for each number
_DUMPABLE = 4  # of prctl(2)
_GIVEN, _PRINTED = Path("case.json"), Path("outputs.json")


def main() -> None:
    _keep_to_itself()
    with zipfile.ZipFile(sys.argv[0]) as archive:
        signature = json.loads(archive.read("signature.json"))
        Path("solution").write_bytes(archive.read("solution"))
    Path("solution").chmod(0o755)
    case: dict[str, Any] = {}
    with open(3, "rb") as channel, open(4, "wb") as answers:
        while asked := channel.read(16):
            kind, number = struct.unpack("<QQ", asked)
            if kind == CASE:
                case = _case(signature, list(struct.unpack(f"<{number}d", channel.read(8 * number))))
            else:
                _answer(channel, answers, case if kind == CALL else None, signature["dtype"])


def _keep_to_itself() -> None:
    """The command is our child, of the same user: it must not open our memory or the channel (/proc/PID/fd)."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)


def _case(signature: dict[str, Any], numbers: list[float]) -> dict[str, Any]:
    """The numbers of a case by their names; they come in this order."""
    found = {}
    for kind in ("sizes", "inputs", "outputs", "parameters"):
        names = signature[kind]
        found[kind] = {name: one if kind == "parameters" else int(one) for name, one in zip(names, numbers)}  # noqa: B905
        numbers = numbers[len(names) :]
    return found


def _answer(channel: BinaryIO, answers: BinaryIO, case: dict[str, Any] | None, dtype: str) -> None:
    import tensors  # type: ignore[import-not-found] # it lies in the same archive

    if case is not None:
        read = {name: channel.read(entries * tensors.SIZES[dtype]) for name, entries in case["inputs"].items()}
        inputs = {name: list(tensors.unpacked(data, dtype)) for name, data in read.items()}
        given = {"sizes": case["sizes"], "parameters": case["parameters"], "inputs": inputs}
        _GIVEN.write_text(json.dumps(given), "utf-8")
        bytearray(b"\1") * (int(sys.argv[1]) << 20)  # flushes the caches
    answers.write(struct.pack("<Q", 1))
    answers.flush()
    word = channel.read(8)
    began = time.perf_counter()
    status = 0 if case is None else _run()
    milliseconds = (time.perf_counter() - began) * 1000
    if status != 0:
        _refuse(
            f"the command exited with status {status}" if status > 0 else f"the command was ended by signal {-status}"
        )
    outputs = b""
    for name, values in _outputs({} if case is None else case["outputs"]):
        try:
            whole = dtype == "int32" and all(one == int(one) for one in values)
            outputs += tensors.packed([int(one) for one in values] if whole else values, dtype)
        except (TypeError, ValueError, OverflowError, struct.error) as error:
            _refuse(f"{name} has an entry that is not {dtype}: {error}")
    answers.write(word + struct.pack("<d", milliseconds) + outputs)
    answers.flush()


def _run() -> int:
    """The exit status of one run. It reads and writes files, so that neither side waits for the other."""
    with _GIVEN.open("rb") as given, _PRINTED.open("wb") as printed:
        try:
            return subprocess.call(["./solution"], stdin=given, stdout=printed)
        except OSError as error:
            _refuse(f"the command cannot be started: {error.strerror}")


def _outputs(wanted: dict[str, int]) -> list[tuple[str, list[float]]]:
    if not wanted:
        return []
    most = _FEWEST + _EACH * sum(wanted.values())
    with _PRINTED.open("rb") as printed:
        text = printed.read(most + 1)
    if len(text) > most:
        _refuse(f"the command printed more than {most} bytes")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        _refuse(f"the command did not print JSON: {error}")
    if isinstance(found, list) and len(wanted) == 1:
        found = {next(iter(wanted)): found}
    for name, entries in wanted.items():
        values = found.get(name) if isinstance(found, dict) else None
        if not isinstance(values, list) or len(values) != entries:
            there = f"{len(values)} entries" if isinstance(values, list) else "no list"
            _refuse(f"the command printed {there} of {name}, not {entries} entries")
    return [(name, found[name]) for name in wanted]


def _refuse(why: str) -> NoReturn:
    os.write(2, f"{why}\n".encode())
    os._exit(WRONG_OUTPUT)


if __name__ == "__main__":
    main()
