"""Reading what `durable` wrote, as typed values."""

from pathlib import Path
from typing import TypeVar

import msgspec

from engine.errors import ProviderError


class StateDamaged(ProviderError):
    """A file of a local run or machine is not what we wrote."""


_T = TypeVar("_T")


def read_file(path: Path, shape: type[_T]) -> _T | None:
    """The value in this file; None if there is no such file.

    Raises:
        OSError, StateDamaged: it cannot be read, or is damaged.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=shape)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise StateDamaged(f"{path} is damaged ({error}); move its folder away to go on without it") from None
