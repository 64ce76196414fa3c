"""Our own command, run as its user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml
from stenotest import steno_process
from stenotest.command_line import VARIABLES
from stenotest.waiting import LIMIT_S, StillWaiting, T, wait

from steno.engine.fold.fold import Fold
from steno.engine.fold.record_fold import RecordFold
from steno.engine.providers.registry import READINGS
from steno.engine.replay.result import Replay, fill_costs
from steno.events.clock import SystemClock
from steno.events.errors import RecordNotFound
from steno.events.store.record import Record
from stenolab.lab import GPU, IMAGE

PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a command."""

    command: tuple[str, ...]
    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output, decoded."""
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        """Standard output as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    def done(self, code: int = 0) -> Outcome:
        """Itself, if it ended with that exit code, as a sentence or an answer and never as a traceback."""
        assert self.code == code, f"steno {' '.join(self.command)} → {self.code}\n{self.out}\n{self.err}"
        assert "Traceback" not in self.out + self.err, self.err
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class StenoWorld:
    """The runs, machines and anomalies of a record."""

    runs: dict[str, dict[str, Any]]
    """By name."""
    vms: list[dict[str, Any]]
    """In order of first sight."""
    anomalies: list[dict[str, Any]]

    def machine_of(self, run: str) -> dict[str, Any] | None:
        """The machine that run is or was on, if it is known yet."""
        if run not in self.runs:
            return None
        return next((vm for vm in self.vms if vm["vm_id"] == self.runs[run]["vm_id"]), None)


class Background:
    """A command that is still running; its output is in files."""

    def __init__(self, process: subprocess.Popen[bytes], command: Sequence[str], out: Path, err: Path) -> None:
        self._process = process
        self._command = tuple(command)
        self._out, self._err = out, err

    @property
    def out(self) -> str:
        """Standard output so far."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """Standard error so far."""
        return self._err.read_text()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(2)

    def kill(self) -> None:
        """`kill -9`."""
        self._process.kill()
        self._process.wait()

    def finish(self, seconds: float = LIMIT_S) -> Outcome:
        """Waits for its end.

        Raises:
            subprocess.TimeoutExpired: it goes on.
        """
        code = self._process.wait(seconds)
        return Outcome(command=self._command, code=code, out=self.out, err=self.err)


class Steno:
    """`steno` with a home, a record and a working folder of its own; nothing of the user's environment reaches it."""

    def __init__(self, *, folder: Path, home: Path | None = None, **environment: str) -> None:
        self.folder = folder
        self.more = environment
        self.home = home or folder / "home"
        self.work = folder / "work"
        self.record = folder / "record.steno"
        self._started: list[Background] = []
        self._fold, self._looking = Fold(READINGS), threading.Lock()
        for needed in (self.home, self.work):
            needed.mkdir(parents=True, exist_ok=True)

    def __call__(
        self, *arguments: str | Path, code: int | None = 0, seconds: float = LIMIT_S, **environment: str
    ) -> Outcome:
        """Runs a command to its end; asserts its exit code unless `code` is None."""
        command = [str(argument) for argument in arguments]
        env = self._environment(environment)
        result = steno_process.run(command, env=env, cwd=self.work, stdin=subprocess.DEVNULL, timeout=seconds)
        output = Outcome(command=tuple(command), code=result.returncode, out=result.stdout, err=result.stderr)
        return output if code is None else output.done(code)

    def start(self, *arguments: str | Path, **environment: str) -> Background:
        """Starts a command and goes on; it is killed when the test ends."""
        command = [str(argument) for argument in arguments]
        number = len(self._started)
        out, err = self.folder / f"{number}-{command[0]}.out", self.folder / f"{number}-{command[0]}.err"
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = steno_process.Popen(
                command,
                env=self._environment(environment),
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=out_file,
                stderr=err_file,
            )
        started = Background(process, command, out, err)
        self._started.append(started)
        return started

    def json(self, *arguments: str | Path, **more: Any) -> Any:
        """The decoded answer of a command with `--json`."""
        return self(*arguments, "--json", **more).json()

    def follow(self, interval: str = "0.3", *flags: str, **environment: str) -> Background:
        """Starts `steno record` and waits until it records."""
        return self._begin("record", "--interval", interval, *flags, **environment)

    def up(self, *flags: str, **environment: str) -> Background:
        """Starts `steno up`, which asks at its own pace, and waits until it records."""
        return self._begin("up", *flags, **environment)

    def _begin(self, *command: str, **environment: str) -> Background:
        before = self.seen("RecorderStarted")
        started = self.start(*command, **environment)

        def begun() -> bool:
            assert started.alive, f"it ended:\n{started.err}"
            return self.seen("RecorderStarted") > before

        wait(begun, what="the recorder to begin")
        return started

    def submit(self, name: str, commands: Sequence[str], *flags: str, code: int | None = 0, **fields: Any) -> Outcome:
        """Submits a task file with that name, those commands and those other fields; the lab's image and GPU."""
        file = self.task(name, commands, **fields)
        return self("submit", "-f", file, *flags, code=code)

    def task(self, name: str, commands: Sequence[str], **fields: Any) -> Path:
        """That task file, in the working folder."""
        task = {"type": "task", "name": name, "image": IMAGE, "resources": {"gpu": GPU}, "commands": list(commands)}
        file = self.work / f"{name}.dstack.yml"
        file.write_text(yaml.safe_dump({**task, **fields}))
        return file

    def shown(self, run: str) -> dict[str, Any]:
        """The run as `steno show` has it, found by id, provider's id or name."""
        run_object = self("show", run, "--json").json()
        assert isinstance(run_object, dict)
        return run_object

    def seen(self, kind: str) -> int:
        """How many events of that kind the record has; none where there is no record yet."""
        return len(self.recorded(kind))

    def recorded(self, kind: str) -> list[Any]:
        """The events of that kind, in order."""
        try:
            with self._opened() as record:
                return [stored.data for stored in record.read(types=(kind,))]
        except RecordNotFound:
            return []

    def world(self) -> StenoWorld:
        """Every run and every machine ever, with its bill, as `steno replay --json` has them.

        Folded in this process, from where the last look ended: tests look again and again, and a fold of 700 polls of
        Slurm costs 0.2 s of a processor.
        """
        with self._looking, self._opened() as record:
            if record.head().position < self._fold.state.position:  # another record
                self._fold = Fold(READINGS)
            RecordFold(record, self._fold).run()
            fill_costs(record, self._fold.state.runs.all())
            replay = msgspec.json.decode(msgspec.json.encode(Replay(self._fold).to_json()))
        return StenoWorld(
            runs={run["name"]: run for run in replay["runs"]}, vms=replay["vms"], anomalies=replay["anomalies"]
        )

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """The record's events of these kinds, in order."""
        wanted = [word for kind in kinds for word in ("--type", kind)]
        return self("events", "--json", *wanted).lines()

    def wait(self, run: str, *states: str) -> dict[str, Any]:
        """The run of that name as soon as Steno says it is in one of these states; something must be recording."""

        def reached() -> dict[str, Any] | None:
            known = self.world().runs.get(run)
            answer = self.shown(run) if known is not None and known["state"] in states else None
            return answer if answer is not None and answer["state"] in states else None

        return self.until(reached, what=f"{run} to be {' or '.join(states)}")

    def until(self, condition: Callable[[], T | None], *, seconds: float = LIMIT_S, what: str = "the condition") -> T:
        """The first true value of `condition()`, which folds the record or is a command."""
        try:
            return wait(condition, seconds=seconds, what=what, pause=PAUSE_S)
        except StillWaiting as error:
            world = self.world()
            runs = {name: run["state"] for name, run in world.runs.items()}
            vms = [(vm["state"], vm["reason"]) for vm in world.vms]
            raise StillWaiting(f"{error}; steno says: runs {runs}, machines {vms}") from None

    def close(self) -> None:
        """Kills what was started and still runs."""
        for started in self._started:
            if started.alive:
                started.kill()

    def _opened(self) -> Record:
        return Record.open(self.record, write=False, shapes=READINGS.shape, clock=SystemClock())

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_DATA_HOME": str(self.folder / "data"),
            "STENO_RECORD": str(self.record),
            "NO_COLOR": "1",
            **VARIABLES,
            **self.more,
            **more,
        }
