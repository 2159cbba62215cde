"""Where the database can tell: an idle worker starts a job at once, long before it would have polled."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pytest

from conftest import wait_for
from databases import Database
from dibs import ops
from worker.harness import Site, WorkerProcess, holds
from worker.program import Program
from worker.users import users_connection

#: So long (seconds) after its last job an idle worker is asleep, and will not look again for another second.
AT_REST = 1.9


def worker_at_rest(site: Site[Program]) -> WorkerProcess:
    """Start a worker, give it a job, and let it come to rest."""
    if site.app.dialect.channel is None:
        pytest.skip("this database tells nobody anything")
    worker = site.start()
    assert site.program.note.enqueue(number=1).join(timeout=10) == 1
    holds(lambda: worker.alive, during=AT_REST)
    return worker


def lag(site: Site[Program], job_id: int, since: float) -> float:
    """Return how long it took from a moment until the job started."""
    wait_for(lambda: site.diary.starts()[job_id], every=0.002, what="the job to start")
    return site.diary.entries("start", job=job_id)[0].at - since


def test_a_commit_wakes_an_idle_worker(site: Site[Program]) -> None:
    """A job starts in well under the two seconds after which the worker would have looked: also in a queue that is new
    to it, and one that was enqueued in a user's transaction."""
    worker = worker_at_rest(site)
    note = site.program.note
    before = time.monotonic()
    lags = [lag(site, note.enqueue(number=2).id, before)]
    holds(lambda: worker.alive, during=AT_REST)
    before = time.monotonic()
    lags.append(lag(site, note.using(queue="new").enqueue(number=3).id, before))
    holds(lambda: worker.alive, during=AT_REST)
    with users_connection(site.app) as connection:
        job = note.using(connection=connection).enqueue(number=4)
        before = time.monotonic()
        connection.commit()
    lags.append(lag(site, job.id, before))
    assert statistics.median(lags) < 0.5, lags


def test_a_rollback_wakes_nobody(site: Site[Program]) -> None:
    """What was enqueued and rolled back is not told to anybody; what is committed is told once, however many jobs
    of the queue there are."""
    dialect, note = site.app.dialect, site.program.note
    if dialect.channel is None:
        pytest.skip("this database tells nobody anything")
    listening = site.app.store.open()
    try:
        ops.run(dialect.listen(), listening)
        with users_connection(site.app) as connection:
            note.using(connection=connection).enqueue(number=1)
            connection.rollback()
            assert listening.hear(0.3) == []
            for number in range(20):
                note.using(connection=connection, queue="mail").enqueue(number=number)
            connection.commit()
        (told,) = listening.hear(5)
        assert "mail" in told
        assert listening.hear(0.3) == []
    finally:
        listening.close()


def test_without_notifications(db: Database, tmp_path: Path) -> None:
    """`Dibs(notify=False)` tells nobody; the job is found by polling all the same."""
    with Site(db, tmp_path, Program, notify=False) as site:
        worker_at_rest(site)
        before = time.monotonic()
        job = site.program.note.enqueue(number=3)
        assert lag(site, job.id, before) < site.app.dialect.idle_poll.total_seconds() * 1.5 + 1
