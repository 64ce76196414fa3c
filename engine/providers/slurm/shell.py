"""Runs Slurm's commands, on this machine or on a login node over ssh."""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from engine.errors import ProviderRefused, ProviderUnreachable
from engine.providers.slurm.settings import Site

_SSH: Final = (
    "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ControlMaster=auto", "-o", "ControlPersist=60",
    "-o", "ServerAliveInterval=15",
)  # fmt: skip
_SSH_FAILED: Final = 255
_PLAIN: Final = ("env", "TZ=UTC", "LC_ALL=C", "SLURM_TIME_FORMAT=standard")
"""Times come in the zone of whoever asks, with no offset, and messages in their language."""
_LARGEST: Final = 64 << 20


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A command that has ended."""

    words: tuple[str, ...]
    """As it ran at the cluster."""
    status: int
    out: str
    err: str

    @property
    def problem(self) -> str:
        """Its first line of trouble."""
        return (self.err.strip() or self.out.strip() or f"exit code {self.status}").splitlines()[0]


class Shell:
    """The commands of one cluster."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._sockets: tempfile.TemporaryDirectory[str] | None = None
        self._home: str | None = None

    def words(self, *command: str, **environment: str) -> tuple[str, ...]:
        """A command as it is run there and recorded: in UTC and in English."""
        named = tuple(f"{name}={value}" for name, value in environment.items())
        return (*_PLAIN, f"STENO_CLUSTER={self.site.cluster}", *named, *command)

    def run(self, words: Sequence[str], *, given: bytes = b"", timeout: float | None = None) -> Done:
        """Run it and wait.

        Raises:
            ProviderUnreachable: it is not there, took too long, or ssh does not get there.
            ProviderRefused: the login node does not let us in.
        """
        found = self.local(self._reach(words), given=given, timeout=timeout or self.site.timeout)
        found = msgspec.structs.replace(found, words=tuple(words))
        self._check(found)
        return found

    def local(self, words: Sequence[str], *, given: bytes = b"", timeout: float | None = None) -> Done:
        """Run it on this machine; `timeout` None: however long it takes.

        Raises:
            ProviderUnreachable: it is not there, or took too long.
        """
        try:
            done = subprocess.run(
                list(words), input=given, capture_output=True, timeout=timeout, check=False, start_new_session=True
            )
        except FileNotFoundError as error:
            raise ProviderUnreachable(f"there is no {error.filename} on this machine", sent=False) from None
        except subprocess.TimeoutExpired:
            raise ProviderUnreachable(f"{_tool(words)} gave no answer for {timeout:g} s") from None
        out, err = (text[:_LARGEST].decode(errors="replace") for text in (done.stdout, done.stderr))
        return Done(words=tuple(words), status=done.returncode, out=out, err=err)

    def ask(self, *command: str, given: bytes = b"") -> Done:
        """Run a command of ours that must succeed.

        Raises:
            ProviderUnreachable: as `run`; or the controller or the database does not answer.
        """
        done = self.run(self.words(*command), given=given)
        if done.status != 0 and any(word in done.err for word in _DOWN):
            raise ProviderUnreachable(f"Slurm on {self.where} does not answer: {done.problem}")
        return done

    @property
    def where(self) -> str:
        return self.site.host or "this machine"

    def folder(self) -> str:
        """The absolute path of Steno's folder on the cluster.

        Raises:
            ProviderUnreachable: as `run`.
        """
        path = self.site.folder
        if path.startswith("/"):
            return path
        if self._home is None:
            self._home = self.run(self.words("sh", "-c", "echo $HOME")).out.strip() or "/"
        return f"{self._home}/{path.removeprefix('~/')}"

    def tail(self, path: str, offset: int) -> bytes:
        """What a file there has behind `offset`; b"" where it is not there."""
        done = subprocess.run(
            self._reach(("tail", "-c", f"+{offset + 1}", "--", path)), capture_output=True, check=False,
            timeout=self.site.timeout, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return done.stdout

    def copy(self, root: str, names: Iterable[str], folder: str, before: str | None) -> Done:
        """Copy files below `root` into a new folder there, read-only.

        Args:
            before: a folder, as seen from the new one, whose equal files become hard links; None: there is none.

        Raises:
            ProviderUnreachable: as `run`.
        """
        there = folder if self.site.host is None else f"{self.site.host}:{folder}"
        options = [] if before is None else [f"--link-dest={before}"]
        if self.site.host is not None:
            options += ["--rsh", shlex.join(self._ssh())]
        words = ("rsync", "-a", "-s", "--no-implied-dirs", "--files-from=-", "--from0", "--chmod=F-w", "--timeout=60")
        given = b"\0".join(os.fsencode(name) for name in names)
        return self.local((*words, *options, f"{root}/", f"{there}/"), given=given)

    def attached(self, words: Sequence[str]) -> int:
        """Run it with our own input, output and terminal; its exit code."""
        terminal = ["-t"] if sys.stdin.isatty() else []
        host = self.site.host
        return subprocess.run(
            list(words) if host is None else [*self._ssh(), *terminal, host, "--", shlex.join(words)], check=False
        ).returncode

    def close(self) -> None:
        """End the shared connection."""
        if self._sockets is not None and self.site.host is not None:
            subprocess.run([*self._ssh(), "-O", "exit", self.site.host], capture_output=True, check=False)
            self._sockets.cleanup()
            self._sockets = None

    def _reach(self, words: Sequence[str]) -> list[str]:
        if self.site.host is None:
            return list(words)
        return [*self._ssh(), self.site.host, "--", shlex.join(words)]

    def _ssh(self) -> Iterator[str]:
        if self._sockets is None:
            self._sockets = tempfile.TemporaryDirectory(prefix="steno-ssh-")
        yield from (*_SSH, "-o", f"ControlPath={Path(self._sockets.name) / 'c'}")

    def _check(self, done: Done) -> None:
        if self.site.host is not None and done.status == _SSH_FAILED:
            if "Permission denied" in done.err or "Host key verification failed" in done.err:
                raise ProviderRefused(
                    f"{self.site.host} does not let us in ({done.problem}): `ssh {self.site.host}` must work "
                    f"without a question"
                )
            raise ProviderUnreachable(f"ssh to {self.site.host} failed: {done.problem}", sent=False)
        if done.status == 127 and (self.site.host is not None or "No such file" in done.err):
            tool = _tool(done.words)
            raise ProviderUnreachable(
                f"there is no {tool} on {self.where}: install Slurm's commands, or set slurm.host", sent=False
            )


_DOWN: Final = ("Unable to contact slurm controller", "Problem talking to the database", "Connection refused")


def _tool(words: Sequence[str]) -> str:
    return next((word for word in words if word != "env" and "=" not in word), "?")


def environment() -> dict[str, str]:
    """The variables of this process."""
    return dict(os.environ)
