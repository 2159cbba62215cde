"""A transaction that somebody has left open: what it could still see can't be cleaned away, and claims must not wade
through it. (`benchmarks/health haul` measures the same for as long as you like.)
"""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import pytest

from anomaly.claiming import p95
from anomaly.invariants import nothing_lost_nothing_twice
from dibs.ops import Execute, Fetch
from worker.harness import Site
from worker.program import Program

pytestmark = pytest.mark.slow

#: Jobs a second, and for how many seconds before, under, and after the snapshot.
RATE, BEFORE, HELD, AFTER = 200, 30, 120, 30

AT_REPEATABLE_READ = {
    "postgres": ["SET idle_in_transaction_session_timeout = 0", "BEGIN ISOLATION LEVEL REPEATABLE READ"],
    "mysql": ["SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT"],
    "sqlite": ["BEGIN"],
}


def produce(site: Site[Program], seconds: float) -> list[tuple[int, float]]:
    """Enqueue at a steady rate for so long; return the jobs, each with the moment when it was enqueued."""
    made: list[tuple[int, float]] = []
    began = time.monotonic()
    for number in count(1):
        ahead = began + number * 0.05 - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
        if time.monotonic() - began > seconds:
            return made
        for job in site.app.enqueue_many(site.program.note.call(number=n) for n in range(RATE // 20)):
            made.append((job.id, time.monotonic()))
    raise AssertionError


def waits(site: Site[Program], made: list[tuple[int, float]]) -> list[float]:
    """Return how long each of these jobs waited for its start."""
    site.wait_ended([job_id for job_id, _ in made], within=60)
    started = {entry.job: entry.at for entry in site.diary.entries("start")}
    return [max(started[job_id] - at, 0.0) for job_id, at in made]


def test_a_transaction_held_open(site: Site[Program]) -> None:
    """Under the same load: jobs start at its end as soon as before it, nearly, and all of them are run once."""
    site.start(concurrency=4)
    before = produce(site, BEFORE)
    holder: Any = site.db.connect()
    if site.db.name.startswith("mariadb"):  # like PostgreSQL, it would end a session of dibs' own that idles so long
        holder.answer(Execute("SET SESSION idle_transaction_timeout = 0", {}))
    for statement in AT_REPEATABLE_READ[site.db.kind]:
        holder.answer(Execute(statement, {}))
    holder.answer(Fetch("SELECT count(*) FROM dibs_queues", {}))
    try:
        under = produce(site, HELD)
        last = waits(site, under[-RATE * 20 :])
    finally:
        holder.answer(Execute("ROLLBACK", {}))
        holder.close()
    after = produce(site, AFTER)
    usual, later = waits(site, before), waits(site, after[-RATE * 10 :])
    print(
        f"{site.db.name}: p95 {p95(usual) * 1e3:.0f} ms, {p95(last) * 1e3:.0f} at the end of it, {p95(later) * 1e3:.0f} after; "
        f"{len(under)} jobs meanwhile"
    )
    assert len(under) >= 0.5 * RATE * HELD, "at least half of what was to be"
    assert p95(last) <= max(5 * p95(usual), 1.0)
    assert p95(later) <= max(5 * p95(usual), 1.0)
    nothing_lost_nothing_twice(site, [job_id for job_id, _ in [*before, *under, *after]], crashed=False)
