"""The four checks for the day before going live: what to try on your own database before you rely on a queue."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import pytest

from conftest import wait_for
from databases import Database
from dibs import ops
from dibs.jobs import Lane, Wanted
from worker.harness import LEASE, Site, holds
from worker.program import Program


def test_three_workers_and_a_paused_transaction_on_ten_jobs(site: Site[Program]) -> None:
    """A claim that stands still in its transaction: nobody waits for its row, nobody runs anything twice."""
    jobs = site.app.enqueue_many(site.program.nap.call(seconds=0.05) for _ in range(10))
    ids = {job.id for job in jobs}
    dialect = site.app.dialect
    with site.transaction() as paused:
        lane, tasks = Lane("default", 0), dialect.names(["nap"])
        claim = dialect.claim(Wanted(lane, since=None, tasks=tasks, worker="paused", lease=60.0, start=1, limit=1))
        (held,) = ops.run(claim, paused)
        site.start_many(3, concurrency=2)
        if site.db.locks_rows:
            site.wait_ended(ids - {held.id}, within=10)
        else:
            # One writer at a time, and it is the paused one: everybody waits, and nothing may come of that but delay.
            holds(lambda: not site.diary.starts(), during=2 * LEASE)
        assert held.id not in site.diary.starts()
    site.wait_ended(ids)
    assert site.diary.starts() == dict.fromkeys(ids, 1)
    assert [(job.status, job.attempts) for job in site.jobs(ids)] == [("done", 1)] * 10


def test_an_empty_queue(site: Site[Program]) -> None:
    """Nothing to do is no trouble: a worker says nothing about it, and takes the next job that comes."""
    worker = site.start()
    holds(lambda: worker.alive and not worker.complaints(), during=1.5)
    job = site.program.note.enqueue(number=7)
    assert job.join(timeout=10) == 7
    worker.terminate()
    assert worker.wait() == 0
    assert worker.complaints() == []


def test_a_database_that_is_not_there_is_no_empty_queue(db: Database, tmp_path: Path) -> None:
    """A worker that can't reach its database waits, and says so: once, not at every try."""
    if db.kind == "sqlite":
        url = f"sqlite:///{tmp_path}/missing/dibs.db"
    else:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            url = f"{db.url.split(':')[0]}://nobody@127.0.0.1:{nobody.getsockname()[1]}/x"
    with Site(Database(db.name, url), tmp_path, Program) as site:
        worker = site.launch()
        wait_for(worker.complaints, what="a word about the database")
        holds(lambda: worker.alive and len(worker.complaints()) == 1, during=1.5)
        assert "can't be used" in worker.complaints()[0]
        worker.terminate()
        assert worker.wait() == 0


def test_kill_9_of_a_lease_holder(site: Site[Program]) -> None:
    """What a killed worker had started is ready again after its lease and runs again within two leases and a
    second, with one attempt used; what it had claimed and not started has used none."""
    busy = site.program.gate.enqueue("survivor is free")
    survivor = site.start(concurrency=1)
    site.wait_started(busy.id)
    victim = site.start(concurrency=1)
    started, neighbours, gate = site.start_one_and_hold_five()
    killed = victim.kill()
    assert [entry.pid for entry in site.diary.entries("start", job=started)] == [victim.pid]
    assert not site.diary.starts().keys() & set(neighbours)
    assert site.job(started).status == "running"
    site.open("survivor is free")

    wait_for(lambda: site.diary.starts()[started] == 2, what="the job to run again")
    again = site.diary.entries("start", job=started)[-1]
    assert again.pid == survivor.pid
    assert LEASE / 2 < again.at - killed < 2 * LEASE + 1, "after its lease, which was good for two thirds at least"
    assert again.attempt == 2
    assert site.job(started).crashes == 1

    site.open(gate)
    site.wait_ended([started, *neighbours])
    first, *others = site.jobs([started, *neighbours])
    assert (first.status, first.attempts, first.claims) == ("done", 2, 2)
    assert [(job.status, job.attempts) for job in others] == [("done", 1)] * 5
    assert [site.diary.starts()[job.id] for job in others] == [1] * 5


def test_the_same_key_replayed(site: Site[Program], caplog: pytest.LogCaptureFixture) -> None:
    """One key, one run, one result: however often and whenever it is asked for, and each time is on record."""
    caplog.set_level(logging.INFO, logger="dibs")
    first = site.program.note.using(key="order-7").enqueue(number=7)
    waiting = site.program.note.using(key="order-7").enqueue(number=7)
    site.start()
    assert first.join(timeout=10) == 7
    done = site.program.note.using(key="order-7").enqueue(number=7)
    other = site.program.note.using(key="order-7").enqueue(number=8)

    assert [job.created for job in (first, waiting, done, other)] == [True, False, False, False]
    assert {waiting.id, done.id, other.id} == {first.id}
    assert other.join(timeout=10) == 7
    assert site.diary.starts() == {first.id: 1}
    assert site.job(first.id).duplicates == 3
    logged = [record.levelname for record in caplog.records if f"duplicate of job {first.id}" in record.getMessage()]
    assert logged == ["INFO", "INFO", "WARNING"], "other arguments under the same key deserve a warning"
