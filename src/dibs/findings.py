"""What a check of `dibs doctor` finds, as data: how bad it is, what was seen, why it matters and what to do."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Level(StrEnum):
    """How bad it is. SKIPPED: there is no such thing on this database."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"
    SKIPPED = "SKIPPED"


class Finding(msgspec.Struct, frozen=True):
    """What one check found. `why` it matters and the `fix` to paste are empty where there is nothing to do."""

    check: str
    level: Level
    found: str
    why: str = ""
    fix: str = ""


class Report(msgspec.Struct, frozen=True):
    """All findings, in the order in which to read them. `worst`: OK, WARN or FAIL. `seconds`: how long it took."""

    database: str
    worst: Level
    seconds: float
    checks: list[Finding]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """From where on the doctor warns. Durations are seconds.

    - `snapshot`: how old a transaction or snapshot may be, or for how long nobody may read a replication slot. `history`:
      of how many transactions old versions of rows may wait to be cleaned away. `wal`: bytes kept for a slot nobody reads.
    - `dead`: dead rows of a table; and they are more than those that live.
    - `short`: what cuts statements or sessions short before. `busy`: the share of the server's connections in use.
    - `clock`: difference between this machine's clock and the database's.
    - `waiting`: how long due work may find no worker. `late`: how long a finished row may outlive its retention.
    - `sample`: rows looked at, the newest; `enough`: of these, ended ones, before shares mean anything.
    - `failing`, `retrying`: shares of the sample. `deadlocks`: a minute, since the server counts.
    """

    snapshot: float = 300.0
    history: int = 1_000_000
    wal: int = 2**30
    dead: int = 10_000
    short: float = 5.0
    busy: float = 0.9
    clock: float = 1.0
    waiting: float = 60.0
    late: float = 600.0
    sample: int = 1_000
    enough: int = 20
    failing: float = 0.1
    retrying: float = 0.25
    deadlocks: float = 1.0


def ok(found: str) -> Finding:
    return Finding("", Level.OK, found)


def skipped(found: str) -> Finding:
    return Finding("", Level.SKIPPED, found)


def warn(found: str, why: str, fix: str) -> Finding:
    return Finding("", Level.WARN, found, why, fix)


def fail(found: str, why: str, fix: str) -> Finding:
    return Finding("", Level.FAIL, found, why, fix)
