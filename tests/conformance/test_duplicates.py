"""Duplicates: recorded, counted, told to whoever reads the log, and folded by upkeep."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from conformance.hands import Queue, new_job, run_in
from dibs.jobs import Enqueued
from dibs.states import State
from dibs.tasks import Task


@pytest.fixture
def task(queue: Queue) -> Task[Any, Any]:
    queue.app.tasks.clear()

    @queue.app.task(name="t", queue="q")
    def take(data: Any) -> None: ...

    return take


def test_the_first_job_is_returned(queue: Queue, task: Task[Any, Any]) -> None:
    """`created` is False, the id is that of the first job, and nothing else is written."""
    first = task.using(key="k").enqueue(data=1)
    again = task.using(key="k", queue="elsewhere", priority=7, max_attempts=1, delay=60).enqueue(data=1)
    assert (first.created, again.created, again.id) == (True, False, first.id)
    record = queue.record(first.id)
    assert (record.queue, record.priority, record.max_attempts) == ("q", 0, 12)
    assert list(queue.statuses()) == [first.id]


def test_duplicates_are_counted_with_the_job(queue: Queue, task: Task[Any, Any]) -> None:
    """Each refused enqueue counts, those within one bulk too; other jobs are not charged for it."""
    first, other = task.using(key="k").enqueue(data=1), task.using(key="other").enqueue(data=1)
    for _ in range(3):
        task.using(key="k").enqueue(data=1)
    queue.app.enqueue_many(task.using(key="k").call(data=1) for _ in range(4))
    assert queue.record(first.id).duplicates == 7
    assert queue.record(other.id).duplicates == 0


@pytest.mark.parametrize("same", [True, False])
def test_other_arguments_are_warned_of(
    queue: Queue, task: Task[Any, Any], caplog: pytest.LogCaptureFixture, same: bool
) -> None:
    """The same arguments are no news; others are dropped, and somebody should know."""
    first = task.using(key="k").enqueue(data={"text": "ü", "n": 2**64})
    with caplog.at_level(logging.INFO, "dibs"):
        task.using(key="k").enqueue(data={"text": "ü", "n": 2**64 + (not same)})
    (record,) = caplog.records
    assert record.levelno == (logging.INFO if same else logging.WARNING)
    assert f"duplicate of job {first.id}" in record.message
    assert "'k'" in record.message


def test_a_bulk_tells_which_differ(queue: Queue) -> None:
    """Each duplicate is compared with the job that holds its key, not with its neighbours."""
    held = queue.add(key="held", payload={"n": 1})
    answers = queue.enqueue(
        new_job(key="held", payload={"n": 1}),
        new_job(key="held", payload={"n": 2}),
        new_job(key="new", payload={"n": 2}),
        new_job(key="new", payload={"n": 2}),
        new_job(key="new", payload={"n": 1}),
    )
    new = answers[2].id
    assert answers == [
        Enqueued(held, False, differs=False),
        Enqueued(held, False, differs=True),
        Enqueued(new, True),
        Enqueued(new, False, differs=False),
        Enqueued(new, False, differs=True),
    ]


def fold(queue: Queue, limit: int = 100) -> int:
    return queue.do(lambda: queue.dialect.fold(limit=limit))


def test_folding_keeps_the_counts(queue: Queue) -> None:
    """One row a job is left, with the same sum; folding what is folded changes nothing."""
    jobs = [queue.add(key=key) for key in "abc"]
    for key in "aaabb":
        queue.enqueue(new_job(key=key))
    assert [queue.record(job).duplicates for job in jobs] == [3, 2, 0]
    assert fold(queue)
    assert [queue.record(job).duplicates for job in jobs] == [3, 2, 0]
    assert queue.count("dibs_duplicates") == 2
    assert fold(queue) == 0
    queue.enqueue(new_job(key="a"))
    assert fold(queue)
    assert [queue.record(job).duplicates for job in jobs] == [4, 2, 0]
    assert queue.count("dibs_duplicates") == 2


def test_folding_comes_to_an_end_in_small_bites(queue: Queue) -> None:
    """With a small limit, over and over, everything is folded as far as it goes."""
    jobs = [queue.add(key=str(n)) for n in range(7)]
    for n in range(7):
        for _ in range(3):
            queue.enqueue(new_job(key=str(n)))
    bites = 0
    while fold(queue, limit=3):
        bites += 1
    assert bites == 3
    assert queue.count("dibs_duplicates") == 7
    assert [queue.record(job).duplicates for job in jobs] == [3] * 7


def test_folding_skips_what_somebody_holds(locking: Queue) -> None:
    """An enqueue that is still open is not waited for, and what it recorded is not lost."""
    queue = locking
    job = queue.add(key="k")
    queue.enqueue(new_job(key="k"))
    with queue.transaction(undone=False) as user:
        run_in(user, queue.dialect.enqueue([new_job(key="k")], tell=False))
        fold(queue)
        assert queue.record(job).duplicates == 1
    assert queue.record(job).duplicates == 2
    fold(queue)
    assert queue.record(job).duplicates == 2
    assert queue.count("dibs_duplicates") == 1


def test_a_duplicate_of_a_done_job_is_counted_too(queue: Queue) -> None:
    """A replay after completion: the work is not done again, and it can be seen that it was asked for."""
    job = queue.job_in(State.DONE, key="k")
    (again,) = queue.enqueue(new_job(key="k"))
    assert (again.id, again.created) == (job, False)
    assert queue.record(job).duplicates == 1
    assert queue.claim() == []
