"""Jobs that outlive their first lease, and jobs that wait for longer than one: no healthy job is handed out again."""

from __future__ import annotations

import time

import pytest

from anomaly.invariants import nothing_lost_nothing_twice
from databases import Database
from worker.harness import Site
from worker.program import Program

REMAINING = {
    "postgres": "extract(epoch FROM lease_until - clock_timestamp())",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lease_until) / 1e6",
    "sqlite": "(julianday(lease_until) - julianday('now')) * 86400.0",
}

#: Leases (seconds) at which a third is just above the steps in which the renewing thread wakes up, and a usual one.
LEASES = (2.0, 3.03)


def remaining(db: Database) -> list[float]:
    """Return for how many seconds the leases of the running jobs are still good, by the database's clock."""
    rows = db.fetch(f"SELECT {REMAINING[db.kind]} FROM dibs_jobs WHERE status = 'running'")
    return [float(row[0]) for row in rows]


def lowest(site: Site[Program], ids: list[int]) -> float:
    """Return how little was left of any lease, looked at until all jobs have ended."""
    least = float("inf")
    while site.running() or not set(ids) <= set(site.diary.starts()):
        least = min([least, *remaining(site.db)])
        time.sleep(0.05)
    return least


@pytest.mark.parametrize("lease", LEASES)
def test_ten_jobs_of_two_leases(site: Site[Program], lease: float) -> None:
    """Each starts once, and two thirds of its lease are left, but for the time that renewing takes, as long as it runs."""
    site.start_many(2, concurrency=5, lease=lease)
    jobs = [job.id for job in site.app.enqueue_many(site.program.nap.call(seconds=2 * lease) for _ in range(10))]
    least = lowest(site, jobs)
    assert site.diary.starts() == dict.fromkeys(jobs, 1)
    done = nothing_lost_nothing_twice(site, jobs, crashed=False)
    assert {(job.status, job.attempts) for job in done} == {("done", 1)}
    assert least > lease / 2
