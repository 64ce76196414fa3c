"""The README's commands, run in their order in an empty folder."""

import json
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from stenotest.command_line import Steno

from cli.wiring.errors import NOT_SUCCEEDED

if TYPE_CHECKING:
    from conftest import Background

README = (Path(__file__).parents[2] / "README.md").read_text()
CODE = re.compile(
    r"^(?P<checked><!-- checked: .*-->\n)?```console\n(?P<session>.*?)^```|^ {4}(?P<line>\S[^\n]*)$", re.M | re.S
)
ADDRESS = "http://127.0.0.1:8642"

LEFT_OUT = {
    "make": "sets the clone up or tests it; tests/cli/test_demo.py runs the tour",
    "export PATH=": "belongs to the set-up",
    "steno up --provider dstack": "needs a dstack server; tests/lab has these",
    "steno submit --provider dstack": "needs a dstack server; tests/lab has these",
    "steno submit --provider slurm": "needs a Slurm cluster; tests/slurm has these",
    "steno slurm": "needs a Slurm cluster; tests/slurm has these",
}
"""What a command begins with that is not run here, and why. A session that is marked as checked is run in test_docs."""

EXIT = {"steno submit --wait -- make -j4": NOT_SUCCEEDED}
"""Of commands that do not exit 0 in an empty folder: it has no makefile, and the next commands of the README say so."""


def commands() -> list[tuple[str, list[str]]]:
    """Every command in order, without its comment, and the lines of output shown below it."""
    found: list[tuple[str, list[str]]] = []
    for code in CODE.finditer(README):
        session = f"$ {code['line']}" if code["line"] else "" if code["checked"] else code["session"]
        for part in re.split(r"^\$ ", session, flags=re.M)[1:]:
            line, *output = part.splitlines()
            found.append((re.sub(r"\s+# .*", "", line), [shown for shown in output if shown]))
    return found


def words_of(text: str) -> str:
    """A line without its figures."""
    return re.sub(r"\d[\d.:-]*( ms| s| m)?", "#", text)


def at_start(line: str) -> str:
    """A line of the start without its figures and the record's place; root is warned of what others are informed of."""
    told = line.strip().replace("WARNING", "INFO   ").replace("commands as root", "commands as this user")
    return words_of(re.sub(r"record /.*\)", "record)", told))


def test_what_is_left_out_of_the_commands_is_in_the_readme() -> None:
    """A reason for a command that is gone would hide the next one that looks like it."""
    shown = [command for command, _ in commands()]
    assert [start for start in LEFT_OUT if not any(one.startswith(start) for one in shown)] == []
    assert set(EXIT) <= set(shown)


def test_the_local_commands_of_the_readme_work_in_order(steno: Steno, background: "Background") -> None:
    """Each exits as a reader expects; runs end as shown, at the price named, and the API gives the fields shown."""
    (price,) = re.findall(r"price of \$(\S+) an hour \(`STENO_LOCAL_PRICE`\)", README)
    service: subprocess.Popen[str] | None = None
    url = ""
    ran = []
    exported = {"STENO_API_LOOPBACK": ""}
    for command, output in commands():
        if command.startswith(tuple(LEFT_OUT)):
            continue
        ran.append(command)
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            exported[name] = value
        elif command == "steno up":
            service = background("up", out=subprocess.PIPE, STENO_LOCAL_PRICE=price, **exported)
            assert service.stdout is not None
            said = [next(service.stdout) for _ in output]
            assert [at_start(line) for line in said] == [at_start(line) for line in output]
            url = said[-1].split("serving ")[1].split()[0]
        elif command.startswith("curl "):
            _, _, address, *_, fields = shlex.split(command)
            answer = httpx.get(address.replace(ADDRESS, url), trust_env=False).json()
            (example,) = output
            shown = json.loads(example)
            assert list(shown) == fields.strip("{}").split(", ")
            assert answer.keys() >= shown.keys()
            assert "?at=" in address or (answer["state"], answer["start"]) == (shown["state"], shown["start"])
        else:
            if service is not None:
                service.send_signal(signal.SIGINT)
                service.wait()
                service = None
            program, *words = shlex.split(command)
            assert program == "steno", command
            done = steno(*words, stdin="\n" * 20, STENO_LOCAL_PRICE=price)
            assert done.returncode == EXIT.get(command, 0), (command, done.stdout, done.stderr)
            printed = [words_of(line) for line in (done.stdout + done.stderr).splitlines()]
            assert not output or words_of(output[-1]) in printed, (output, printed)
    names = {command.split()[1] for command in ran if command.startswith("steno ")}
    assert names >= {"submit", "up", "logs", "explain", "rerun", "compare", "init", "doctor", "help"}
