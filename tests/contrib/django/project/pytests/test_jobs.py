"""The fixture `dibs_jobs` in a project's own tests, run by pytest with pytest-django."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction
from django.test import TestCase
from shop import tasks
from shop.models import Note, Order

from dibs import current_job
from dibs.contrib.django import app
from dibs.contrib.django.models import Job
from dibs.contrib.django.testing import forget_jobs
from dibs.testing import Jobs


def committed() -> int:
    """Return how many jobs somebody else sees; none where nobody else can look: in memory, or at a file that is locked."""
    if connection.vendor == "sqlite" and (connection.in_atomic_block or connection.is_in_memory_db()):
        return 0
    alone = app.new_store()
    try:
        return sum(sum(counts.values()) for counts in alone.run(app.dialect.counts).values())
    finally:
        alone.close()


@pytest.mark.django_db
def test_in_the_tests_transaction(dibs_jobs: Any) -> None:
    """Sync and async tasks run with the ORM in the transaction that is rolled back; nothing is committed."""
    Order.objects.create()
    tasks.send_receipt.using(delay=60, key="7").enqueue(7)
    counted = tasks.count_orders.using(own=True).enqueue()
    (receipt,) = dibs_jobs.enqueued(tasks.send_receipt)
    assert (receipt.arguments, receipt.key, receipt.queue) == ({"order_id": 7}, "7", "mail")
    assert [ran.result for ran in dibs_jobs.run()] == [1]
    assert counted.join(1) == 1
    dibs_jobs.clock.move(minutes=2)
    assert [ran.result for ran in dibs_jobs.run()] == ["sent 7"]
    assert Note.objects.get().text == "receipt 7"
    assert Job.objects.filter(status="done").count() == 2
    assert committed() == 0


@pytest.mark.django_db
def test_the_frameworks_own_tasks(dibs_jobs: Any) -> None:
    """Those of django.tasks are seen and run alike; one that raises fails the test."""
    result = tasks.add.enqueue(1, b=2)
    tasks.double.enqueue(4)
    assert len(dibs_jobs.enqueued(tasks.add)) == 1
    assert [ran.result for ran in dibs_jobs.run()] == [3, 8]
    result.refresh()
    assert result.return_value == 3
    tasks.decline.enqueue("visa")
    with pytest.raises(ValueError, match="no visa"):
        dibs_jobs.run()
    assert committed() == 0


@pytest.mark.django_db
def test_an_async_tasks_checkpoint(dibs_jobs: Any) -> None:
    """It is written over the connection of the test's thread."""

    @app.task(name="keeps")
    async def keeps() -> int:
        await current_job().acheckpoint({"page": 3})
        return int(current_job().last_checkpoint["page"])

    try:
        keeps.enqueue()
        assert [ran.result for ran in dibs_jobs.run()] == [3]
    finally:
        del app.tasks["keeps"]


@pytest.mark.django_db
def test_a_block_that_is_rolled_back(dibs_jobs: Any) -> None:
    """What a block takes away is not among the jobs."""
    with pytest.raises(LookupError), transaction.atomic():
        tasks.send_receipt.enqueue(1)
        raise LookupError
    assert dibs_jobs.enqueued() == []


def test_with_real_commits(transactional_db: None, dibs_jobs: Any) -> None:
    """With transactional_db jobs are committed, and run all the same."""
    forget_jobs()
    tasks.send_receipt.using(key="8").enqueue(8)
    if not (connection.vendor == "sqlite" and connection.is_in_memory_db()):
        assert committed() == 1
    assert [ran.result for ran in dibs_jobs.run()] == ["sent 8"]
    forget_jobs()


class InATestCase(TestCase):
    """As a context manager, which takes no plugin."""

    def test_jobs(self) -> None:
        """The same in a test case."""
        with Jobs(app) as jobs:
            tasks.send_receipt.enqueue(9)
            assert [ran.result for ran in jobs.run()] == ["sent 9"]

    async def test_in_async_code(self) -> None:
        """And in an async test."""
        with Jobs(app) as jobs:
            await tasks.send_receipt.aenqueue(9)
            await tasks.count_orders.aenqueue()
            assert [ran.result for ran in await jobs.arun()] == ["sent 9", 0]


def test_inline(db: None) -> None:
    """An inline app runs jobs in the transaction they are enqueued in."""
    app.inline = True
    try:
        assert tasks.send_receipt.enqueue(3).join() == "sent 3"
        assert tasks.count_orders.enqueue().join() == 0
        assert Job.objects.filter(status="done").count() == 2
    finally:
        app.inline = False
    assert committed() == 0
