"""A lease as another worker sees it: renewed as long as its job runs, and taken back once its worker is gone."""

from __future__ import annotations

from worker.harness import LEASE, Site, holds
from worker.program import Program


def test_a_lease_is_good_as_long_as_its_worker_lives(site: Site[Program]) -> None:
    """With another worker looking on a job is run once, however long it takes; and by that other one when its worker was
    killed, without anybody's doing."""
    job = site.program.gate.enqueue("end")
    workers = site.start_many(2, concurrency=1)
    site.wait_started(job.id)
    # A lease, and how long an upkeeper must have seen it past before it takes it back; twice.
    holds(lambda: site.diary.starts() == {job.id: 1}, during=2 * (LEASE + 1.0))
    (victim,) = site.diary.pids()
    next(worker for worker in workers if worker.pid == victim).kill()
    site.open("end")
    (record,) = site.wait_ended(job.id, within=10)
    assert (record.status, record.attempts, record.claims, record.crashes) == ("done", 2, 2, 1)
