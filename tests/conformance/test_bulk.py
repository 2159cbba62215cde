"""Bulk enqueue: many calls, all or none of them, from a list or a generator."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from conformance.connections.kind import Kind, done
from conformance.connections.pairs import on_each
from conformance.hands import Queue
from conformance.test_locks import WHOLE_TABLE
from dibs.bulk import CHUNK_BYTES, MOST_KEPT, Bulk
from dibs.errors import ConfigurationError, DatabaseUnavailable, InvalidArgument
from dibs.ops import Execute
from dibs.tasks import Call, Task


@pytest.fixture
def task(queue: Queue) -> Task[Any, Any]:
    queue.app.tasks.clear()

    @queue.app.task(name="t", queue="q")
    def take(order_id: int, note: str = "") -> None: ...

    return take


def test_none(queue: Queue, task: Task[Any, Any]) -> None:
    """Nothing to write is nothing to do."""
    assert queue.app.enqueue_many([]) == []
    assert queue.app.enqueue_many(iter(())) == []


def test_jobs_come_in_the_order_of_the_calls(queue: Queue, task: Task[Any, Any]) -> None:
    """More of them than one statement takes, each with its own options, from a generator that is read as it goes."""
    number = 2 * queue.dialect.chunk + 3 if queue.dialect.chunk < 1000 else 2000
    read: list[int] = []

    def calls() -> Iterator[Call[Any]]:
        for n in range(number):
            read.append(n)
            yield task.using(priority=n % 3, queue=f"q{n % 2}", max_attempts=n + 1).call(order_id=n)

    jobs = queue.app.enqueue_many(calls())
    assert read == list(range(number))
    assert [job.created for job in jobs] == [True] * number
    records = {record.id: record for record in queue.app.jobs(limit=number)}
    for n, job in enumerate(jobs):
        record = records[job.id]
        assert (record.payload, record.priority, record.queue) == ({"order_id": n}, n % 3, f"q{n % 2}")
        assert record.max_attempts == n + 1
    assert [job.id for job in jobs] == sorted(job.id for job in jobs)


def test_the_same_rows_whichever_way(queue: Queue, task: Task[Any, Any]) -> None:
    """Jobs that are alike take a statement of their own, as a single one does: what it writes is what the others write."""
    texts = ["", "ü\U0001f600", 'a"b\\', "%s :id {now}", "x" * 5000]
    like = task.using(priority=3, max_attempts=2, retention=60.0)
    alike = queue.app.enqueue_many([like.call(n, note) for n, note in enumerate(texts)])
    odd = task.using(delay=3600.0).call(order_id=9)
    mixed = queue.app.enqueue_many([*(like.call(n, note) for n, note in enumerate(texts)), odd])
    alone = [like.enqueue(n, note) for n, note in enumerate(texts)]
    columns = "queue, task, payload, priority, max_attempts, retention, status, attempts, claims, task_key, meta"
    rows = {row[0]: row[1:] for row in queue.fetch(f"SELECT id, {columns}, run_at <= created_at FROM dibs_jobs")}
    for jobs in (mixed[:-1], alone):
        assert [rows[job.id] for job in jobs] == [rows[job.id] for job in alike]
    assert [queue.app.job(job.id).payload for job in alike] == [
        {"order_id": n, "note": note} for n, note in enumerate(texts)
    ]
    assert len(queue.claim(priority=3, limit=100)) == 3 * len(texts)


@pytest.mark.parametrize("place", [0, 1, 7, 1500])
def test_a_call_that_does_not_fit(queue: Queue, task: Task[Any, Any], place: int) -> None:
    """Named by its number and its argument; nothing is stored then, however far the others had come."""

    def calls() -> Iterator[Call[Any]]:
        for n in range(place):
            yield task.call(order_id=n, note="x" * 1000)
        yield task.call(order_id="seven")
        raise AssertionError("nobody reads on")

    with pytest.raises(InvalidArgument) as caught:
        queue.app.enqueue_many(calls())
    assert caught.value.path == f"[{place}].order_id"
    assert queue.statuses() == {}
    assert task.enqueue(order_id=1).created, "the connection is as good as before"


def test_what_is_no_call(queue: Queue, task: Task[Any, Any]) -> None:
    """It says how to make one."""
    with pytest.raises(InvalidArgument, match=r"\[1\].*task\.call"):
        queue.app.enqueue_many([task.call(order_id=1), {"order_id": 2}])  # type: ignore[list-item]
    other = queue.db.app()
    foreign = other.task(name="foreign")(lambda: None)
    with pytest.raises(ConfigurationError, match="belongs to"):
        queue.app.enqueue_many([task.call(order_id=1), foreign.call()])
    assert queue.statuses() == {}


def test_a_generator_that_breaks(queue: Queue, task: Task[Any, Any]) -> None:
    """The user's own error comes through, and nothing was stored."""

    def calls() -> Iterator[Call[Any]]:
        for n in range(3000):
            yield task.using(key=f"k{n}").call(order_id=n, note="x" * 500)
        raise LookupError("no more orders")

    with pytest.raises(LookupError, match="no more orders"):
        queue.app.enqueue_many(calls())
    assert queue.statuses() == {}
    assert queue.keys() == {}


def test_calls_are_read_while_the_database_writes(queue: Queue, task: Task[Any, Any]) -> None:
    """The third part of a bulk is read, by the thread that asked for it, while the first is being written: here that waits
    until somebody lets go of the table, which they do once the third part is read."""
    if not queue.db.locks_rows:
        pytest.skip("nobody can be waited for in the midst of a transaction")
    together = CHUNK_BYTES // 5_000
    threads: set[int] = set()
    with closing(queue.db.connect()) as other:
        other.begin()
        other.answer(Execute(WHOLE_TABLE[queue.db.kind], {}))

        def calls() -> Iterator[Call[Any]]:
            for n in range(4 * together):
                threads.add(threading.get_ident())
                if n == 2 * together:
                    other.rollback()
                    if queue.db.kind == "mysql":
                        other.answer(Execute("UNLOCK TABLES", {}))
                yield task.call(order_id=n, note="x" * 5_000)

        jobs = queue.app.enqueue_many(calls())
    payloads = {record.id: record.payload["order_id"] for record in queue.app.jobs(limit=len(jobs))}
    assert [payloads[job.id] for job in jobs] == list(range(4 * together))
    assert threads == {threading.get_ident()}


@on_each(lambda kind: kind.name in ("psycopg", "PyMySQL", "sqlite3"))
def test_one_connection_for_all(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """Given to the bulk or to its calls, but the same for all of them."""

    async def scenario() -> None:
        async with kind.open(queue.db) as user, kind.open(queue.db) as other:
            mine = task.using(connection=user.connection)
            with pytest.raises(InvalidArgument, match=r"\[1\]\.connection"):
                queue.app.enqueue_many(
                    [mine.call(order_id=1), task.using(connection=other.connection).call(order_id=2)]
                )
            with pytest.raises(InvalidArgument, match=r"\[0\]\.connection"):
                queue.app.enqueue_many([mine.call(order_id=1)], connection=other.connection)
            with pytest.raises(InvalidArgument, match=r"\[1\]\.connection"):
                queue.app.enqueue_many([task.call(order_id=1), mine.call(order_id=2)])
            jobs = queue.app.enqueue_many([mine.call(order_id=1), task.call(order_id=2)])
            assert queue.statuses() == {}
            await done(user.commit())
            assert sorted(queue.statuses()) == [job.id for job in jobs]

    kind.run(scenario())


@on_each(lambda kind: kind.database == "mysql" and not kind.name.startswith(("sqlalchemy", "django")))
def test_ids_that_go_in_steps(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """In a cluster each server counts in steps of its own: every job is returned with its own id all the same."""

    async def scenario() -> list[Any]:
        async with kind.open(queue.db) as user:
            await done(user.execute("SET SESSION auto_increment_increment = 7, SESSION auto_increment_offset = 3"))
            await done(user.begin())
            calls = [(task.using(key=f"k{n}") if n % 2 else task).call(order_id=n) for n in range(250)]
            jobs: list[Any] = await user.enqueue_many(queue.app, calls)
            await done(user.commit())
            return jobs

    jobs = kind.run(scenario())
    payloads = {record.id: record.payload["order_id"] for record in queue.app.jobs(limit=500)}
    assert [payloads[job.id] for job in jobs] == list(range(250))


def test_a_long_generator_is_not_kept(queue: Queue, task: Task[Any, Any]) -> None:
    """Of a bulk that is longer than what would be written again only ids stay; tried again it says that it can't be."""
    if queue.db.locks_rows:
        pytest.skip("has nothing to do with the database")
    number, text = MOST_KEPT + 60_000, "x" * 1000
    bulk = Bulk(queue.app, (task.call(order_id=n, note=text) for n in range(number)), None)
    tracemalloc.start()
    try:
        jobs = bulk.jobs(queue.app.store.run(bulk.op, once=True))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [job.id for job in jobs] == sorted(job.id for job in jobs)
    assert len(jobs) == queue.count("dibs_jobs") == number
    assert most < 2.5 * MOST_KEPT * len(text)
    with pytest.raises(DatabaseUnavailable, match="nothing was enqueued"):
        next(bulk.op())
