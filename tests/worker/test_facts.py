"""Three facts that sank earlier designs of this queue, each as it happens to a user."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from conftest import wait_for
from dibs.retries import MAX_CRASHES
from dibs.settings import KeyUntil
from worker.harness import LEASE, Site, holds
from worker.program import Program
from worker.users import users_connection

#: Nothing may be delayed by a lock; less than any time limit for locks, and more than a slow machine needs.
PROMPTLY = 3.0


def lease_until(site: Site[Program], job_id: int) -> Any:
    return site.job(job_id).lease_until


def everybody_goes_on(site: Site[Program], running: int, waiting: int) -> None:
    """While a user's transaction is open: the running job is renewed and settled, the waiting one is run, and
    others can be enqueued."""
    note = site.program.note
    began = time.monotonic()
    others = [note.enqueue(number=1), note.using(key="other").enqueue(number=2), note.using(key="k").enqueue()]
    assert time.monotonic() - began < PROMPTLY, "an enqueue waited"
    assert [job.created for job in others] == [True, True, False]

    before = lease_until(site, running)
    wait_for(lambda: lease_until(site, running) > before, within=PROMPTLY, what="the lease to be renewed")
    assert site.app.resume("paused")
    site.wait_ended([waiting, *(job.id for job in others)], within=PROMPTLY)
    site.open("end")
    site.wait_ended(running, within=PROMPTLY)


def test_a_duplicate_left_open_hides_no_job(site: Site[Program]) -> None:
    """A duplicate enqueue in a user's open transaction: its job is claimed, renewed and settled all the same, and
    nobody else's enqueue waits."""
    if not site.db.locks_rows:
        pytest.skip("one writer at a time: while a user's transaction writes, all wait (see the next but one test)")
    site.app.pause("paused")
    running = site.program.gate.using(key="running").enqueue("end")
    waiting = site.program.note.using(key="k", queue="paused").enqueue()
    site.start(concurrency=2)
    site.wait_started(running.id)
    with users_connection(site.app) as connection:
        assert site.program.gate.using(key="running", connection=connection).enqueue("end").id == running.id
        assert site.program.note.using(key="k", connection=connection).enqueue().id == waiting.id
        everybody_goes_on(site, running.id, waiting.id)
        connection.commit()
    assert (site.job(running.id).duplicates, site.job(waiting.id).duplicates) == (1, 2)
    assert site.diary.starts()[running.id] == site.diary.starts()[waiting.id] == 1


@pytest.mark.parametrize("key_until", ["pruned", "finished"])
def test_a_duplicate_that_came_at_the_last_moment(site: Site[Program], key_until: KeyUntil) -> None:
    """The same for a duplicate that looked when the key was free and met it when it wrote; also where the job's
    end lets its key go."""
    if not site.db.locks_rows:
        pytest.skip("one writer at a time: nobody comes between a look and a write")
    site.app.pause("paused")
    late: list[int] = []
    with users_connection(site.app) as first, users_connection(site.app) as second:
        gate = site.program.gate.using(key="running", key_until=key_until, connection=first)
        note = site.program.note.using(key="k", key_until=key_until, connection=first, queue="paused")
        running_id, waiting_id = gate.enqueue("end").id, note.enqueue().id

        def come_late() -> None:
            late.append(site.program.gate.using(key="running", connection=second).enqueue("end").id)
            late.append(site.program.note.using(key="k", connection=second).enqueue().id)

        thread = threading.Thread(target=come_late)
        thread.start()
        thread.join(0.5)
        assert thread.is_alive(), "it waits for the one who is taking the same key"
        first.commit()
        thread.join(PROMPTLY)
        assert late == [running_id, waiting_id]

        site.start(concurrency=2)
        site.wait_started(running_id)
        everybody_goes_on(site, running_id, waiting_id)
        second.commit()
    # Where the late one's transaction had locked the keys, upkeep lets them go afterwards.
    site.app.store.run(lambda: site.app.dialect.fold(limit=100))
    again = [site.program.gate.using(key="running").enqueue("end"), site.program.note.using(key="k").enqueue()]
    assert [job.created for job in again] == [key_until == "finished"] * 2
    assert site.diary.starts()[running_id] == site.diary.starts()[waiting_id] == 1


def test_a_row_locked_by_a_user_stops_no_other(site: Site[Program]) -> None:
    """A user's transaction holds one job's row for longer than the lease: the others are renewed and settled
    meanwhile, and it is itself neither lost nor run again."""
    if not site.db.locks_rows:
        pytest.skip("one writer at a time: there are no row locks")
    locked, other = (site.program.gate.enqueue(name) for name in ("locked", "other"))
    worker = site.start(concurrency=3)
    bystander = site.start(concurrency=3)
    site.wait_started(locked.id, other.id)
    with site.locked(locked.id):
        end = time.monotonic() + 2.5 * LEASE
        before, renewals = lease_until(site, other.id), 0
        while time.monotonic() < end:
            if (now := lease_until(site, other.id)) != before:
                before, renewals = now, renewals + 1
            time.sleep(0.02)
        assert renewals >= 4, "every third of a lease"
        site.open("locked")
        wait_for(lambda: site.diary.entries("end", job=locked.id), what="the locked job's task to end")
        site.open("other")
        site.wait_ended(other.id, within=PROMPTLY)
        assert site.program.note.enqueue(number=3).join(timeout=PROMPTLY) == 3
        assert site.job(locked.id).status == "running"
    (job,) = site.wait_ended(locked.id, within=PROMPTLY)
    assert (job.status, job.result, job.attempts, job.crashes) == ("done", "locked", 1, 0)
    assert site.diary.starts()[locked.id] == 1
    assert not worker.complaints() + bystander.complaints()


def test_a_user_who_writes_stops_all_where_there_is_one_writer(site: Site[Program]) -> None:
    """SQLite has one writer at a time. While a user's transaction writes, everybody waits, whatever their leases
    say; afterwards they go on, and nothing was lost or run twice."""
    if site.db.locks_rows:
        pytest.skip("rows are locked one by one here")
    running = site.program.gate.using(key="running").enqueue("end")
    workers = site.start_many(2, concurrency=2)
    site.wait_started(running.id)
    with users_connection(site.app) as connection:
        assert site.program.gate.using(key="running", connection=connection).enqueue("end").id == running.id
        waiting = site.program.note.using(connection=connection).enqueue(number=4)
        site.open("end")
        holds(lambda: site.statuses() == {running.id: "running"}, during=2.5 * LEASE)
        connection.commit()
    assert waiting.join(timeout=10) == 4
    (job,) = site.wait_ended(running.id)
    assert (job.status, job.attempts, job.crashes, job.duplicates) == ("done", 1, 0, 1)
    assert site.diary.starts() == {running.id: 1, waiting.id: 1}
    assert all(worker.alive for worker in workers)


def test_a_job_that_kills_its_worker(site: Site[Program]) -> None:
    """It is charged every time, until its attempts are used up; its neighbours, claimed ahead with it, never."""
    site.start(concurrency=1)
    site.learn_that_notes_are_quick()
    calls = [site.program.crash.using(max_attempts=2).call(), *(site.program.note.call(number=n) for n in range(5))]
    killer, *neighbours = (job.id for job in site.app.enqueue_many(calls))
    keep_one_alive(site, until=killer)
    job = site.job(killer)
    assert (job.status, job.attempts, job.crashes) == ("failed", 2, 2)
    assert job.error is not None
    assert "its lease ran out in attempt 2 of 2" in job.error
    assert site.diary.starts()[killer] == 2
    jobs = site.wait_ended(neighbours)
    assert {(job.status, job.attempts) for job in jobs} == {("done", 1)}
    assert {site.diary.starts()[job_id] for job_id in neighbours} == {1}
    assert any(job.crashes for job in jobs), "they were held by a worker that died"


def test_a_job_that_kills_one_worker_after_the_other(site: Site[Program]) -> None:
    """It fails after five of them, however many attempts it is allowed."""
    if site.db.name != "sqlite":
        pytest.skip("what decides it is the same everywhere, and each crash takes a lease")
    job_id = site.program.crash.using(max_attempts=100).enqueue().id
    site.start(concurrency=1)
    keep_one_alive(site, until=job_id)
    job = site.job(job_id)
    assert (job.status, job.attempts, job.crashes) == ("failed", MAX_CRASHES, MAX_CRASHES)
    assert job.error is not None
    assert "it seems to kill its workers" in job.error
    assert len(job.errors) == 1
    assert site.diary.starts() == {job_id: MAX_CRASHES}


def keep_one_alive(site: Site[Program], *, until: int) -> None:
    """Start a new worker whenever the last one has died, until this job has failed."""

    def failed() -> bool:
        if not site.workers[-1].alive:
            site.start(concurrency=1)
        return site.job(until).status == "failed"

    wait_for(failed, within=30, every=0.05, what="the job that kills its workers to fail")
