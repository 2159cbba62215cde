"""Workers that are killed at random moments, on two queues, until all jobs are done."""

from __future__ import annotations

import random
import time

from conftest import wait_for
from worker.harness import Site, WorkerProcess
from worker.program import Program

JOBS = 2_000
KILLS = 4


def frozen_with_a_job(site: Site[Program], worker: WorkerProcess) -> bool:
    """Freeze this worker at a random moment; let it go on if it holds no job: one still starting, or between two."""
    worker.freeze()
    wait_for(worker.stands_still, what="it to stand still")
    owners = site.db.fetch("SELECT lease_owner FROM dibs_jobs WHERE status = 'running'")
    if any(f":{worker.pid}:" in owner for (owner,) in owners):
        return True
    assert site.statuses().keys() - site.diary.starts(), "jobs are left, so some worker has one"
    worker.thaw()
    return False


def test_workers_killed_at_random(site: Site[Program]) -> None:
    """Three workers, 2,000 jobs in two queues, and now and then one is killed (-9) and another started: every job is
    done; none runs twice at the same time; and only what a killed worker had begun was started again."""
    dice = random.Random()
    tasks = [site.program.nap.using(queue="a"), site.program.anap.using(queue="b")]
    jobs = [job.id for job in site.app.enqueue_many(dice.choice(tasks).call(seconds=0.01) for _ in range(JOBS))]
    living = site.start_many(3, concurrency=3)
    victims: set[int] = set()
    for kill in range(KILLS):
        some = (kill + 1) * JOBS // (KILLS + 4)
        wait_for(lambda: len(site.diary.entries("start")) > some, every=0.02, what="some more jobs to start")
        time.sleep(dice.uniform(0.0, 0.05))
        victim = dice.choice(living)
        while not frozen_with_a_job(site, victim):
            victim = dice.choice(living)
        victim.kill()
        living.remove(victim)
        victims.add(victim.pid)
        living.append(site.launch(concurrency=3))
    records = site.wait_ended(jobs, within=20)
    assert {job.status for job in records} == {"done"}
    assert site.diary.overlaps() == []

    by_victims = {entry.job for entry in site.diary.entries("start") if entry.pid in victims}
    starts = site.diary.starts()
    for job in records:
        assert starts[job.id] <= 1 + job.crashes, "each start but the first comes after a crash"
        assert starts[job.id] == 1 or job.id in by_victims, "and only of a job that a killed worker had begun"
        assert 1 <= job.attempts <= 1 + job.crashes
    assert sum(job.crashes for job in records) > 0, "the kills hit something"
    assert all(worker.alive for worker in living)
