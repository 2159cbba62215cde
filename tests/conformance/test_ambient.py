"""A bare enqueue joins the transaction it stands in, and only that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from databases import Database
from dibs import Dibs

DRIVERS = {"postgres": "postgresql+psycopg", "mysql": "mysql+pymysql", "sqlite": "sqlite"}
ASYNC_DRIVERS = {"postgres": "postgresql+asyncpg", "mysql": "mysql+aiomysql", "sqlite": "sqlite+aiosqlite"}


def sqlalchemy_url(db: Database, drivers: dict[str, str]) -> str:
    return drivers[db.kind] + db.url[db.url.index("://") :]


@pytest.fixture
def engine(db: Database) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(db, DRIVERS))
    yield engine
    engine.dispose()


def ready(app: Dibs) -> int:
    return app.counts().get("default", {}).get("ready", 0)


def noop(number: int = 0) -> None: ...


def test_a_named_session_is_joined(db: Database, engine: sqlalchemy.Engine) -> None:
    """Inside the session's transaction a bare enqueue is part of it: rolled back with it, committed with it."""
    session = scoped_session(sessionmaker(engine))
    app = db.app(connection=lambda: session)
    task = app.task(noop)
    session.execute(sqlalchemy.text("SELECT 1"))
    task.enqueue()
    app.enqueue_many(task.call(n) for n in range(3))
    session.rollback()
    assert ready(app) == 0
    session.execute(sqlalchemy.text("SELECT 1"))
    task.enqueue()
    app.enqueue_many(task.call(n) for n in range(3))
    session.commit()
    assert ready(app) == 4
    session.remove()


def test_outside_a_transaction_it_is_dibs_own(db: Database, engine: sqlalchemy.Engine) -> None:
    """A session that has not begun might never be committed, so it is not joined; nor is None."""
    with Session(engine) as session:
        app = db.app(connection=lambda: session)
        app.task(noop).enqueue()
        assert not session.in_transaction()
    assert ready(app) == 1
    other = db.app(connection=lambda: None)
    other.task(noop).enqueue()
    assert ready(app) == 2


def test_own_opts_out(db: Database, engine: sqlalchemy.Engine) -> None:
    """`using(own=True)` leaves the transaction alone."""
    if db.kind == "sqlite":
        pytest.skip("a file has one writer: an own connection would wait for the transaction around it")
    with Session(engine) as session:
        app = db.app(connection=lambda: session)
        task = app.task(noop)
        session.execute(sqlalchemy.text("SELECT 1"))
        task.using(own=True).enqueue()
        session.rollback()
    assert ready(app) == 1


def test_another_database_is_not_joined(db: Database, tmp_path: Any) -> None:
    """A transaction in a database that is not the queue's can't hold a job."""
    elsewhere = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/elsewhere.db")
    with Session(elsewhere) as session:
        app = db.app(connection=lambda: session)
        session.execute(sqlalchemy.text("SELECT 1"))
        app.task(noop).enqueue()
        session.rollback()
    assert ready(app) == 1


def test_an_entered_transaction_is_joined(db: Database, engine: sqlalchemy.Engine) -> None:
    """`with app.transaction(connection)` says whose transaction it is, for this thread, until the block ends."""
    app = db.app()
    task = app.task(noop)

    @contextmanager
    def rolled_back() -> Iterator[Any]:
        with engine.connect() as connection:
            yield connection
            connection.rollback()

    with rolled_back() as connection, app.transaction(connection):
        task.enqueue()
    assert ready(app) == 0
    task.enqueue()
    assert ready(app) == 1


def test_async_sessions_are_joined(db: Database) -> None:
    """The same with an async session: `aenqueue` joins what was entered or named."""

    async def main() -> list[int]:
        engine = create_async_engine(sqlalchemy_url(db, ASYNC_DRIVERS))
        counts = []
        async with AsyncSession(engine) as session:
            named = db.app(connection=lambda: session)
            task = named.task(noop)
            await session.execute(sqlalchemy.text("SELECT 1"))
            await task.aenqueue()
            await session.rollback()
            counts.append(ready(named))
            app = db.app()
            entered = app.task(noop)
            async with app.transaction(session):
                await entered.aenqueue()
                await app.aenqueue_many([entered.call(1), entered.call(2)])
            await session.commit()
            counts.append(ready(app))
        await engine.dispose()
        return counts

    assert asyncio.run(main()) == [0, 3]
