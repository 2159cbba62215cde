"""Bulks of more rows than a statement has room for: all of it, in order, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.hands import Queue
from dibs.errors import InvalidArgument
from dibs.tasks import Task


@pytest.fixture
def task(queue: Queue) -> Task[Any, Any]:
    queue.app.tasks.clear()

    @queue.app.task(name="t", queue="q")
    def take(number: int, text: str = "") -> None: ...

    return take


@pytest.mark.parametrize("number", [8_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_bulk_beyond_all_limits(queue: Queue, task: Task[Any, Any], number: int) -> None:
    """More values than the 65,535 that a statement may have, with keys and without, from a generator: each job is stored
    with its own id, in order; of equal keys one. One that does not fit is named, and nothing is stored."""
    wrong = number * 3 // 4

    def calls(*, fits: bool) -> Iterator[Any]:
        for n in range(number):
            using = task.using(key=f"k{n % (number // 8)}", priority=n % 3) if n % 8 == 7 else task
            yield using.call(number=n if fits or n != wrong else object())  # type: ignore[arg-type]

    with pytest.raises(InvalidArgument, match=rf"\[{wrong}\]\.number"):
        queue.app.enqueue_many(calls(fits=False))
    assert (queue.count("dibs_jobs"), queue.count("dibs_keys")) == (0, 0)

    jobs = queue.app.enqueue_many(calls(fits=True))
    stored = dict(queue.fetch("SELECT id, payload FROM dibs_jobs"))
    assert len(jobs) == number
    first: dict[str, int] = {}
    for n, job in enumerate(jobs):
        if n % 8 == 7:
            key = f"k{n % (number // 8)}"
            assert job.created == (key not in first)
            assert first.setdefault(key, job.id) == job.id
        if job.created:
            assert stored[job.id] == f'{{"number":{n}}}', n
    assert len(stored) == sum(job.created for job in jobs)
    plain = [job.id for n, job in enumerate(jobs) if n % 8 != 7]
    assert plain == sorted(plain)
