"""What the bench has measured, as `--json` prints it. Rates are per second, `_ms` are milliseconds, shares 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dibs.bench.limits import Limit


class Machine(msgspec.Struct):
    """Where the bench ran. `local`: the server seems to share this machine. `busy_before`: the share of its CPU that
    was in use before anything was measured; null where it can't be read (psutil is missing)."""

    cores: int
    local: bool
    busy_before: float | None


class Server(msgspec.Struct):
    """The database, and what a round trip and a commit that has a row to write cost there as a rule; the commit's own
    round trip is not in it. `durable`: a commit survives a power cut."""

    database: str
    version: str
    durable: bool
    settings: str
    round_trip_ms: float
    commit_ms: float


class Times(msgspec.Struct):
    """How long something took."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float

    def __str__(self) -> str:
        return f"p50 {self.p50_ms:.2f} ms, p95 {self.p95_ms:.2f} ms, p99 {self.p99_ms:.2f} ms"


class Enqueued(msgspec.Struct):
    """Jobs written one by one by one process, each in a transaction of its own, or all of them in one call (`times`
    is null). Of those `asked` for, `jobs` were written: one by one it ends after 20 s. `raw_per_second` is a plain INSERT into the same table, one row or 1,000 a statement. `cpu_share` is of
    one core."""

    asked: int
    jobs: int
    seconds: float
    per_second: float
    raw_per_second: float
    ratio: float
    times: Times | None
    cpu_share: float
    limit: Limit


class Drained(msgspec.Struct):
    """Jobs that do nothing, run by worker processes from their start signal until the last of them had ended.
    `raw_per_second`: plain SQL that claims and finishes `batch` rows at a time (the workers' own mean) on one
    connection. `statements_per_job` and `commits_per_job` are the workers'; `cpu_shares` of one core each."""

    jobs: int
    done: int
    ran: int
    lost: int
    doubled: int
    workers: int
    tasks: str
    seconds: float
    per_second: float
    batch: float
    raw_per_second: float
    ratio: float
    statements_per_job: float
    commits_per_job: float
    cpu_shares: list[float]
    limit: Limit


class Latency(msgspec.Struct):
    """From the enqueue call to the task's first line, in an idle worker. `enqueue`: the call alone, which is in it."""

    samples: int
    times: Times
    enqueue: Times
    limit: Limit


class Idle(msgspec.Struct):
    """What a worker costs that has nothing to do, from `seconds` of watching it. `cpu_share` is of one core."""

    seconds: float
    statements_per_second: float
    cpu_share: float


class Result(msgspec.Struct):
    """All of it; null is what was not asked for. `limit` is what the last line says."""

    server: Server
    machine: Machine
    enqueue: Enqueued | None = None
    bulk: Enqueued | None = None
    drain: Drained | None = None
    latency: Latency | None = None
    idle: Idle | None = None
    limit: Limit | None = None


def times(seconds: Sequence[float]) -> Times:
    """Return percentiles, of which each is one of the values: the smallest that so many are not above."""
    ordered = sorted(seconds)

    def at(percent: int) -> float:
        return round(ordered[max(-(-len(ordered) * percent // 100) - 1, 0)] * 1000, 3)

    return Times(at(50), at(95), at(99), at(100))
