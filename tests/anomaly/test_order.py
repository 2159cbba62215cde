"""Which job is next: in the order of time and id whoever enqueued it, none of a paused queue, none passed over for ever."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from anomaly.invariants import nothing_lost_nothing_twice
from anomaly.producers import in_threads
from conftest import wait_for
from worker.harness import LEASE, Site, holds
from worker.program import Program
from worker.users import of_driver


@pytest.mark.parametrize("number", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_jobs_of_several_transactions(site: Site[Program], number: int) -> None:
    """Of one priority they start in the order of their times, and of one time in that of their ids."""

    def produce(place: int) -> None:
        with closing(of_driver(site.app)) as connection:
            connection.rollback()
            calls = [site.program.note.using(connection=connection).call(number=n) for n in range(number)]
            site.app.enqueue_many(calls)
            connection.commit()

    assert in_threads(5 if site.db.locks_rows else 1, produce, within=60) == []
    rows = site.db.fetch("SELECT id FROM dibs_jobs ORDER BY run_at, id")
    site.start(concurrency=1)
    site.wait_ended([row[0] for row in rows])
    assert [entry.job for entry in site.diary.entries("start")] == [row[0] for row in rows]


def test_a_flood_of_urgent_jobs(site: Site[Program]) -> None:
    """Within a queue a job of low priority waits as long as there are others (that is the rule, and `dibs status` names how
    long the oldest has been due); in a queue of its own it has its turn at once."""
    if site.db.name != "sqlite":
        pytest.skip("which lane is next does not depend on the database")
    nap, note = site.program.nap, site.program.note
    site.app.enqueue_many(nap.using(queue="flood", priority=5).call(seconds=0.02) for _ in range(60))
    behind = note.using(queue="flood", priority=-1).enqueue(number=1)
    aside = note.using(queue="aside", priority=-1).enqueue(number=2)
    site.start(concurrency=1, ahead=0)
    assert aside.join(timeout=10) == 2
    assert len(site.diary.starts()) < 30, "amid the flood"
    assert behind.join(timeout=20) == 1
    assert [entry.job for entry in site.diary.entries("start")][-1] == behind.id


def test_a_pause_outlives_its_workers(site: Site[Program]) -> None:
    """Paused, with jobs running and waiting: what runs may end, what a killed worker had is not run again, workers that
    start meanwhile take nothing, others queues go on; after a quick series of pauses the last word counts."""
    program = site.program
    victim, other = site.start(concurrency=1), site.start(concurrency=1)
    gate = program.gate.using(queue="q")
    running = [gate.enqueue("end").id for _ in range(2)]
    site.wait_started(*running)
    assert site.app.pause("q")
    waiting = [program.note.using(queue="q").enqueue(number=n).id for n in range(5)]
    (of_victim,) = [entry.job for entry in site.diary.entries("start") if entry.pid == victim.pid]
    (of_other,) = [job for job in running if job != of_victim]
    victim.kill()
    site.start(concurrency=4)
    site.open("end")
    assert site.wait_ended(of_other)[0].status == "done"
    wait_for(lambda: site.job(of_victim).status == "ready", within=2 * LEASE + 5, what="the killed worker's job")
    assert program.note.enqueue(number=7).join(timeout=10) == 7
    for _ in range(2):
        site.app.resume("q")
        site.app.pause("q")
    poll = site.app.dialect.idle_poll.total_seconds()
    settled = time.monotonic() + poll + 0.5
    wait_for(lambda: time.monotonic() > settled and not site.running(), within=10, what="the last pause to be read")
    started = site.diary.starts()
    holds(lambda: site.diary.starts() == started, during=0.7)
    site.app.resume("q")
    jobs = [*running, *waiting]
    site.wait_ended(jobs)
    nothing_lost_nothing_twice(site, jobs, gone=[victim])
    assert other.alive
