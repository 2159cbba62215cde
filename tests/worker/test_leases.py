"""A lease as two workers see it: renewed as long as its job runs, and taken back once its worker is gone."""

from __future__ import annotations

from worker.harness import LEASE, Site, holds
from worker.program import Program


def test_a_job_longer_than_its_lease_is_run_once(site: Site[Program]) -> None:
    """With another worker looking on, which would take it back."""
    job = site.program.gate.enqueue("end")
    site.start_many(2, concurrency=1)
    site.wait_started(job.id)
    # A lease, and how long an upkeeper must have seen it past before it takes it back; twice.
    holds(lambda: site.diary.starts() == {job.id: 1}, during=2 * (LEASE + 1.0))
    site.open("end")
    (record,) = site.wait_ended(job.id)
    assert (record.status, record.attempts, record.claims, record.crashes) == ("done", 1, 1, 0)


def test_a_job_of_a_killed_worker_is_run_by_another(site: Site[Program]) -> None:
    """Within its lease and as long as an upkeeper looks on, which is less than two."""
    job = site.program.gate.enqueue("end")
    victim = site.start(concurrency=1)
    site.wait_started(job.id)
    site.start(concurrency=1)
    victim.kill()
    site.open("end")
    (record,) = site.wait_ended(job.id, within=10)
    assert (record.status, record.attempts, record.claims, record.crashes) == ("done", 2, 2, 1)
