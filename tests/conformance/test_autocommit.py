"""Connections in autocommit mode: what takes one statement is done, what takes more is refused before the first."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.connections.kind import Kind, done
from conformance.connections.pairs import on_each
from conformance.hands import Queue
from dibs.errors import AutocommitConnection
from dibs.tasks import Task

in_autocommit = on_each(lambda kind: kind.autocommit)

#: SQLAlchemy begins by itself or not at all: BEGIN by hand is for the others.
in_autocommit_with_begin = on_each(lambda kind: kind.autocommit and not kind.name.startswith("sqlalchemy"))


def take(data: Any) -> None:
    """The task whose jobs are enqueued; nobody runs it here."""


@pytest.fixture
def task(queue: Queue) -> Task[Any, Any]:
    queue.app.tasks.clear()
    return queue.app.task(name="t", queue="q")(take)


#: Three of these are more than one statement may carry.
LARGE = "x" * 400_000


@in_autocommit
def test_a_job_is_there_at_once(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """One job, or one chunk of them, is one statement, and in autocommit mode that is what was asked for."""

    async def scenario() -> list[int]:
        assert kind.autocommit is not None
        async with kind.autocommit(queue.db) as user:
            one = await user.enqueue(task.using(connection=user.connection), data=1)
            assert list(queue.statuses()) == [one.id]
            many = await user.enqueue_many(queue.app, [task.call(data=n) for n in range(9)])
            assert queue.count("dibs_jobs") == 10
            return [one.id, *(job.id for job in many)]

    ids = kind.run(scenario())
    assert sorted(queue.statuses()) == sorted(ids)


@in_autocommit
def test_a_key_takes_a_transaction(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """With a key it takes several statements, except where the database can do it in one; else it is refused."""

    async def scenario() -> None:
        assert kind.autocommit is not None
        async with kind.autocommit(queue.db) as user:
            using = task.using(connection=user.connection, key="k")
            if queue.dialect.keys_take_a_transaction:
                with pytest.raises(AutocommitConnection, match="key"):
                    await user.enqueue(using, data=1)
                with pytest.raises(AutocommitConnection, match="key"):
                    await user.enqueue_many(queue.app, [task.call(data=1), task.using(key="k").call(data=1)])
                assert queue.statuses() == {}
            else:
                first, again = await user.enqueue(using, data=1), await user.enqueue(using, data=1)
                assert (first.created, again.created, again.id) == (True, False, first.id)
                assert queue.keys() == {"k": first.id}

    kind.run(scenario())


@in_autocommit
def test_a_large_bulk_takes_a_transaction(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """All or nothing can't be promised statement by statement, so nothing is written."""

    async def scenario() -> None:
        assert kind.autocommit is not None
        async with kind.autocommit(queue.db) as user:
            with pytest.raises(AutocommitConnection, match="more than one chunk"):
                await user.enqueue_many(queue.app, (task.call(data=LARGE) for _ in range(4)))

    kind.run(scenario())
    assert queue.statuses() == {}


@in_autocommit_with_begin
@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_that_was_begun_is_one(queue: Queue, kind: Kind, task: Task[Any, Any], commits: bool) -> None:
    """A connection in autocommit mode on which the user began a transaction is not in autocommit mode just now."""

    async def scenario() -> list[Any]:
        assert kind.autocommit is not None
        async with kind.autocommit(queue.db) as user:
            await done(user.begin())
            keyed = await user.enqueue(task.using(connection=user.connection, key="k"), data=1)
            many = await user.enqueue_many(queue.app, (task.call(data=LARGE) for _ in range(4)))
            assert queue.statuses() == {}
            await done(user.commit() if commits else user.rollback())
            return [keyed, *many]

    jobs = kind.run(scenario())
    assert sorted(queue.statuses()) == ([job.id for job in jobs] if commits else [])
