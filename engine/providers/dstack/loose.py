"""Takes typed values out of JSON objects of any shape; each that is of another type is named and left out."""

from typing import Any, Final

_GREATEST: Final = 2**53
"""Whole numbers beyond it are no numbers of anything we read, and could not be written down."""


class FieldReader:
    """Takes typed values out of one object and notes the paths of those of another type."""

    def __init__(self, value: dict[str, Any], where: str, drift: list[str]) -> None:
        self.value = value
        self.where = where
        self.drift = drift

    def _odd(self, key: str, wanted: str) -> None:
        self.drift.append(f"{self.where}{key}: no {wanted}")

    def text(self, key: str) -> str | None:
        """The text under a key; None, and named, where it is something else."""
        found = self.value.get(key)
        if found is not None and not isinstance(found, str):
            self._odd(key, "text")
            return None
        return found

    def whole(self, key: str) -> int | None:
        """The whole number under a key, as `text`."""
        found = self.value.get(key)
        if found is not None and (not isinstance(found, int) or isinstance(found, bool) or abs(found) > _GREATEST):
            self._odd(key, "whole number")
            return None
        return found

    def number(self, key: str) -> float | None:
        """The number under a key, as `text`."""
        found = self.value.get(key)
        if found is not None and (not isinstance(found, int | float) or isinstance(found, bool)):
            self._odd(key, "number")
            return None
        return found

    def flag(self, key: str) -> bool | None:
        """The truth value under a key, as `text`."""
        found = self.value.get(key)
        if found is not None and not isinstance(found, bool):
            self._odd(key, "true or false")
            return None
        return found

    def inner(self, key: str) -> "FieldReader | None":
        """A reader of the object under a key, as `text`."""
        found = self.value.get(key)
        if found is not None and not isinstance(found, dict):
            self._odd(key, "object")
            return None
        return None if found is None else FieldReader(found, f"{self.where}{key}.", self.drift)

    def items(self, key: str) -> list["FieldReader | None"]:
        """Readers of the list under a key, one an item; None in the place of one that is no object."""
        found = self.value.get(key)
        if not isinstance(found, list):
            self._odd(key, "list")
            return []
        readers: list[FieldReader | None] = []
        for item in found:
            if isinstance(item, dict):
                readers.append(FieldReader(item, f"{self.where}{key}[].", self.drift))
            else:
                self._odd(f"{key}[]", "object")
                readers.append(None)
        return readers
