"""What every kind of event is made of."""

from typing import ClassVar

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A frozen structure; what is as by default is not written."""

    version: ClassVar[int] = 1
