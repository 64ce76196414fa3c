"""The subject of an event, and the world that a decision was made from."""

from typing import Literal

import msgspec

from steno.events.codec import Fact


class OfRun(Fact):
    run_id: str
    provider: str


class OfVm(Fact):
    vm_id: str
    provider: str


class OfFleet(Fact):
    provider: str
    project: str
    name: str


class OfSource(Fact):
    source: str


class OfArchive(OfSource):
    by: str  # who asked for it


NoticeKind = Literal[
    "budget", "orphan", "run_end", "anomaly", "test", "trace", "start", "stuck", "wait", "vanished", "digest"
]


class OfNotice(Fact):
    notice_id: str


class OfToken(Fact):
    """A fact about a token of the HTTP service; the token itself is in no record, nor is its hash."""

    token_id: str
    name: str  # what commands under this token are recorded as
    role: Literal["read", "submit", "admin"]
    expires_at: int | None = None  # None: it holds until revoked
    by: str  # who made or revoked it


class DecidedAt(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The world a decision was made from: with the policy and rules in force there, the same follows again."""

    position: int  # of the world
    at: int  # the time it was given as now, by the record's clock
    software: str  # the version of Steno
    watched: bool = True  # its process went on recording


class RunDecision(OfRun):
    """`decided_at` is None for what a user asked for, for an outcome of a call, and in older records."""

    decided_at: DecidedAt | None = None


class VmDecision(OfVm):
    decided_at: DecidedAt | None = None
