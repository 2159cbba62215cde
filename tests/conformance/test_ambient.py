"""A bare enqueue joins the transaction it stands in, and only that."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy
import sqlmodel
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlmodel.ext.asyncio.session import AsyncSession as SQLModelSession

from databases import Database
from dibs import Dibs
from dibs.bindings import advice

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


@contextmanager
def scoped(engine: sqlalchemy.Engine) -> Iterator[Any]:
    session = scoped_session(sessionmaker(engine))
    yield session
    session.remove()


@contextmanager
def flask_session(engine: sqlalchemy.Engine) -> Iterator[Any]:
    flask = Flask("shop")
    flask.config["SQLALCHEMY_DATABASE_URI"] = engine.url
    alchemy = SQLAlchemy(flask)
    with flask.app_context():
        yield alchemy.session
        alchemy.session.remove()
        alchemy.engine.dispose()


@pytest.fixture
def nothing_said_yet() -> None:
    advice._after_a_commit.clear()


SESSIONS: dict[str, Any] = {"session": Session, "scoped": scoped, "flask": flask_session, "sqlmodel": sqlmodel.Session}


@pytest.mark.parametrize("kind", SESSIONS)
def test_a_named_session_is_joined(db: Database, engine: sqlalchemy.Engine, kind: str) -> None:
    """Inside the session's transaction a bare enqueue is part of it: rolled back with it, committed with it."""
    with SESSIONS[kind](engine) as session:
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


@pytest.mark.parametrize("kind", SESSIONS)
@pytest.mark.usefixtures("nothing_said_yet")
def test_an_enqueue_after_the_commit_is_warned_of(
    db: Database, engine: sqlalchemy.Engine, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading begins a new transaction, which the job joins and nobody may commit; said once for each line."""
    with SESSIONS[kind](engine) as session:
        task = db.app(connection=lambda: session).task(noop)
        session.execute(sqlalchemy.text("SELECT 1"))
        task.enqueue()  # the session's first transaction: writing may come later
        session.commit()
        with session.begin():
            task.enqueue()  # this one has somebody who commits it
        task.enqueue()  # and this one is dibs' own
        assert caplog.messages == []
        for _ in range(2):
            session.execute(sqlalchemy.text("SELECT 1"))
            task.enqueue()
            session.rollback()
        assert [message.partition(" in a new")[0] for message in caplog.messages] == [
            f"{__file__}, line {line_of('task.enqueue()', 4)}, enqueues after a commit of its session,"
        ]


def line_of(words: str, number: int) -> int:
    """Return the line of the test above on which these words stand for the n-th time."""
    lines, first = inspect.getsourcelines(test_an_enqueue_after_the_commit_is_warned_of)
    return [first + index for index, line in enumerate(lines) if words in line][number - 1]


def test_outside_of_its_scope_there_is_no_session(db: Database, engine: sqlalchemy.Engine) -> None:
    """Where sessions are scoped, one that is not there has begun nothing, and none is made to find that out."""
    thread = scoped_session(sessionmaker(engine))
    task = db.app(connection=lambda: thread).task(noop)
    task.enqueue()
    assert not thread.registry.has()
    flask = Flask("shop")
    flask.config["SQLALCHEMY_DATABASE_URI"] = engine.url
    alchemy = SQLAlchemy(flask)
    db.app(connection=lambda: alchemy.session).task(noop).enqueue()  # in a script, without a context
    loop = async_scoped_session(async_sessionmaker(), scopefunc=asyncio.current_task)
    app = db.app(connection=lambda: loop)
    app.task(noop).enqueue()  # where no loop runs
    assert ready(app) == 3


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


def test_another_database_is_not_joined(db: Database, tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A transaction in a database that is not the queue's can't hold a job, which is said once."""
    elsewhere = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/elsewhere.db")
    with Session(elsewhere) as session:
        app = db.app(connection=lambda: session)
        session.execute(sqlalchemy.text("SELECT 1"))
        task = app.task(noop)
        task.enqueue()
        task.enqueue()
        session.rollback()
    assert ready(app) == 2
    (said,) = [record.getMessage() for record in caplog.records]
    assert "elsewhere.db) than the queue" in said


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


def async_scoped(engine: AsyncEngine) -> Any:
    return async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)


ASYNC_SESSIONS: dict[str, Any] = {"session": AsyncSession, "scoped": async_scoped, "sqlmodel": SQLModelSession}


@pytest.mark.parametrize("kind", ASYNC_SESSIONS)
def test_async_sessions_are_joined(db: Database, kind: str) -> None:
    """The same with an async session: `aenqueue` joins what was entered or named."""

    async def main() -> list[int]:
        engine = create_async_engine(sqlalchemy_url(db, ASYNC_DRIVERS))
        counts = []
        session = ASYNC_SESSIONS[kind](engine)
        select = session.exec if kind == "sqlmodel" else session.execute
        named = db.app(connection=lambda: session)
        task = named.task(noop)
        await select(sqlalchemy.text("SELECT 1"))
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
        await session.close()
        await engine.dispose()
        return counts

    assert asyncio.run(main()) == [0, 3]
