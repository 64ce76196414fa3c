"""The streams of a program that runs in a container, over one socket of the Docker engine."""

from __future__ import annotations

import select
import socket
import time
from contextlib import suppress
from typing import Any

from engine.kernel.machine.cells import CellGone

KEPT = 16_384  # bytes kept of the beginning and of the end of an output
FLOOD = 256 << 20  # bytes of output after which the program is killed
_ROOM = 1 << 20  # bytes of the channel that may arrive while we only write
_PIECE = 1 << 18
_HEADER = 8  # bytes before each frame: the stream, three zeros, the length (big endian)
_STDOUT = 1


class ProgramOutput:
    """Keeps the beginning and the end of what is added."""

    def __init__(self) -> None:
        self.total = 0
        self._head = self._tail = b""

    def add(self, data: bytes | memoryview) -> None:
        self.total += len(data)
        room = KEPT - len(self._head)
        self._head += bytes(data[:room])
        self._tail = (self._tail + bytes(data[max(0, room) :][-KEPT:]))[-KEPT:]

    def text(self) -> str:
        dropped = self.total - len(self._head) - len(self._tail)
        between = f"\n[… {dropped} bytes …]\n" if dropped else ""
        return self._head.decode("utf-8", "replace") + between + self._tail.decode("utf-8", "replace")


class Attachment:
    """Standard input and output are the channel, standard error is the output. The socket is read only on demand: a
    program that floods it stops at the full pipes, not in our memory.
    """

    def __init__(self, connection: Any) -> None:
        """`connection`: what the SDK gives for an attached exec."""
        self._connection = connection
        self._socket: socket.socket = getattr(connection, "_sock", connection)
        self._socket.settimeout(0)
        self._buffer = memoryview(bytearray(_PIECE))
        self._channel = bytearray()
        self._header = bytearray()
        self._stream = self._left = 0
        self.output = ProgramOutput()
        self.closed = False

    def write(self, data: bytes, until: float) -> None:
        """Raises `CellGone` after the monotonic time `until`, or where nobody reads any more."""
        rest = memoryview(data)
        while rest:
            reads = select.POLLIN if len(self._channel) < _ROOM else 0
            ready = self._wait(select.POLLOUT | reads, until)
            if ready & select.POLLIN:  # a program that waits for us to read its output would not read
                self._read()
            if self.closed or not ready:
                raise CellGone
            if ready & select.POLLOUT:
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    continue
                except OSError:
                    raise CellGone from None

    def read(self, size: int, until: float) -> bytes:
        """Exactly `size` bytes of the channel. Raises `CellGone` at its end, or at `until`."""
        while len(self._channel) < size:
            if self.closed or not self._wait(select.POLLIN, until):
                raise CellGone
            self._read()
        found = bytes(memoryview(self._channel)[:size])
        del self._channel[:size]
        return found

    def drain(self, until: float) -> None:
        """Read until the end or `until`, and keep the output only."""
        while not self.closed and self._wait(select.POLLIN, until):
            self._read()
            self._channel.clear()

    def finish(self) -> None:
        """Nothing more will be written: the program reads the end of its channel."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Also of what the SDK holds of the connection."""
        self.closed = True
        with suppress(OSError, AttributeError):
            self._connection._response.close()
        with suppress(OSError):
            self._connection.close()
        self._socket.close()

    def _wait(self, events: int, until: float) -> int:
        """The events that are ready; 0 when the time is over or the output is a flood."""
        left = until - time.monotonic()
        if left <= 0 or self.output.total > FLOOD:
            return 0
        poll = select.poll()
        poll.register(self._socket, events)
        found = poll.poll(left * 1000)
        if not found:
            return 0
        ended = found[0][1] & (select.POLLHUP | select.POLLERR)
        return found[0][1] | (select.POLLIN if ended else 0)

    def _read(self) -> None:
        try:
            size = self._socket.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        self.closed = size == 0
        self._split(self._buffer[:size])

    def _split(self, data: memoryview) -> None:
        while data:
            if self._left == 0:
                need = _HEADER - len(self._header)
                self._header += data[:need]
                data = data[need:]
                if len(self._header) == _HEADER:
                    self._stream, self._left = self._header[0], int.from_bytes(self._header[4:], "big")
                    self._header.clear()
                continue
            piece, data = data[: self._left], data[self._left :]
            self._left -= len(piece)
            if self._stream == _STDOUT:
                self._channel += piece
            else:
                self.output.add(piece)
