"""Runs Slurm's commands, on this machine or on a login node over ssh."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from itertools import dropwhile
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from steno.engine.errors import ProviderError, ProviderRefused, ProviderUnreachable
from steno.engine.providers.slurm.query import PREFIX
from steno.engine.providers.slurm.settings import Site
from steno.engine.providers.slurm.words import UNKNOWN_JOB
from steno.events.poll import Poll

_SSH: Final = (
    "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ControlMaster=auto", "-o", "ControlPersist=60",
    "-o", "ServerAliveInterval=15",
)  # fmt: skip
_SSH_FAILED: Final = 255
_PLAIN: Final = ("env", "TZ=UTC", "LC_ALL=C", "SLURM_TIME_FORMAT=standard", "SLURM_BITSTR_LEN=0")
"""Times come in the zone of whoever asks, with no offset, and messages in their language; lists of tasks are cut."""
_OPTIONS: Final = ("SQUEUE_", "SACCT_", "SINFO_", "SBATCH_", "SCANCEL_", "SCONTROL_")
"""Variables of these names are options of Slurm's commands: a user's own would narrow or reshape our answers."""
_JOB: Final = "SLURM_"
"""Variables of a job have these names: those of the job that we run in would reach the job that we submit."""
_CLUSTER: Final = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"})
_SOCKET: Final = "c"
_SESSIONS: Final = 8  # at once: OpenSSH lets ten share a connection, and logs in again for each of the others
_LARGEST: Final = 64 << 20
_DOWN: Final = re.compile(
    r"Unable to contact|Problem talking to the database|Connection (refused|reset|timed out)|Broken pipe|"
    r"Socket timed out|Zero Bytes were transmitted|Unexpected message received|Communication \w+ failure|"
    r"Message (send|receive) failure|Protocol (version|authentication)|Insane message length|Header lengths|"
    r"in standby mode|temporarily un|Interrupted system call|Transport endpoint",
    re.IGNORECASE,
)
"""Errors after which the result is unknown: the controller may have done what it was asked."""
_NOT_CONNECTED: Final = re.compile(r"Could not resolve|Connection (refused|timed out)|No route to host|unreachable")
_NOTICE: Final = re.compile(r"warning|\*\*|\S+: (debug|info)\b", re.IGNORECASE)


class Done(msgspec.Struct, frozen=True, kw_only=True):
    words: tuple[str, ...]  # as it ran at the cluster
    status: int
    out: str  # at most `_LARGEST` bytes
    err: str
    raw: bytes = b""  # the whole output

    @property
    def problem(self) -> str:
        """Its first error line; a warning only if there is nothing else."""
        lines = [line.strip() for text in (self.err, self.out) for line in text.splitlines() if line.strip()]
        return next((line for line in lines if not _NOTICE.match(line)), (lines or [f"exit code {self.status}"])[0])

    @property
    def unknown_job(self) -> bool:
        return UNKNOWN_JOB.search(f"{self.err}\n{self.out}") is not None


def poll_of(site: Site, words: Sequence[str], started: int, observed: int, answer: Done | str) -> Poll:
    """The poll of a command: its answer, or why there is none. It is answered if its exit code is 0."""
    done = None if isinstance(answer, str) else answer
    return Poll(
        source=site.source,
        path=PREFIX + shlex.join(words),
        req=msgspec.json.encode(words),
        started_at=started,
        observed_at=observed,
        status=None if done is None else done.status,
        error=answer if isinstance(answer, str) else answer.problem if answer.status else None,
        body=None if done is None else msgspec.json.encode(done.out),
        text=done is not None,
        answered=done is not None and done.status == 0,
        extra={"err": msgspec.Raw(msgspec.json.encode(done.err))} if done is not None and done.err else {},
    )


def result_poll(site: Site, path: str, req: Sequence[str], started: int, observed: int, result: object) -> Poll:
    """The poll that records a result of Steno's own commands, such as a benchmark."""
    return Poll(
        source=site.source,
        path=PREFIX + path,
        req=msgspec.json.encode(req),
        started_at=started,
        observed_at=observed,
        status=0,
        body=msgspec.json.encode(result),
        answered=True,
    )


class Shell:
    """The commands of one cluster."""

    _kept: ClassVar[dict[str, tempfile.TemporaryDirectory[str]]] = {}

    def __init__(self, site: Site) -> None:
        self.site = site
        self._sockets: tempfile.TemporaryDirectory[str] | None = None
        self._connecting = threading.Lock()
        self._sessions = threading.BoundedSemaphore(_SESSIONS)
        self._closed = False
        self._user: tuple[str, str] | None = None
        self._columns: frozenset[str] | None = None

    def words(self, *command: str, **environment: str) -> tuple[str, ...]:
        """A command as it is run there and recorded: in UTC and in English."""
        named = tuple(f"{name}={value}" for name, value in environment.items())
        return (*_PLAIN, f"STENO_CLUSTER={self.site.cluster}", *named, *command)

    def run(self, words: Sequence[str], *, given: bytes = b"", timeout: float | None = None) -> Done:
        """Run it and wait. Raises ProviderUnreachable (no answer in time), ProviderRefused (the login node refuses)."""
        limit, command = timeout or self.site.timeout, list(words)
        if self.site.host is not None:
            with self._connecting:  # the first caller opens the connection that the others share
                ssh = self._ssh()
                if self._sockets is not None and not (Path(self._sockets.name) / _SOCKET).exists():
                    self._spawn((*ssh, self.site.host, "--", "true"), ("ssh",), b"", limit)
            command = [*ssh, self.site.host, "--", shlex.join(words)]
        with nullcontext() if self.site.host is None else self._sessions:
            done = self._spawn(command, words, given, limit)
        self._check(done)
        return done

    def ask(self, *command: str, given: bytes = b"") -> Done:
        """Run a command of ours; the caller judges the answer. ProviderUnreachable: also no controller or database."""
        done = self.run(self.words(*command), given=given)
        if done.status != 0 and _DOWN.search(done.err):
            raise ProviderUnreachable(f"Slurm on {self.where} does not answer: {done.problem}")
        return done

    def must(self, *command: str) -> Done:
        """As `ask`; raises ProviderError if the command fails, except for an unknown job."""
        done = self.ask(*command)
        if done.status != 0 and not done.unknown_job:
            raise ProviderError(f"{command[0]} on {self.where} failed: {done.problem}")
        return done

    @property
    def where(self) -> str:
        return self.site.host or "this machine"

    def folder(self) -> str:
        """The absolute path of Steno's folder on the cluster."""
        path = self.site.folder
        return path if path.startswith("/") else f"{self._whoami()[1]}/{path.removeprefix('~/')}"

    def home(self) -> str:
        return self._whoami()[1]

    def user(self) -> str:
        return self._whoami()[0]

    def _whoami(self) -> tuple[str, str]:
        if self._user is None:
            # Behind a mark: a login shell may print a greeting first.
            done = self.run(self.words("sh", "-c", 'echo "steno $(id -un) $HOME"'))
            match = re.search(r"^steno (\S+) (/.*)$", done.out, re.MULTILINE)
            if match is None:
                raise ProviderUnreachable(f"a shell on {self.where} gives no home folder: {done.problem}")
            self._user = match[1], match[2].rstrip("/")
        return self._user

    def columns(self, names: Iterable[str]) -> list[str]:
        """The columns of accounting among these that this version has: an unknown name fails the whole call."""
        if self._columns is None:
            self._columns = frozenset(self.run(self.words("sacct", "--helpformat")).out.lower().split())
        return [name for name in names if name.lower() in self._columns] or [*names]

    def tail(self, path: str, offset: int) -> bytes:
        """The content of a file there behind `offset`; b"" if it does not exist."""
        return self.run(("tail", "-c", f"+{offset + 1}", "--", path)).raw

    def copy(self, root: str, names: Iterable[str], folder: str, before: str | None) -> Done:
        """Copy files below `root` into a new read-only folder there; those equal in `before` (relative) become hard
        links.
        """
        there = folder if self.site.host is None else f"{self.site.host}:{folder}"
        options = [] if before is None else [f"--link-dest={before}"]
        if self.site.host is not None:
            options += ["--rsh", shlex.join(self._ssh())]
        words = ("rsync", "-a", "-s", "--no-implied-dirs", "--files-from=-", "--from0", "--chmod=F-w", "--timeout=60")
        command = (*words, *options, f"{root}/", f"{there}/")
        return self._spawn(command, command, b"\0".join(os.fsencode(name) for name in names), None)

    def attached(self, words: Sequence[str]) -> int:
        """Run it with our own input, output and terminal; its exit code."""
        terminal = ["-t"] if sys.stdin.isatty() else []
        host = self.site.host
        return subprocess.run(
            list(words) if host is None else [*self._ssh(), *terminal, host, "--", shlex.join(words)], check=False
        ).returncode

    def keep(self) -> None:
        """Leave the shared connection to the next `Shell` of this process to the same host: another login takes a
        second.
        """
        if self._sockets is not None and self.site.host is not None:
            self._kept[self.site.host], self._sockets = self._sockets, None

    def close(self) -> None:
        """End the shared connection; a thread that still reads samples or output opens no other."""
        ending = () if self._sockets is None else self._ssh()
        self._closed = True
        if self._sockets is not None and self.site.host is not None:
            with suppress(FileNotFoundError):
                subprocess.run([*ending, "-O", "exit", self.site.host], capture_output=True, check=False)
            self._sockets.cleanup()
            self._sockets = None

    def _ssh(self) -> tuple[str, ...]:
        if self._closed:
            raise ProviderUnreachable(f"the connection to {self.site.host} was closed", sent=False)
        if self._sockets is None:
            kept = self._kept.pop(self.site.host or "", None)
            self._sockets = kept or tempfile.TemporaryDirectory(prefix="steno-ssh-")
        return (*_SSH, "-o", f"ControlPath={Path(self._sockets.name) / _SOCKET}")

    def _spawn(self, command: Sequence[str], words: Sequence[str], given: bytes, limit: float | None) -> Done:
        """Run it on this machine, `words` as its name. Raises ProviderUnreachable if it is missing or too slow."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if name in _CLUSTER or not name.startswith((*_OPTIONS, _JOB))
        }
        try:
            done = subprocess.run(
                command, input=given, capture_output=True, timeout=limit, check=False, start_new_session=True,
                env=environment,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise ProviderUnreachable(f"there is no {error.filename} on this machine: install it", sent=False) from None
        except subprocess.TimeoutExpired:
            raise ProviderUnreachable(f"{_tool(words)} on {self.where} gave no answer for {limit:g} s") from None
        out, err = (text[:_LARGEST].decode(errors="replace") for text in (done.stdout, done.stderr))
        return Done(words=tuple(words), status=done.returncode, raw=done.stdout, out=out, err=err)

    def _check(self, done: Done) -> None:
        tool = _tool(done.words)
        # sbatch exits with 255 too: then its error begins with its name.
        if self.site.host is not None and done.status == _SSH_FAILED and f"{tool}: " not in done.err:
            raise self._not_reached(done)
        if done.status == 127:
            raise ProviderUnreachable(
                f"there is no {tool} on {self.where}: install Slurm's commands, or set slurm.host to a login node",
                sent=False,
            )

    def _not_reached(self, done: Done) -> ProviderRefused | ProviderUnreachable:
        host, lines = self.site.host, done.err.strip().splitlines() or ["no message"]
        if "IDENTIFICATION HAS CHANGED" in done.err:
            return ProviderRefused(
                f"the host key of {host} has changed: if its administrator says so, `ssh-keygen -R` its name, "
                f"then `ssh {host}` once"
            )
        if "Host key verification failed" in done.err:
            return ProviderRefused(f"the host key of {host} is not known here: `ssh {host}` once and accept it")
        if "Permission denied" in done.err:
            return ProviderRefused(
                f"{host} refuses our key ({lines[-1]}): `ssh -o BatchMode=yes {host}` must work without a password"
            )
        sent = _NOT_CONNECTED.search(done.err) is None
        return ProviderUnreachable(f"ssh to {host} failed: {lines[-1]}", sent=sent)


def _tool(words: Sequence[str]) -> str:
    """The command; of `sh -c SCRIPT NAME`, the name."""
    rest = [*dropwhile(lambda word: word in ("env", "xargs", "-n1") or "=" in word, words)]
    return next(iter((rest[3:4] if rest[:2] == ["sh", "-c"] else []) or rest), "?")
