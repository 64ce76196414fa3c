"""From a solution to a program: by hipcc or nvcc for a GPU, by g++ for the CPU; HIP then has a stand-in header."""

from __future__ import annotations

import re
from collections.abc import Callable
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
Signature = dict[str, Any]  # names of the function, inputs, those of them that are int32, outputs, parameters and sizes
_SHARED = re.compile(r"\bextern\s{1,9}__shared__\s{1,9}([^;\[\]]{1,99}?)\s{0,9}\b(\w{1,99})\s{0,9}\[\s{0,9}\]\s{0,9};")
_CANDIDATES = {"hip": ("hipcc", "g++", "clang++"), "cuda": ("nvcc",), "cpp": ("g++", "clang++")}
# Debian's clang 19 compiles HIP without ROCm's packages; the one file that ROCm 5.2 lacks for gfx942 is made of IR.
_WITHOUT_ROCM = "--rocm-path=/usr --rocm-device-lib-path=device -D__HIP_PLATFORM_AMD__ -lamdhip64"
_DEVICE_LIBRARY = (
    "mkdir device && ln -s /usr/lib/*/amdgcn/bitcode/*.bc device && { [ -e device/oclc_isa_version_942.bc ] || "
    "clang-19 --target=amdgcn-amd-amdhsa -nogpulib -x ir -c -emit-llvm isa942.ll -o device/oclc_isa_version_942.bc; }"
)
_FLAGS = {
    "hipcc": "-O3 --offload-arch={arch} -x hip",
    "clang++-19": "-O3 --offload-arch={arch} " + _WITHOUT_ROCM + " -x hip",
    "nvcc": "-O3 -arch={arch} -x cu -I cuda",
}
"""The flags of the compilers for GPUs."""
_SENT = {".h", ".hpp", ".ll"}  # suffixes of what the compiler needs
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
        for program in filter(None, (name, _ELSEWHERE.get(name))):
            version, kind = _version(cells, program), Path(name).name
            if version is not None and kind in _FLAGS:
                flags = tuple(_FLAGS[kind].format(arch=job["arch"]).split())
                return Compiler(program, version, flags, first=_DEVICE_LIBRARY if kind == "clang++-19" else "true")
            if version is not None:
                version += "" if language == "cpp" else ", with Steno's stand-in for HIP on the CPU"
                flags = ("-O3" if language == "cpp" else "-O2", "-w", "-U_FORTIFY_SOURCE", "-I", "stand_in")
                return Compiler(program, version, (*flags, "-x", "c++"), stands_in=True)
    return None


def _version(cells: Cells, program: str) -> str | None:
    """The line of a compiler's own description with its version; None: it is not there."""
    if program not in cells.compilers:
        ended, _ = cells.run([program, "--version"], {}, limit=60)
        lines = ended.output.strip().splitlines() or [program]
        named = next((line for line in lines if _NUMBERED.search(line)), lines[0])
        cells.compilers[program] = named if ended.code == 0 else None
    return cells.compilers[program]


def prototype(signature: Signature, dtype: str) -> str:
    """The header that is included before the solution: the function it must define, or may define instead."""
    kind, scalar = TYPES[dtype], SCALARS[dtype]
    arguments = [
        *(f"const {_kind(name, signature, kind)}* {name}" for name in signature["inputs"]),
        *(f"{kind}* {name}" for name in signature["outputs"]),
        *(f"{scalar} {name}" for name in signature["parameters"]),
        *(f"size_t {name}" for name in signature["sizes"]),
    ]
    return (
        f"#pragma once\n#include <hip/hip_runtime.h>\n{_HEADERS.get(dtype, '')}#include <cstddef>\n"
        f"struct steno_call {{ {'; '.join(arguments)}; }};\n"
        'extern "C" void solve_batch(const steno_call* calls, size_t n) __attribute__((weak));\n'
        f'extern "C" void {signature["function"]}({", ".join(arguments)});\n'
    )


def _kind(name: str, signature: Signature, usual: str) -> str:
    return "int" if name in signature["integers"] else usual


def program_of(signature: Signature, dtype: str) -> str:
    """The main program of these tensors, parameters and sizes: definitions, and `main.hpp`."""
    kind, scalar = TYPES[dtype], SCALARS[dtype]
    sizes, parameters = signature["sizes"], signature["parameters"]
    numbers = [*((name, "size_t") for name in sizes), *((name, scalar) for name in parameters)]
    numbers += [(f"steno_{name}", "size_t") for name in (*signature["inputs"], *signature["outputs"])]
    casts = {name: f"(const {_kind(name, signature, kind)}*)" for name in signature["inputs"]}
    places = [f"{cast}steno_judge.in.at(steno_at, steno_{name})" for name, cast in casts.items()]
    places += [f"({kind}*)steno_judge.out.at(steno_at, steno_{name})" for name in signature["outputs"]]
    declared = "".join(f"const {c_type} {name} = steno_judge.number<{c_type}>(); " for name, c_type in numbers)
    return (
        f"#define STENO_NUMBERS {declared}\n#define STENO_ARGUMENTS {', '.join([*places, *parameters, *sizes])}\n"
        f'#define STENO_FUNCTION {signature["function"]}\n#include "main.hpp"\n'
    )


def empty_program(cells: Cells, compiler: Compiler, job: dict[str, Any]) -> bytes | None:
    """The program of a solution that does nothing; None: it does not compile."""
    declared = prototype(job["signature"], job["dtype"]).splitlines()[-1]
    empty = {**job, "solution": declared.rstrip(";") + " {}"}
    return _kept(cells, (*compiler, declared), lambda: compiled(cells, compiler, empty))


def device_program(cells: Cells, compiler: Compiler, limit: float) -> bytes | None:
    """The judge's own program on the GPU; None: it does not compile."""
    files = {**_headers(), "prototype.hpp": b"", "program.hip": b'#include "device_judge.hpp"\n'}
    key = (*compiler, files["program.hip"])
    return _kept(cells, key, lambda: _made(cells, compiler, files, limit, "program.hip"))


def compiled(cells: Cells, compiler: Compiler, job: dict[str, Any]) -> tuple[ProgramEnd, bytes | None]:
    """The program of a solution. On the CPU the main program takes longer than most solutions: it is compiled where no
    solution is, and kept for every solution of the same signature and dtype.
    """
    limit = job["limits"]["compile"]
    files = {**_headers(), "prototype.hpp": prototype(job["signature"], job["dtype"]).encode()}
    files["program.hip"] = program_of(job["signature"], job["dtype"]).encode()
    solution = {"solution.hip": (rewritten(job["solution"]) if compiler.stands_in else job["solution"]).encode()}
    if compiler.stands_in:
        key = (*compiler, files["program.hip"], files["prototype.hpp"])
        ready = _kept(cells, key, lambda: _made(cells, compiler, files, limit, "-c program.hip", "program.o"))
        if ready is not None:
            del files["program.hip"]
            files |= {**solution, "program.o": ready}
            return _made(cells, compiler, files, limit, "solution.hip -x none program.o")
    return _made(cells, compiler, {**files, **solution}, limit, "solution.hip program.hip")


def _headers() -> dict[str, bytes]:
    here = Path(__file__).parent
    return {path.relative_to(here).as_posix(): path.read_bytes() for path in here.rglob("*") if path.suffix in _SENT}


def _made(
    cells: Cells, compiler: Compiler, files: dict[str, bytes], limit: float, words: str, makes: str = "program"
) -> tuple[ProgramEnd, bytes | None]:
    flags = (*compiler.flags, "-std=c++17", "-include", "prototype.hpp", *words.split(), "-o", makes)
    argv = ["sh", "-c", f'{compiler.first} && exec "$0" "$@"', compiler.program, *flags]
    return cells.run(argv, files, limit=limit, takes=makes, cap=LARGEST)


def _kept(cells: Cells, key: tuple[Any, ...], make: Callable[[], tuple[ProgramEnd, bytes | None]]) -> bytes | None:
    """A program of our own code, compiled once; None: it does not compile."""
    if key not in cells.objects:
        ended, program = make()
        if ended.code != 0 or program is None:
            return None
        if len(cells.objects) >= _MOST_OBJECTS:
            cells.objects.clear()
        cells.objects[key] = program
    return cells.objects[key]


def rewritten(source: str) -> str:
    """A solution for an ordinary C++ compiler: launches become calls, memory of unknown size becomes a pointer. Every
    line keeps its number, for the compiler's messages.
    """
    source = _SHARED.sub(lambda match: f"HIP_DYNAMIC_SHARED({match[1]}, {match[2]});", source)
    parts, start = list[str](), 0
    while (launched := _LAUNCH.search(source, start)) is not None:
        middle = _closing(source, launched.end(), ">>>")
        opening = None if middle is None else re.compile(r"\s{0,99}\(").match(source, middle + 3)
        end = None if opening is None else _closing(source, opening.end(), ")")
        if middle is None or opening is None or end is None:
            break
        where = _split(source[launched.end() : middle])
        shared = where[2] if len(where) > 2 else "0"
        call = f"{launched[1]}{launched[2]}({source[opening.end() : end]});"
        threads = where[1] if len(where) > 1 else "1"
        launch = f"(void)steno_stand_in::launch({where[0]}, {threads}, {shared}, [=]() {{ {call} }})"
        parts += [source[start : launched.start()], launch]
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
