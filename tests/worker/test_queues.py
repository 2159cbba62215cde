"""Which jobs a worker takes, and in which order: queues, priorities, pauses, tasks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from conftest import wait_for
from worker.harness import Site, holds
from worker.program import Program


class Other(Program):
    """An app with a task that the usual program does not know."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)
        self.app.tasks.clear()
        diary = self.diary

        @self.app.task(name="mystery")
        def mystery(number: int = 0) -> int:
            with diary.run():
                return number

        self.mystery = mystery


def other_site(site: Site[Program], folder: Path) -> Site[Other]:
    (folder / "other").mkdir()
    return Site(site.db, folder / "other", Other)


def test_nothing_of_a_paused_queue_starts(site: Site[Program]) -> None:
    """From one poll after the pause nothing of the queue starts, on any worker, not even what was claimed ahead; what
    runs goes on, other queues too; and all goes on when it is resumed."""
    nap = site.program.nap.using(queue="p")
    jobs = [job.id for job in site.app.enqueue_many(nap.call(seconds=0.01) for _ in range(3_000))]
    site.start_many(2, concurrency=2)
    wait_for(lambda: len(site.diary.entries("start")) > 100, every=0.005, what="the workers to be in full swing")
    assert site.app.pause("p")
    # One poll, and as long again as a step of a busy fetcher may take on a busy machine.
    one_poll = time.monotonic() + site.app.dialect.idle_poll.total_seconds() + 0.5
    assert site.program.note.enqueue(number=5).join(timeout=10) == 5
    wait_for(lambda: time.monotonic() > one_poll and not site.running(), within=8, what="them to come to rest")
    started = len(site.diary.entries("start"))
    assert started < len(jobs) / 2
    holds(lambda: len(site.diary.entries("start")) == started, during=0.5)
    assert not any(entry.at > one_poll for entry in site.diary.entries("start") if entry.job in jobs)
    assert site.app.resume("p")
    wait_for(lambda: len(site.diary.entries("start")) > started + 100, what="the queue to go on")
    assert set(site.diary.starts().values()) == {1}


def test_held_jobs_of_a_paused_queue(site: Site[Program]) -> None:
    """Jobs that were claimed ahead are given back when their queue is paused, long before they waited too long."""
    if site.db.name != "sqlite":
        pytest.skip("how soon a pause is read does not depend on the database")
    site.start(concurrency=1)
    _, held, gate = site.start_one_and_hold_five()
    site.app.pause("default")
    wait_for(lambda: not site.held(), within=0.7, every=0.01, what="the held jobs to be given back")
    site.open(gate)
    wait_for(lambda: not site.running(), within=5)
    assert not site.diary.starts().keys() & set(held)


def test_higher_priorities_first(site: Site[Program]) -> None:
    """Within a queue strictly by priority, then by time."""
    order = [0, 5, -3, 5, 32_767, 0, -32_767]
    jobs = site.app.enqueue_many(site.program.note.using(priority=priority).call(number=priority) for priority in order)
    site.start(concurrency=1)
    site.wait_ended([job.id for job in jobs])
    started = [entry.job for entry in site.diary.entries("start")]
    assert started == [
        job.id for _, job in sorted(zip(order, jobs, strict=True), key=lambda pair: (-pair[0], pair[1].id))
    ]


def test_queues_in_the_order_of_the_list(site: Site[Program]) -> None:
    """A worker with a list of queues empties the first before it looks at the second, and takes nothing else."""
    queues = ["a", "b", "c"]
    jobs = {
        queue: [
            job.id
            for job in site.app.enqueue_many(site.program.note.using(queue=queue).call(number=n) for n in range(5))
        ]
        for queue in queues
    }
    site.start(concurrency=1, queues=["b", "a"])
    site.wait_ended(jobs["a"] + jobs["b"])
    assert [entry.job for entry in site.diary.entries("start")] == jobs["b"] + jobs["a"]
    assert {(job.status, job.claims) for job in site.jobs(jobs["c"])} == {("ready", 0)}


def test_queues_in_turns(site: Site[Program]) -> None:
    """A worker without a list serves all queues in turns: a long one does not keep a short one waiting."""
    calls = [site.program.nap.using(queue=queue).call(seconds=0.1) for queue in ["long"] * 20 + ["short"] * 2]
    jobs = [job.id for job in site.app.enqueue_many(calls)]
    site.start(concurrency=1)
    site.wait_started(*jobs[-2:])
    assert len(site.diary.starts()) < 12


def test_unknown_tasks(site: Site[Program], tmp_path: Path) -> None:
    """A task that a worker does not know is left alone, and named in its log: once. What waits behind it is done."""
    with other_site(site, tmp_path) as other:
        unknown = [other.program.mystery.enqueue().id for _ in range(3)]
        worker = site.start(concurrency=1)
        assert site.program.note.enqueue(number=4).join(timeout=10) == 4
        wait_for(lambda: worker.lines("mystery"), what="a word about the unknown task")
        holds(lambda: len(worker.complaints()) == 1, during=1)
        assert {(job.status, job.attempts, job.claims) for job in site.jobs(unknown)} == {("ready", 0, 0)}


def test_two_programs_on_one_queue(site: Site[Program], tmp_path: Path) -> None:
    """Two programs with different tasks share a queue: each does its own jobs, all get done."""
    with other_site(site, tmp_path) as other:
        mine, theirs = [], []
        for number in range(30):
            mine.append(site.program.note.enqueue(number=number).id)
            theirs.append(other.program.mystery.enqueue(number=number).id)
        site.start(concurrency=2)
        other.start(concurrency=2)
        site.wait_ended(mine + theirs)
        assert site.diary.starts() == dict.fromkeys(mine, 1)
        assert other.diary.starts() == dict.fromkeys(theirs, 1)


def test_both_kinds_of_task_in_one_queue(site: Site[Program]) -> None:
    """Async jobs that had to wait for a slot are not passed over for ever, because jobs for threads that came later
    have been claimed meanwhile."""
    site.start(concurrency=1)
    gate = site.program.agate.enqueue("free")
    site.wait_started(gate.id)
    waiting = [site.program.anote.enqueue(number=n).id for n in range(3)]
    site.wait_ended(site.program.note.enqueue(number=n).id for n in range(5))
    assert not site.diary.starts().keys() & set(waiting)
    site.open("free")
    site.wait_ended(waiting, within=5)
