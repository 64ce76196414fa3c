"""From a solution to a program: with hipcc if there is one, else with g++ and the stand-in for HIP's header."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from . import child

TYPES = {"float32": "float", "float64": "double", "float16": "__half", "bfloat16": "__hip_bfloat16", "int32": "int"}
SCALARS = {"float32": "float", "float64": "double", "float16": "float", "bfloat16": "float", "int32": "int"}
"""The C++ type of a scalar argument."""
_HEADERS = {"float16": "#include <hip/hip_fp16.h>\n", "bfloat16": "#include <hip/hip_bf16.h>\n"}
_LAUNCH = re.compile(r"([A-Za-z_][\w:]*)\s*((?:<[^<>;{}]*>)?)\s*<<<")
Signature = dict[str, Any]  # the names of the function, its inputs, outputs, parameters and sizes
_SHARED = re.compile(r"\bextern\s+__shared__\s+([^;\[\]]+?)\s*\b(\w+)\s*\[\s*\]\s*;")


class Compiler(NamedTuple):
    program: str
    words: str  # its description, for people
    stands_in: bool  # kernels run on the CPU: there is no GPU, or no compiler for it


def find_compiler(wanted: str) -> Compiler | None:
    """The requested compiler; for `auto`: hipcc, else g++ or clang++ with the stand-in; None: there is none."""
    for name in ("hipcc", "g++", "clang++") if wanted == "auto" else (wanted,):
        program = shutil.which(name) or (shutil.which(name, path="/opt/rocm/bin") if name == "hipcc" else None)
        if program is not None:
            said = child.run([program, "--version"], cwd="/", limit=60).output.strip().splitlines()
            version = said[0] if said else name
            if Path(name).name == "hipcc":
                return Compiler(program, version, stands_in=False)
            return Compiler(program, f"{version}, with Steno's stand-in for HIP on the CPU", stands_in=True)
    return None


def prototype(signature: Signature, dtype: str) -> str:
    """What the solution must define, as a header that is included before it."""
    kind, scalar = TYPES[dtype], SCALARS[dtype]
    arguments = [
        *(f"const {kind}* {name}" for name in signature["inputs"]),
        *(f"{kind}* {name}" for name in signature["outputs"]),
        *(f"{scalar} {name}" for name in signature["parameters"]),
        *(f"size_t {name}" for name in signature["sizes"]),
    ]
    return (
        f"#pragma once\n#include <hip/hip_runtime.h>\n{_HEADERS.get(dtype, '')}#include <cstddef>\n"
        f'extern "C" void {signature["function"]}({", ".join(arguments)});\n'
    )


def program_of(signature: Signature, dtype: str) -> str:
    """The main program: it reads a case, calls the solution, writes the outputs."""
    kind, scalar = TYPES[dtype], SCALARS[dtype]
    inputs, outputs, sizes = signature["inputs"], signature["outputs"], signature["sizes"]
    # a parameter's value comes from the case, so that cases may differ
    parameters = signature["parameters"]
    lines = ['#include "prototype.hpp"', '#include "harness.hpp"', "int main(int steno_count, char** steno_given) {"]
    lines.append("  steno::Case steno_case(steno_count, steno_given);")
    lines += [f"  const size_t {name} = steno_case.number();" for name in sizes]
    lines += [f'  const {kind}* {name} = steno_case.input<{kind}>("{name}");' for name in inputs]
    for name in outputs:
        lines.append(f"  const size_t steno_{name} = steno_case.number();")
        lines.append(f'  {kind}* {name} = steno_case.output<{kind}>("{name}", steno_{name});')
    lines += [f"  const {scalar} {name} = steno_case.parameter<{scalar}>();" for name in parameters]
    arguments = ", ".join([*inputs, *outputs, *parameters, *sizes])
    lines.append(f"  return steno_case.run([&] {{ {signature['function']}({arguments}); }});")
    return "\n".join([*lines, "}", ""])


def compile_program(compiler: Compiler, folder: Path, job: dict[str, Any]) -> child.ChildExit:
    here, source = Path(__file__).parent, job["solution"]
    shutil.copy(here / "harness.hpp", folder)
    (folder / "prototype.hpp").write_text(prototype(job["signature"], job["dtype"]), "utf-8")
    (folder / "program.hip").write_text(program_of(job["signature"], job["dtype"]), "utf-8")
    (folder / "solution.hip").write_text(rewritten(source) if compiler.stands_in else source, "utf-8")
    common = ["-std=c++17", "-include", "prototype.hpp", "solution.hip", "program.hip", "-o", "program"]
    if compiler.stands_in:
        argv = [compiler.program, "-O2", "-w", "-U_FORTIFY_SOURCE", "-I", str(here / "stand_in"), "-x", "c++", *common]
    else:
        argv = [compiler.program, "-O3", f"--offload-arch={job['arch']}", "-x", "hip", *common]
    return child.run(argv, cwd=os.fspath(folder), limit=job["limits"]["compile"])


def rewritten(source: str) -> str:
    """A solution for an ordinary C++ compiler: launches become calls, memory of unknown size becomes a pointer. Every
    line keeps its number, so that messages name the right one.
    """
    source = _SHARED.sub(lambda found: f"HIP_DYNAMIC_SHARED({found[1]}, {found[2]});", source)
    done, rest = "", source
    while (found := _LAUNCH.search(rest)) is not None:
        middle = _closing(rest, found.end(), ">>>")
        opening = None if middle is None else re.compile(r"\s*\(").match(rest, middle + 3)
        end = None if opening is None else _closing(rest, opening.end(), ")")
        if middle is None or opening is None or end is None:
            break
        where = _split(rest[found.end() : middle])
        shared = where[2] if len(where) > 2 else "0"
        call = f"{found[1]}{found[2]}({rest[opening.end() : end]});"
        threads = where[1] if len(where) > 1 else "1"
        launch = f"(void)steno_stand_in::launch({where[0]}, {threads}, {shared}, [=]() {{ {call} }})"
        done += rest[: found.start()] + launch
        rest = rest[end + 1 :]
    return done + rest


def _closing(text: str, start: int, end: str) -> int | None:
    """The position at which `end` closes what was opened before `start`, skipping nested brackets."""
    depth = 0
    for index in range(start, len(text)):
        if depth == 0 and text.startswith(end, index):
            return index
        depth += (text[index] in "([{") - (text[index] in ")]}")
        if depth < 0:
            return None
    return None


def _split(text: str) -> list[str]:
    parts, start = [], 0
    while (comma := _closing(text, start, ",")) is not None:
        parts.append(text[start:comma].strip())
        start = comma + 1
    return [*parts, text[start:].strip()]
