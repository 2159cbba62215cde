"""What is measured of one contestant, once: each measure gives figures by name, or raises Failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from peers.grounds import Database, Grounds
from peers.peer import Peer
from peers.process import Failed, Process

Figures = Mapping[str, float]

#: Seconds after which a worker that was just started counts as idle.
SETTLES_DOWN = 6.0


@dataclass(frozen=True)
class Size:
    """How much of it: jobs of a drain, jobs that cost a round trip each, jobs whose waits are taken, seconds of idling."""

    jobs: int
    singles: int
    samples: int
    seconds: int


def enqueue(grounds: Grounds, peer: Peer, jobs: int, *, how: str) -> Figures:
    """Enqueue jobs on an empty queue; return how many a second."""
    with grounds.database(peer) as database:
        return {"jobs/s": jobs / _enqueued(database, how, jobs)}


def _enqueued(database: Database, how: str, jobs: int) -> float:
    with database.process(do="enqueue", how=how, jobs=jobs) as process:
        process.heard("ready")
        process.tell("go")
        _, told = process.heard("enqueued")
        process.wait()
    if (left := database.left()) != jobs:
        raise Failed(f"{database.peer.name}: {jobs} jobs were enqueued, and {left} are there")
    seconds: float = told["seconds"]
    return seconds


def drain(grounds: Grounds, peer: Peer, jobs: int) -> Figures:
    """Let one worker process empty a queue; return jobs a second, from its start to the last one's settling."""
    with grounds.database(peer) as database:
        bulk = "bulk" if "bulk" in peer.measures else "single"
        _enqueued(database, bulk, jobs)
        grounds.tidy(database)
        with database.process(do="work", jobs=jobs) as worker:
            worker.heard("ready")
            start = worker.tell("go")
            worker.heard("called")
            end = database.settled()
            _account(database, worker, jobs)
    return {"jobs/s": jobs / (end - start)}


def _account(database: Database, worker: Process, jobs: int) -> Mapping[str, list[float]]:
    """Stop the worker; raise Failed unless each job was run once, and has its row where rows are kept."""
    worker.tell("stop")
    _, told = worker.heard("account", within=30.0)
    kept = database.kept()
    if told["missed"] or told["repeated"] or kept not in (None, jobs):
        missed, repeated = told["missed"], told["repeated"]
        raise Failed(f"{database.peer.name}: of {jobs} jobs {missed} never ran, {repeated} ran twice, {kept} are kept")
    return told


def latency(grounds: Grounds, peer: Peer, jobs: int) -> Figures:
    """Enqueue single jobs for an idle worker; return milliseconds from the enqueue call to the task's first line."""
    with grounds.database(peer) as database, database.process(do="work", jobs=jobs, timed=True) as worker:
        worker.heard("ready")
        worker.tell("go")
        time.sleep(SETTLES_DOWN / 3)
        with database.process(do="enqueue", how="paced", jobs=jobs) as producer:
            producer.heard("ready")
            producer.tell("go")
            _, sent = producer.heard("sent")
            producer.wait()
        worker.heard("called", within=30.0)
        database.settled()
        told = _account(database, worker, jobs)
    waits = sorted(1000 * (began - at) for at, began in zip(sent["times"], told["began"], strict=True))
    return {"p50 ms": waits[len(waits) // 2], "p99 ms": waits[min(int(len(waits) * 0.99), len(waits) - 1)]}


def idle(grounds: Grounds, peer: Peer, seconds: int) -> Figures:
    """Let a worker wait for jobs that don't come; return what that costs."""
    with grounds.database(peer) as database, database.process(do="work", jobs=1) as worker:
        worker.heard("ready")
        worker.tell("go")
        time.sleep(SETTLES_DOWN)
        counts, used, start = _counts(grounds, database), worker.processor_time(), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - start
        cpu = worker.processor_time() - used
        after = _counts(grounds, database)
    return {
        "statements/s": (after[0] - counts[0]) / took,
        "transactions/s": (after[1] - counts[1]) / took,
        "CPU %": 100 * cpu / took,
    }


def _counts(grounds: Grounds, database: Database) -> tuple[int, int]:
    """Return how many statements and transactions there have been in this database; ours are in another one."""
    name = database.url.rpartition("/")[2]
    grounds.administer("postgres", "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    ((statements, transactions),) = grounds.administer(
        "postgres",
        f"""SELECT (SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE dbid = d.datid),
                   d.xact_commit + d.xact_rollback
            FROM pg_stat_database d WHERE d.datname = '{name}'""",
    )
    return int(str(statements)), int(str(transactions))


@dataclass(frozen=True)
class Measure:
    """One comparison: how much of what, and how."""

    name: str
    title: str
    #: Jobs, or seconds where it is measured without jobs.
    amount: Callable[[Size], int]
    once: Callable[[Grounds, Peer, int], Figures]
    better: str = "more"


MEASURES = (
    Measure("drain", "drain, one worker process", lambda size: size.jobs, drain),
    Measure("raw", "drain, beside raw SQL", lambda size: size.jobs, drain),
    Measure("async", "drain, async tasks beside sync ones", lambda size: size.jobs, drain),
    Measure("one", "drain, one job at a time", lambda size: size.singles, drain),
    Measure("enqueue", "enqueue one by one, each committed", lambda size: size.singles, partial(enqueue, how="single")),
    Measure(
        "transaction",
        "enqueue one by one, 100 in each of the user's transactions",
        lambda size: 5 * size.singles,
        partial(enqueue, how="transaction"),
    ),
    Measure("bulk", "enqueue in bulk", lambda size: 5 * size.jobs, partial(enqueue, how="bulk")),
    Measure("latency", "pick-up by an idle worker", lambda size: size.samples, latency, better="less"),
    Measure("idle", "an idle worker", lambda size: size.seconds, idle, better="less"),
)
