"""A task that takes longer than its `timeout`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import wait_for
from databases import Database
from dibs.retries import Backoff
from worker.harness import Site, holds
from worker.program import Program


class Impatient(Program):
    """The tasks that wait for a gate, with a timeout."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)
        quick = Backoff(first=0.01, factor=1.0, cap=0.01, jitter=0.0)
        self.hurried = self.app.task(name="hurried", timeout=0.3, backoff=quick, max_attempts=2)(self.gate.function)
        self.ahurried = self.app.task(name="ahurried", timeout=0.3, backoff=quick, max_attempts=2)(self.agate.function)


@pytest.fixture
def impatient(db: Database, tmp_path: Path) -> Iterator[Site[Impatient]]:
    with Site(db, tmp_path, Impatient) as site:
        yield site


def test_an_async_task_out_of_time(impatient: Site[Impatient]) -> None:
    """It is cancelled, which is a failed attempt like any other: tried again, and failed in the end."""
    impatient.start(concurrency=1)
    job = impatient.program.ahurried.enqueue("never")
    (ended,) = impatient.wait_ended(job.id)
    assert (ended.status, ended.attempts) == ("failed", 2)
    assert ended.error == "timed out after 0.3 s (attempt 2 of 2)"
    assert [entry.detail for entry in impatient.diary.entries("raised")] == ["CancelledError"] * 2
    again = impatient.program.ahurried.enqueue("open")
    impatient.open("open")
    assert again.join(timeout=10) == "open", "in time is in time"


def test_a_thread_out_of_time(impatient: Site[Impatient]) -> None:
    """A thread can't be stopped: its attempt counts as failed, its slot stays taken until its code ends, and what it
    returns then is dropped."""
    worker = impatient.start(concurrency=1)
    job = impatient.program.hurried.using(max_attempts=1).enqueue("late")
    (ended,) = impatient.wait_ended(job.id, within=5)
    assert (ended.status, ended.attempts) == ("failed", 1)
    assert ended.error == "timed out after 0.3 s (attempt 1 of 1)"
    assert not impatient.diary.entries("end")

    waiting = impatient.program.note.enqueue(number=1)
    holds(lambda: impatient.job(waiting.id).status == "ready", during=0.7)
    impatient.open("late")
    assert waiting.join(timeout=10) == 1
    wait_for(
        lambda: worker.lines("WARNING", f"job {job.id}", "too late"), within=5, what="a word about the late result"
    )
    assert impatient.job(job.id) == ended, "nothing has changed about it"


def test_a_thread_out_of_time_whose_job_is_tried_again(impatient: Site[Impatient]) -> None:
    """The second attempt takes another slot, and its result counts, not the late one of the first."""
    impatient.start(concurrency=2)
    job = impatient.program.hurried.enqueue("open")
    wait_for(lambda: impatient.diary.starts()[job.id] == 2, within=10, what="the second attempt")
    impatient.open("open")
    (ended,) = impatient.wait_ended(job.id)
    assert (ended.status, ended.attempts, ended.result) == ("done", 2, "open")


def test_stuck_slots_are_seen(impatient: Site[Impatient]) -> None:
    """A slot whose code goes on although its job is over is counted, in the answers to probes, which say so where there
    are no others; when the code ends the slot is free."""
    if impatient.db.name != "sqlite":
        pytest.skip("what is counted in a worker does not depend on the database")
    with impatient.app.worker(concurrency=1) as worker:
        (ended,) = impatient.wait_ended(impatient.program.hurried.using(max_attempts=1).enqueue("late").id)
        assert ended.status == "failed"
        wait_for(lambda: worker.health.live().facts["stuck"] == 1, within=5, what="the slot to be counted")
        assert worker.health.live().ok
        assert "every slot for threads (1) is taken" in worker.health.ready().reason
        assert impatient.program.anote.enqueue(number=3).join(timeout=10) == 3, "other slots are free"
        impatient.open("late")
        wait_for(lambda: worker.health.ready().ok, within=5, what="the slot to be free")
        assert worker.health.ready().facts["stuck"] == 0
