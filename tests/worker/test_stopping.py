"""How a worker stops when it is told to, and what becomes of its jobs; and one that was only thought to be dead."""

from __future__ import annotations

import signal
import time

import pytest

from conftest import wait_for
from worker.harness import LEASE, Site, holds
from worker.program import Program


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_worker_that_is_told_to_stop(site: Site[Program], number: signal.Signals) -> None:
    """It gives back at once what it had not started, takes nothing more, goes on renewing what runs until that has
    ended, and leaves with 0."""
    if number == signal.SIGINT and site.db.name != "sqlite":
        pytest.skip("which signal it is does not matter to the database")
    worker = site.start(concurrency=1)
    started, held, gate = site.start_one_and_hold_five()
    worker.signal(number)
    wait_for(lambda: site.running() == {started}, within=3, what="the held jobs to be given back")
    late = site.program.note.enqueue(number=9)
    holds(lambda: site.running() == {started} and worker.alive, during=1.5 * LEASE)
    assert {(job.status, job.attempts) for job in site.jobs([*held, late.id])} == {("ready", 0)}

    site.open(gate)
    assert worker.wait(5) == 0
    (job,) = site.wait_ended(started, within=1)
    assert (job.status, job.attempts, job.result, job.claims) == ("done", 1, gate, 1)
    assert not site.diary.starts().keys() & {*held, late.id}
    assert worker.complaints() == []


def test_jobs_in_free_slots_that_had_not_begun(site: Site[Program]) -> None:
    """A stop in the midst of claims costs no attempt: what a claim had sent straight into a free slot and what was
    held are alike, and each job was started exactly as often as its attempts say."""
    worker = site.start(concurrency=10)
    site.learn_that_notes_are_quick()
    jobs = [job.id for job in site.app.enqueue_many(site.program.nap.call(seconds=0.001) for _ in range(20_000))]
    wait_for(lambda: len(site.diary.starts()) > 500, every=0.005, what="the worker to be in full swing")
    worker.terminate()
    assert worker.wait(10) == 0
    starts = site.diary.starts()
    rows = dict(site.db.fetch("SELECT id, attempts FROM dibs_jobs"))
    assert {job_id: starts[job_id] for job_id in jobs} == {job_id: rows[job_id] for job_id in jobs}
    assert site.running() == set()
    assert "ready" in site.statuses().values(), "it was stopped in the midst of it"


def test_the_time_of_grace_is_over(site: Site[Program]) -> None:
    """What has not ended by then is released, its attempt not counted: an async task is cancelled, a thread is left
    behind. The worker leaves with 0 all the same, and another one runs the jobs again."""
    worker = site.start(concurrency=2, grace=0.5)
    jobs = [site.program.gate.enqueue("never").id, site.program.agate.enqueue("never").id]
    site.wait_started(*jobs)
    told = time.monotonic()
    worker.terminate()
    assert worker.wait(10) == 0
    assert 0.4 < time.monotonic() - told < 8.0
    assert [entry.detail for entry in site.diary.entries("raised", job=jobs[1])] == ["CancelledError"]
    assert {(job.status, job.attempts, job.crashes) for job in site.jobs(jobs)} == {("ready", 0, 0)}

    site.open("never")
    site.start()
    assert {(job.status, job.attempts) for job in site.wait_ended(jobs)} == {("done", 1)}
    assert site.diary.starts() == dict.fromkeys(jobs, 2)


def test_a_second_signal(site: Site[Program]) -> None:
    """Whoever asks twice means it: the worker leaves at once, not with 0, and what ran comes back after its lease."""
    worker = site.start(concurrency=2)
    job = site.program.gate.enqueue("end")
    site.wait_started(job.id)
    worker.terminate()
    worker.terminate()  # in the same moment, as `timeout` does: that is one
    holds(lambda: worker.alive, during=0.6)
    worker.terminate()
    assert worker.wait(3) == 1
    assert len(worker.lines("second signal")) == 1
    assert site.job(job.id).status == "running"
    site.open("end")
    site.start()
    (ended,) = site.wait_ended(job.id)
    assert (ended.status, ended.attempts, ended.crashes) == ("done", 2, 1)


def test_tables_that_declare_the_code_too_old(site: Site[Program]) -> None:
    """A running worker goes on when the tables are migrated, and stops in good order when they say that it must."""
    worker = site.start()
    job = site.program.gate.enqueue("gate")
    site.wait_started(job.id)
    before = site.db.fetch("SELECT name, value FROM dibs_meta")
    try:
        site.db.execute("UPDATE dibs_meta SET value = '99' WHERE name = 'schema'")
        holds(lambda: worker.alive and not worker.complaints(), during=1.5)
        site.db.execute("UPDATE dibs_meta SET value = '99' WHERE name = 'oldest_code'")
        wait_for(lambda: worker.lines("ERROR", "stops", "at least 99", "install a newer dibs"))
        site.open("gate")
        assert worker.wait() == 1
        assert worker.lines("CodeTooOld")
        assert (site.statuses()[job.id], len(worker.lines("ERROR"))) == ("done", 1)
    finally:
        for name, value in before:
            site.db.execute("UPDATE dibs_meta SET value = :value WHERE name = :name", name=name, value=value)
