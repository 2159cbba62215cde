"""What can't be enqueued on is refused with a sentence that says what to pass instead, before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from conformance.connections.kind import Kind, done
from conformance.connections.mysql import parameters
from conformance.connections.pairs import on_each
from conformance.connections.sqlalchemy import url
from conformance.hands import Queue
from databases import Database
from dibs.errors import UnsupportedConnection
from dibs.tasks import Task


@pytest.fixture
def task(queue: Queue) -> Task[Any, Any]:
    queue.app.tasks.clear()

    @queue.app.task(name="t", queue="q")
    def take(data: int) -> None: ...

    return take


@on_each()
def test_the_other_kind_of_call(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """An async connection given to `enqueue`, a blocking one to `aenqueue`: it says which call to make."""

    async def scenario() -> None:
        async with kind.open(queue.db) as user:
            await done(user.begin())
            using = task.using(connection=user.connection)
            calls = [task.call(data=1)]
            if kind.is_async:
                with pytest.raises(UnsupportedConnection, match="aenqueue"):
                    using.enqueue(data=1)
                with pytest.raises(UnsupportedConnection, match="await"):
                    queue.app.enqueue_many(calls, connection=user.connection)
            else:
                with pytest.raises(UnsupportedConnection, match="blocking"):
                    await using.aenqueue(data=1)
                with pytest.raises(UnsupportedConnection, match="blocking"):
                    await queue.app.aenqueue_many(calls, connection=user.connection)
            await done(user.commit())

    kind.run(scenario())
    assert queue.statuses() == {}


@on_each()
def test_a_connection_to_another_kind_of_database(kind: Kind, db: Database, tmp_path: Path) -> None:
    """Jobs go into the database that the app was made for, or nowhere."""
    from dibs import Dibs

    elsewhere = Dibs("postgresql://nowhere/x" if db.kind == "sqlite" else f"sqlite:///{tmp_path / 'other.db'}")

    @elsewhere.task(name="t")
    def take(data: int) -> None: ...

    async def scenario() -> None:
        async with kind.open(db) as user:
            await done(user.begin())
            with pytest.raises(UnsupportedConnection, match="another kind of database"):
                await user.enqueue(take.using(connection=user.connection), data=1)

    kind.run(scenario())


@on_each(lambda kind: kind.name not in ("asyncpg-pool", "django") and "session" not in kind.name)
def test_a_closed_connection(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """It is said that it is closed. (Sessions, and Django, connect again by themselves.)"""

    async def scenario() -> None:
        async with kind.open(queue.db) as user:
            connection = user.connection
            await done(connection.close())
            with pytest.raises(UnsupportedConnection, match="not open"):
                await user.enqueue(task.using(connection=connection), data=1)

    kind.run(scenario())


def test_a_pool(queue: Queue, task: Task[Any, Any]) -> None:
    """A pool can't say which transaction is meant; neither can an engine, nor what makes sessions."""

    async def scenario() -> None:
        for pool in pools(queue.db):
            with pytest.raises(UnsupportedConnection, match="pass|not a connection yet"):
                task.using(connection=pool).enqueue(data=1)
            with pytest.raises(UnsupportedConnection, match="pass|not a connection yet"):
                await task.using(connection=pool).aenqueue(data=1)

    asyncio.run(scenario())
    assert queue.statuses() == {}


def pools(db: Database) -> Iterator[Any]:
    """Yield what there is of pools for this database, none of them with an open connection."""
    if db.kind == "postgres" and find_spec("psycopg_pool"):
        import psycopg_pool

        yield psycopg_pool.ConnectionPool(db.url, open=False)
        yield psycopg_pool.AsyncConnectionPool(db.url, open=False)
    if db.kind == "postgres" and find_spec("asyncpg"):
        import asyncpg

        pool = asyncpg.create_pool(db.url, min_size=0)
        yield pool
        yield pool.acquire()
    if db.kind == "mysql" and find_spec("aiomysql"):
        from aiomysql.pool import Pool

        yield Pool(0, 1, False, -1, asyncio.get_running_loop(), **parameters(db, database="db"))  # type: ignore[abstract]
    if db.kind == "mysql" and find_spec("asyncmy"):
        from asyncmy.pool import Pool as AsyncmyPool

        yield AsyncmyPool(0, 1, **parameters(db, database="db"))
    if find_spec("sqlalchemy"):
        from sqlalchemy import create_engine
        from sqlalchemy.orm import sessionmaker

        engine = create_engine(
            url(db, {"postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}.get(db.kind, "sqlite"))
        )
        yield engine
        yield sessionmaker(engine)
        engine.dispose()
