"""Cancelling what runs, and sending round again what has ended."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import wait_for
from databases import Database
from dibs import Fail, Release, Retry, current_job
from dibs.errors import JobCancelled
from worker.harness import Site
from worker.program import GLANCE, Program

#: Within so many seconds an async task has learnt that it is to end.
SOON = 2.0


class Obstinate(Program):
    """Tasks that learn that they are to be cancelled, and do something else."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)
        diary = self.diary

        def go_on(how: str) -> str:
            match how:
                case "fail":
                    raise ValueError("I won't")
                case "Retry":
                    raise Retry(delay=0.0)
                case "Release":
                    raise Release(delay=0.0)
                case "Fail":
                    raise Fail("I won't")
            return "done, whatever you say"

        @self.app.task(name="obstinate")
        def obstinate(how: str) -> str:
            with diary.run():
                while not current_job().cancel_requested:
                    time.sleep(GLANCE)
                return go_on(how)

        @self.app.task(name="aobstinate")
        async def aobstinate(how: str) -> str:
            with diary.run():
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    return go_on(how)
                return "was not cancelled"

        self.obstinate, self.aobstinate = obstinate, aobstinate


@pytest.fixture
def obstinate(db: Database, tmp_path: Path) -> Iterator[Site[Obstinate]]:
    with Site(db, tmp_path, Obstinate) as site:
        yield site


def test_a_running_job_that_is_cancelled(site: Site[Program]) -> None:
    """An async task is cancelled where it waits; code in a thread is told, and goes on as long as it likes. Both
    jobs end cancelled."""
    site.start(concurrency=2, lease=60.0)
    job, thread = site.program.agate.enqueue("never"), site.program.watch.enqueue("end")
    site.wait_started(job.id, thread.id)
    assert site.app.cancel([job.id, thread.id, 2**40], reason="no need") == [job.id, thread.id]
    (ended,) = site.wait_ended(job.id, within=SOON)
    assert (ended.status, ended.attempts, ended.result) == ("cancelled", 1, None)
    assert [entry.detail for entry in site.diary.entries("raised", job=job.id)] == ["CancelledError"]
    with pytest.raises(JobCancelled):
        job.join(timeout=1)

    wait_for(lambda: site.diary.entries("cancel_requested", job=thread.id), within=SOON, what="the thread to be told")
    assert site.job(thread.id).status == "running"
    site.open("end")
    (ended,) = site.wait_ended(thread.id, within=SOON)
    assert (ended.status, ended.attempts) == ("cancelled", 1)
    assert site.app.cancel([job.id, thread.id]) == []


def test_whatever_a_cancelled_task_does(obstinate: Site[Obstinate]) -> None:
    """It returns, fails, asks for another attempt, to be released or failed: it ends cancelled, and runs once."""
    ways = ["return", "fail", "Retry", "Release", "Fail"]
    tasks = obstinate.program
    jobs = [task.enqueue(how=how).id for task in (tasks.obstinate, tasks.aobstinate) for how in ways]
    worker = obstinate.start(concurrency=5)
    obstinate.wait_started(*jobs)
    assert obstinate.app.cancel(jobs) == jobs
    assert {job.status for job in obstinate.wait_ended(jobs, within=5)} == {"cancelled"}
    assert worker.complaints() == [], "nobody says that it will be tried again"
    assert obstinate.diary.starts() == dict.fromkeys(jobs, 1)
    assert worker.alive


def test_jobs_that_wait_or_are_held(site: Site[Program]) -> None:
    """A ready job is cancelled at once; one that is claimed ahead as soon as its worker learns of it. Neither runs."""
    worker = site.start(concurrency=1)
    first, held, gate = site.start_one_and_hold_five()
    waiting = site.program.note.using(delay=60).enqueue()
    ids = [*held, waiting.id]
    assert site.app.cancel(ids) == ids
    assert site.job(waiting.id).status == "cancelled"
    assert {job.status for job in site.wait_ended(ids, within=5)} == {"cancelled"}
    assert not site.diary.starts().keys() & set(ids)
    site.open(gate)
    assert site.wait_ended(first)[0].status == "done"
    assert worker.alive


def test_cancel_while_they_end(site: Site[Program]) -> None:
    """Whoever cancels a job that is just ending gets the truth: if the answer names the job it ends cancelled, if
    not it had ended. Fifty times."""
    dice = random.Random(7)
    site.start(concurrency=4)
    task = [site.program.nap, site.program.anap]
    cancelled: set[int] = set()
    ended: set[int] = set()
    for number in range(50):
        job = task[number % 2].enqueue(seconds=0.01)
        wait_for(lambda: site.diary.starts()[job.id], every=0.001, what="the job to start")
        time.sleep(dice.uniform(0.0, 0.03))
        (cancelled if site.app.cancel(job.id) else ended).add(job.id)
    site.wait_ended(cancelled | ended)
    assert {job.status for job in site.jobs(cancelled)} <= {"cancelled"}
    assert {job.status for job in site.jobs(ended)} <= {"done"}
    assert set(site.diary.starts().values()) == {1}
    assert cancelled, "some were caught"
    assert ended, "and some got away"


def test_requeue(site: Site[Program]) -> None:
    """A person sends a cancelled, a failed, and with force a done job round again: its attempts count from 0."""
    cancelled, done = site.program.note.using(delay=60).enqueue(number=1), site.program.note.enqueue(number=2)
    failed = site.program.nap.using(max_attempts=1).enqueue(-1.0)  # which nobody can
    site.app.cancel(cancelled.id)
    site.start(concurrency=2)
    assert [job.status for job in site.wait_ended([cancelled.id, done.id, failed.id])] == [
        "cancelled",
        "done",
        "failed",
    ]

    site.db.execute("""UPDATE dibs_jobs SET payload = '{"seconds":0.0}' WHERE id = :id""", id=failed.id)
    ids = [cancelled.id, done.id, failed.id]
    assert site.app.requeue(ids) == [cancelled.id, failed.id]
    assert [cancelled.join(timeout=10), failed.join(timeout=10)] == [1, None]
    assert site.app.requeue(done.id, force=True) == [done.id]
    wait_for(lambda: site.diary.starts()[done.id] == 2, what="the done job to run again")
    assert done.join(timeout=10) == 2
    assert [(job.status, job.attempts) for job in site.wait_ended(ids)] == [("done", 1)] * 3
