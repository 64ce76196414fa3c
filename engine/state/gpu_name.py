"""The name of a GPU as people write it."""

import re
from typing import Final

_VENDORS: Final = frozenset({"amd", "nvidia", "intel", "google", "tpu", "tenstorrent", "tt"})
_INSTINCT: Final = re.compile(r"(?:AMD)?\s*INSTINCT\s*(MI\d+[A-Z]?)\s*(?:VF|OAM)?")


def model_of(name: str) -> str:
    """The model in capitals, without its maker: `amd:mi300x` and `AMD Instinct MI300X VF` are MI300X. All else stays: a
    number, a memory, a name that is not known.
    """
    vendor, colon, model = name.strip().partition(":")
    model = model if colon and vendor.strip().lower() in _VENDORS else name
    matched = _INSTINCT.fullmatch(model.strip().upper())
    return model.strip().upper() if matched is None else matched[1]
