"""What a worker claims ahead of its free slots: what will start within a moment, and nothing that would wait."""

from __future__ import annotations

from conftest import wait_for
from worker.harness import Site
from worker.program import Program


def test_long_jobs_are_shared(site: Site[Program]) -> None:
    """Six jobs of a second, two workers with two slots each: neither takes more than it can start, so both work."""
    jobs = [job.id for job in site.app.enqueue_many(site.program.nap.call(seconds=1.0) for _ in range(6))]
    site.app.pause("default")
    workers = site.start_many(2, concurrency=2)
    site.app.resume("default")
    site.wait_ended(jobs)
    shares = [site.diary.pids()[worker.pid] for worker in workers]
    assert sum(shares) == 6
    assert all(2 <= share <= 4 for share in shares), shares
    assert {(job.status, job.attempts, job.claims) for job in site.jobs(jobs)} == {("done", 1, 1)}


def test_short_jobs_are_claimed_ahead(site: Site[Program]) -> None:
    """Jobs that take a millisecond are claimed many at a time; how many, the database shows while they wait."""
    site.start(concurrency=4)
    site.learn_that_notes_are_quick()
    jobs = [job.id for job in site.app.enqueue_many(site.program.nap.call(seconds=0.001) for _ in range(3_000))]
    held = 0

    def ended() -> bool:
        nonlocal held
        held = max(held, len(site.held()))
        return len(site.diary.entries("end")) >= len(jobs)

    wait_for(ended, what="the jobs to end")
    assert held > 50
    assert {(job.status, job.attempts, job.claims) for job in site.wait_ended(jobs)} == {("done", 1, 1)}


def test_held_jobs_are_renewed_and_given_back(site: Site[Program]) -> None:
    """Jobs that were claimed ahead of one that turns out long are renewed while they wait, and go back after a
    moment, uncharged: to a worker that has room."""
    busy = site.program.gate.enqueue("second is free")
    second = site.start(concurrency=1)
    site.wait_started(busy.id)
    first = site.start(concurrency=1)
    long, held, _ = site.start_one_and_hold_five()
    until = site.job(held[0]).lease_until
    assert until is not None
    wait_for(lambda: (site.job(held[0]).lease_until or until) > until, within=1, every=0.01, what="a renewal")
    wait_for(lambda: not site.held(), within=5, what="them to be given back")
    assert {(job.status, job.attempts) for job in site.jobs(held)} == {("ready", 0)}

    site.open("second is free")
    assert {(job.status, job.attempts, job.crashes) for job in site.wait_ended(held, within=5)} == {("done", 1, 0)}
    assert {entry.pid for entry in site.diary.entries("start") if entry.job in held} == {second.pid}
    assert site.job(long).status == "running"
    assert first.alive
