"""A connection to a server that takes no writes: a user's is left alone, one of dibs' own is made anew."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.connections.kind import Kind, done
from conformance.connections.pairs import on_each
from conformance.hands import Queue
from dibs.ops import execute

READ_ONLY = {
    "postgres": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
    "sqlite": "PRAGMA query_only = ON",
}


@on_each(lambda kind: kind.name in ("psycopg", "PyMySQL", "sqlite3"))
def test_an_enqueue_on_a_connection_that_may_only_read(queue: Queue, kind: Kind) -> None:
    """Nothing is closed, rolled back or tried again: the connection and its transaction are the user's."""
    queue.app.tasks.clear()

    @queue.app.task(name="t", queue="q")
    def take(data: int) -> None: ...

    async def scenario() -> Any:
        async with kind.open(queue.db) as user:
            await done(user.begin())
            await done(user.execute(READ_ONLY[queue.db.kind]))
            await done(user.commit())
            await done(user.begin())
            with pytest.raises(Exception, match=r"(?i)read.?only") as caught:
                await user.enqueue(take.using(connection=user.connection), data=1)
            await done(user.rollback())
            return caught.value

    error = kind.run(scenario())
    assert not type(error).__module__.startswith("dibs")
    assert any("takes no writes" in note for note in error.__notes__)
    assert queue.statuses() == {}


def test_an_own_connection_that_may_only_read(queue: Queue) -> None:
    """It leads to the wrong server, such as a primary that is a replica now: it is dropped, and a new one is asked."""
    queue.app.tasks.clear()

    @queue.app.task(name="t", queue="q")
    def take(data: int) -> None: ...

    store = queue.app.store
    store.run(lambda: execute(READ_ONLY[queue.db.kind], alone=True))
    made = store.connections
    take.enqueue(data=1)
    assert store.connections == made + 1
    assert list(queue.statuses().values()) == ["ready"]
