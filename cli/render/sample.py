"""A `steno.toml` with every setting, its meaning and its default, all commented out."""

import json
import re
import textwrap
from collections.abc import Iterable
from itertools import groupby

from engine.settings.known import Known

_BARE = re.compile(r"true|false|\d+(\.\d+)?")  # what TOML reads without quotes
_HEAD = """\
# Every setting of Steno. Each line shows the default; remove the # in front of what you change. Put the file into your
# configuration folder (~/.config/steno) or into the folder you call steno in. `steno config` shows what is in force.
"""


def sample_settings(known: Iterable[Known]) -> str:
    def section(one: Known) -> str:
        return one.name.rpartition(".")[0]

    parts = [_HEAD]
    for name, settings in groupby(sorted(known, key=section), section):
        parts.append(f"[{name}]\n" if name else "")
        parts += map(_entry, settings)
    return "\n".join(part for part in parts if part)


def _entry(one: Known) -> str:
    said = f"{one.help} A secret: better in {one.variables[0]}." if one.secret else one.help
    about = textwrap.fill(said, 118, initial_indent="# ", subsequent_indent="# ")
    value = one.default or ""
    shown = value if _BARE.fullmatch(value) else json.dumps(value)
    return f"{about}\n#{one.name.rpartition('.')[2]} = {shown}\n"
