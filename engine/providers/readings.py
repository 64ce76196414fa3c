"""The readings of the providers Steno brings, in the order in which they are asked whose a path is."""

from typing import Final

from engine.providers.dstack.reading import DstackReading
from engine.providers.local.reading import LocalReading
from engine.providers.reading import Readings

READINGS: Final = Readings({"local": LocalReading(), "dstack": DstackReading()})
