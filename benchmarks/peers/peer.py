"""What is measured: dibs, each peer at its best documented settings, and raw SQL; and how each accounts for its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dibs.worker.fetcher import BATCH

#: Rows of dibs' table that are not done; for the statuses that have an index each, an index each is read.
DIBS_LEFT = """
    SELECT (SELECT count(*) FROM dibs_jobs WHERE status = 'ready')
         + (SELECT count(*) FROM dibs_jobs WHERE status = 'running')
"""


@dataclass(frozen=True)
class Peer:
    """One contestant."""

    name: str
    #: Its program: `programs/MODULE.py`, or `.mjs` for one in Node.
    module: str
    #: Where its jobs are: a kind of server, or "sqlite".
    kind: str
    #: What is installed for it; nothing for what runs with the project's own environment.
    pins: tuple[str, ...] = ()
    node: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: How many jobs are not settled yet, and how many finished rows there are where they are kept.
    left: str = ""
    kept: str | None = None
    #: Jobs in a drain, at most: a slow one need not take minutes to show its rate.
    most: int = 1_000_000
    measures: frozenset[str] = frozenset({"drain", "enqueue", "bulk", "latency", "idle"})
    note: str = ""

    def on(self, kind: str) -> Peer:
        """Return the same on another kind of database."""
        return replace(self, kind=kind)

    def with_settings(self, name: str | None = None, **settings: Any) -> Peer:
        """Return the same with other settings, under another name if one is given."""
        return replace(self, name=name or self.name, settings={**self.settings, **settings})


DIBS = Peer(
    "dibs", "dibs", "postgres", left=DIBS_LEFT, kept="SELECT count(*) FROM dibs_jobs WHERE status = 'done'"
)  # fmt: skip

RAW = Peer(
    "raw SQL",
    "raw",
    "postgres",
    settings={"batch": BATCH},
    left=DIBS_LEFT,
    kept=DIBS.kept,
    measures=frozenset({"raw", "enqueue", "bulk", "transaction"}),
    note=f"one connection that finishes {BATCH} rows and claims the next {BATCH} in one transaction",
)

PEERS = (
    Peer(
        "graphile-worker",
        "graphile_worker",
        "postgres",
        pins=("graphile-worker@0.18.0", "pg@8.23.1"),
        node=True,
        settings={"concurrency": 24, "localQueue": 2000, "batchDelay": 0},
        left="SELECT count(*) FROM graphile_worker._private_jobs",
        note="local queue of 2,000, completion in batches; it deletes finished rows",
    ),
    Peer(
        "pg-boss",
        "pg_boss",
        "postgres",
        pins=("pg-boss@12.38.0", "pg@8.23.1"),
        node=True,
        settings={"batch": 500, "workers": 4},
        left="SELECT count(*) FROM pgboss.job WHERE state < 'completed'",
        kept="SELECT count(*) FROM pgboss.job WHERE state = 'completed'",
        note="batches of 500, burstWhenBatchFull, 4 workers, NOTIFY on",
    ),
    Peer(
        "pgqueuer",
        "pgqueuer",
        "postgres",
        pins=("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0", "typer==0.16.0"),
        settings={"batch": 500, "pool": 4},
        left="SELECT count(*) FROM pgqueuer",
        kept="SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'",
        note="batches of 500, asyncpg pool of 4, uvloop; it moves finished rows into a log",
    ),
    Peer(
        "awa-pg",
        "awa",
        "postgres",
        pins=("awa-pg==0.6.9",),
        settings={"workers": 500, "pool": 20},
        left="SELECT count(*) FROM awa.jobs WHERE state IN ('available', 'running')",
        most=10_000,
        note="queue storage, 500 workers, COPY for bulk; of finished jobs it keeps counters",
    ),
    Peer(
        "procrastinate",
        "procrastinate",
        "postgres",
        pins=("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9"),
        settings={"concurrency": 10},
        left="SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
        kept="SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'",
        most=2_000,
        measures=frozenset({"drain", "one", "enqueue", "bulk", "latency", "idle"}),
        note="concurrency 10, LISTEN on, rows kept",
    ),
    Peer(
        "celery",
        "celery",
        "redis",
        pins=("celery[redis]==5.7.0",),
        settings={"pool": "prefork", "concurrency": 2, "prefetch": 100},
        left="",
        most=5_000,
        measures=frozenset({"drain", "enqueue", "latency"}),
        note="prefork, 2 processes; Redis 8, appendfsync everysec; results ignored, late acknowledgement",
    ),
    Peer(
        "honker",
        "honker",
        "sqlite",
        pins=("honker==0.5.0",),
        settings={"batch": 500, "synchronous": "normal"},
        left="SELECT count(*) FROM _honker_live",
        measures=frozenset({"drain", "enqueue", "bulk", "latency"}),
        note="claim_batch and ack_batch of 500, synchronous=NORMAL; it deletes finished rows",
    ),
    Peer(
        "huey",
        "huey",
        "sqlite",
        pins=("huey==3.5.4",),
        settings={"workers": 4, "synchronous": "full"},
        left="SELECT count(*) FROM task",
        most=5_000,
        measures=frozenset({"drain", "enqueue", "latency"}),
        note="4 threads, fsync=True; it deletes a job when it takes it",
    ),
)
