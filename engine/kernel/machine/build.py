"""From a solution to a program: by hipcc or nvcc for a GPU, by g++ for the CPU; HIP then has a stand-in header. A
command needs no compiler.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

from .cells import Cells, ProgramEnd

TYPES = {"float32": "float", "float64": "double", "float16": "__half", "bfloat16": "__hip_bfloat16", "int32": "int"}
SCALARS = {"float32": "float", "float64": "double", "float16": "float", "bfloat16": "float", "int32": "int"}
"""The C++ type of a scalar argument."""
LARGEST = 64 << 20  # bytes of a program
_MOST_OBJECTS = 64  # kept at once, of some 14 KB
_HEADERS = {"float16": "#include <hip/hip_fp16.h>\n", "bfloat16": "#include <hip/hip_bf16.h>\n"}
# What repeats is bounded: a stranger's source must not keep the judge busy.
_LAUNCH = re.compile(r"(?<![\w:])((?:::)?[A-Za-z_][\w:]{0,999})\s{0,99}((?:<[^<>;{}]{0,999}>\s{0,99})?)<<<")
Signature = dict[str, Any]  # the names of the function, its inputs, outputs, parameters and sizes
_SHARED = re.compile(r"\bextern\s{1,9}__shared__\s{1,9}([^;\[\]]{1,99}?)\s{0,9}\b(\w{1,99})\s{0,9}\[\s{0,9}\]\s{0,9};")
_CANDIDATES = {"hip": ("hipcc", "g++", "clang++"), "cuda": ("nvcc",), "cpp": ("g++", "clang++")}
# Debian's clang 19 compiles HIP without ROCm's packages; the one file that ROCm 5.2 lacks for gfx942 is made of IR.
_WITHOUT_ROCM = "--rocm-path=/usr --rocm-device-lib-path=device -D__HIP_PLATFORM_AMD__ -lamdhip64"
_DEVICE_LIBRARY = (
    "mkdir device && ln -s /usr/lib/*/amdgcn/bitcode/*.bc device && { [ -e device/oclc_isa_version_942.bc ] || "
    "clang-19 --target=amdgcn-amd-amdhsa -nogpulib -x ir -c -emit-llvm isa942.ll -o device/oclc_isa_version_942.bc; }"
)
_ISA_942 = """\
target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128-\
p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-\
n32:64-S32-A5-G1-ni:7:8:9"
target triple = "amdgcn-amd-amdhsa"
@__oclc_ISA_version = linkonce_odr hidden local_unnamed_addr addrspace(4) constant i32 9402, align 4
"""
_NUMBERED = re.compile(r"\d\.\d")
_ELSEWHERE = {"hipcc": "/opt/rocm/bin/hipcc", "nvcc": "/usr/local/cuda/bin/nvcc"}


class Compiler(NamedTuple):
    program: str
    words: str  # its description, for people
    flags: tuple[str, ...]
    stands_in: bool = False  # the program runs on the CPU
    first: str = "true"  # what the shell does in the folder before it compiles


def find_compiler(cells: Cells, job: dict[str, Any]) -> Compiler | None:
    """The compiler that the job names; for `auto` that of its language: of HIP also g++ or clang++ with the stand-in.
    None: there is none.
    """
    wanted, language = job["compiler"], job["language"]
    for name in _CANDIDATES[language] if wanted == "auto" or language != "hip" else (wanted,):
        for program in (name, *([_ELSEWHERE[name]] if name in _ELSEWHERE else [])):
            version = _version(cells, program)
            if version is None:
                continue
            kind = Path(name).name
            if kind == "hipcc":
                return Compiler(program, version, flags=("-O3", f"--offload-arch={job['arch']}", "-x", "hip"))
            if kind == "clang++-19":
                flags = f"-O3 --offload-arch={job['arch']} {_WITHOUT_ROCM} -x hip"
                return Compiler(program, version, flags=tuple(flags.split()), first=_DEVICE_LIBRARY)
            if kind == "nvcc":
                return Compiler(program, version, flags=("-O3", f"-arch={job['arch']}", "-x", "cu", "-I", "cuda"))
            flags = f"{'-O3' if language == 'cpp' else '-O2'} -w -U_FORTIFY_SOURCE -I stand_in -x c++"
            version += "" if language == "cpp" else ", with Steno's stand-in for HIP on the CPU"
            return Compiler(program, version, stands_in=True, flags=tuple(flags.split()))
    return None


def _version(cells: Cells, program: str) -> str | None:
    """What a compiler says of itself, in a line; None: it is not there."""
    if program not in cells.compilers:
        ended, _ = cells.run([program, "--version"], {}, limit=60)
        said = ended.output.strip().splitlines() or [program]
        named = next((line for line in said if _NUMBERED.search(line)), said[0])
        cells.compilers[program] = named if ended.code == 0 else None
    return cells.compilers[program]


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
    """The main program: it reads the sizes of each case, makes room for the tensors, calls the solution when asked."""
    kind, scalar = TYPES[dtype], SCALARS[dtype]
    sizes, parameters = signature["sizes"], signature["parameters"]
    tensors = [(name, f"const {kind}*") for name in signature["inputs"]]
    tensors += [(name, f"{kind}*") for name in signature["outputs"]]
    lines = ['#include "prototype.hpp"', '#include "harness.hpp"', "int main(int, char** steno_given) {"]
    lines.append(f"  for (steno::Case<{len(tensors)}> steno_case(steno_given);;) {{")
    lines.append("    steno_case.next();")
    lines += [f"    const size_t {name} = steno_case.number();" for name in sizes]
    for name, _ in tensors:
        output = "true" if name in signature["outputs"] else "false"
        lines.append(f"    const size_t steno_{name} = steno_case.tensor<{kind}>(steno_case.number(), {output});")
    # a parameter's value comes from the case, so that cases may differ
    lines += [f"    const {scalar} {name} = steno_case.parameter<{scalar}>();" for name in parameters]
    arguments = [f"steno_case.at<{kind}>(steno_{name})" for name, _ in tensors] + [*parameters, *sizes]
    lines.append(f"    steno_case.serve([&] {{ {signature['function']}({', '.join(arguments)}); }});")
    return "\n".join([*lines, "  }", "}", ""])


def idle_program(cells: Cells, compiler: Compiler, job: dict[str, Any]) -> bytes | None:
    """The program of a solution that does nothing, made where no solution is and kept; None: it does not compile."""
    declared = prototype(job["signature"], job["dtype"]).splitlines()[-1]
    key = (compiler.words, " ".join(compiler.flags), declared)
    if key not in cells.objects:
        found = compiled(cells, compiler, {**job, "solution": declared.rstrip(";") + " {}"})[1]
        if found is None:
            return None
        cells.objects[key] = found
    return cells.objects[key]


def compiled(cells: Cells, compiler: Compiler, job: dict[str, Any]) -> tuple[ProgramEnd, bytes | None]:
    here, limit, source = Path(__file__).parent, job["limits"]["compile"], job["solution"]
    files = {path.relative_to(here).as_posix(): path.read_bytes() for path in here.rglob("*.h")}
    files["prototype.hpp"] = prototype(job["signature"], job["dtype"]).encode()
    ours = {"harness.hpp": (here / "harness.hpp").read_bytes(), "isa942.ll": _ISA_942.encode()}
    ours["program.hip"] = program_of(job["signature"], job["dtype"]).encode()
    ready = _main_object(cells, compiler, {**files, **ours}, limit) if compiler.stands_in else None
    if ready is not None:
        ours = {"program.o": ready}
    files["solution.hip"] = (rewritten(source) if compiler.stands_in else source).encode()
    rest = ["program.hip"] if ready is None else ["-x", "none", "program.o"]
    argv = _words(compiler, "solution.hip", *rest, "-o", "program")
    return cells.run(argv, {**files, **ours}, limit=limit, takes="program", cap=LARGEST)


def _words(compiler: Compiler, *words: str) -> list[str]:
    always = ("-std=c++17", "-include", "prototype.hpp")
    return ["sh", "-c", f'{compiler.first} && exec "$0" "$@"', compiler.program, *compiler.flags, *always, *words]


def _main_object(cells: Cells, compiler: Compiler, files: dict[str, bytes], limit: float) -> bytes | None:
    """The main program, compiled where no solution is, and kept for every solution of the same signature and dtype;
    None: it does not compile. On the CPU it takes longer than most solutions.
    """
    key = (compiler.words, " ".join(compiler.flags), files["program.hip"].decode(), files["prototype.hpp"].decode())
    if key not in cells.objects:
        argv = _words(compiler, "-c", "program.hip", "-o", "program.o")
        ended, found = cells.run(argv, files, limit=limit, takes="program.o", cap=LARGEST)
        if ended.code != 0 or found is None:
            return None
        if len(cells.objects) >= _MOST_OBJECTS:
            cells.objects.clear()
        cells.objects[key] = found
    return cells.objects[key]


def command_program(job: dict[str, Any]) -> bytes:
    """An executable archive that runs a command as the solution, see `command.py`."""
    here, packed, solution = Path(__file__).parent, io.BytesIO(b"#!/usr/bin/env python3\n"), job["solution"]
    packed.seek(0, io.SEEK_END)
    with zipfile.ZipFile(packed, "a") as archive:
        archive.write(here / "command.py", "__main__.py")
        archive.write(here / "tensors.py", "tensors.py")
        archive.writestr("signature.json", json.dumps({**job["signature"], "dtype": job["dtype"]}))
        archive.writestr("solution", solution if solution.startswith("#!") else "#!/bin/sh\n" + solution)
    return packed.getvalue()


def rewritten(source: str) -> str:
    """A solution for an ordinary C++ compiler: launches become calls, memory of unknown size becomes a pointer. Every
    line keeps its number, so that messages name the right one.
    """
    source = _SHARED.sub(lambda found: f"HIP_DYNAMIC_SHARED({found[1]}, {found[2]});", source)
    parts, start = list[str](), 0
    while (found := _LAUNCH.search(source, start)) is not None:
        middle = _closing(source, found.end(), ">>>")
        opening = None if middle is None else re.compile(r"\s{0,99}\(").match(source, middle + 3)
        end = None if opening is None else _closing(source, opening.end(), ")")
        if middle is None or opening is None or end is None:
            break
        where = _split(source[found.end() : middle])
        shared = where[2] if len(where) > 2 else "0"
        call = f"{found[1]}{found[2]}({source[opening.end() : end]});"
        threads = where[1] if len(where) > 1 else "1"
        launch = f"(void)steno_stand_in::launch({where[0]}, {threads}, {shared}, [=]() {{ {call} }})"
        parts += [source[start : found.start()], launch]
        start = end + 1
    return "".join(parts) + source[start:]


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
