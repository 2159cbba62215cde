"""Bindings of connections that a user brings, as far as they need no server: SQLite in all its faces, and refusals."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from dibs.bindings import bind, is_async
from dibs.errors import UnsupportedConnection
from dibs.ops import Execute, Fetch, Insert, Request

TEXT = "é😀 'q\" \\ %s :x"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a table that has one row, and nothing else going on."""
    path = tmp_path / "some.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT, n INTEGER)")
        connection.execute("INSERT INTO things (name, n) VALUES (?, 1)", [TEXT])
        connection.commit()
    return path


async def settled(value: Any) -> Any:
    """Return a value, awaited if need be: what is said of blocking bindings holds for async ones."""
    return await value if inspect.isawaitable(value) else value


async def commits_alone(binding: Any) -> bool:
    return bool(await settled(binding.commits_alone() if is_async(binding) else binding.commits_alone))


def names_in(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT name FROM things ORDER BY id")]


# -- every kind of connection to a file -------------------------------------------------------------
#
# Each factory opens one in a state in which a statement does not commit alone, set up in a way that gets in a
# binding's way where it can: a row factory, another type for texts, a wish for server-side cursors.


@contextlib.asynccontextmanager
async def plain(path: Path) -> AsyncIterator[Any]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = bytes
        yield connection
        assert connection.text_factory is bytes


@contextlib.asynccontextmanager
async def begun(path: Path) -> AsyncIterator[Any]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.row_factory = lambda cursor, row: {"n": len(row)}
        connection.execute("BEGIN")
        yield connection


@contextlib.asynccontextmanager
async def threaded(path: Path) -> AsyncIterator[Any]:
    async with aiosqlite.connect(path) as connection:
        connection.row_factory = aiosqlite.Row
        connection.text_factory = bytes
        yield connection


@contextlib.asynccontextmanager
async def core(path: Path) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with engine.connect().execution_options(stream_results=True, yield_per=1) as connection:
        yield connection
    engine.dispose()


@contextlib.asynccontextmanager
async def session(path: Path) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with Session(engine) as session:
        yield session
    engine.dispose()


@contextlib.asynccontextmanager
async def scoped(path: Path) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    session = scoped_session(sessionmaker(engine))
    yield session
    session.remove()
    engine.dispose()


@contextlib.asynccontextmanager
async def recipe(path: Path) -> AsyncIterator[Any]:
    """As SQLAlchemy's documentation says, so that transactions of SQLite are real ones."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    _begin_by_hand(engine)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@contextlib.asynccontextmanager
async def async_recipe(path: Path) -> AsyncIterator[Any]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    _begin_by_hand(engine.sync_engine)
    async with engine.connect() as connection:
        yield connection
    await engine.dispose()


def _begin_by_hand(engine: sqlalchemy.Engine) -> None:
    event.listen(engine, "connect", lambda connection, record: setattr(connection, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))


@contextlib.asynccontextmanager
async def async_core(path: Path) -> AsyncIterator[Any]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with engine.connect() as connection:
        yield await connection.execution_options(stream_results=True)
    await engine.dispose()


@contextlib.asynccontextmanager
async def async_session(path: Path) -> AsyncIterator[Any]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with AsyncSession(engine) as session:
        yield session
    await engine.dispose()


@contextlib.asynccontextmanager
async def async_scoped(path: Path) -> AsyncIterator[Any]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    session = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
    yield session
    await session.remove()
    await engine.dispose()


KINDS = [
    plain,
    begun,
    threaded,
    core,
    session,
    scoped,
    recipe,
    async_recipe,
    async_core,
    async_session,
    async_scoped,
]


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_plain(path: Path, kind: Callable[[Path], Any]) -> None:
    """Rows are a list of tuples and counts are numbers, whatever the user set up for a connection."""

    async def check() -> None:
        async with kind(path) as connection:
            binding = bind(connection)
            assert binding.family == "sqlite"

            async def answer(request: Request) -> Any:
                return await settled(binding.answer(request))

            added = Execute("INSERT INTO things (name, n) VALUES (:name, :n), (:name, 3)", {"name": TEXT, "n": 2})
            assert await answer(added) == 2
            rows = await answer(Fetch("SELECT name, n, NULL FROM things WHERE '5%' = '5%' AND n < :n", {"n": 3}))
            assert rows == [(TEXT, 1, None), (TEXT, 2, None)]
            assert [type(row) for row in rows] == [tuple, tuple]
            assert await answer(Fetch("SELECT 1 AS same, 2 AS same", {})) == [(1, 2)]
            assert await answer(Fetch("SELECT n FROM things WHERE n = 9", {})) == []
            assert await answer(Execute("UPDATE things SET n = n + 1 WHERE n > :n", {"n": 1})) == 2
            assert await answer(Execute("UPDATE things SET n = n + 1 WHERE n > :n", {"n": 9})) == 0
            raised = "WITH least AS (SELECT 3 AS n) UPDATE things SET n = 7 WHERE n >= (SELECT n FROM least)"
            assert await answer(Execute(raised, {})) == 2
            returned = await answer(Fetch("INSERT INTO things (n) VALUES (8), (9) RETURNING n", {}))
            assert sorted(returned) == [(8,), (9,)]
            assert await answer(Insert("INSERT INTO things (n) VALUES (:n)", {"n": 10})) == 6
            assert await answer(Execute("DELETE FROM things WHERE n = :n", {"n": 7})) == 2

    asyncio.run(check())


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_committed(path: Path, kind: Callable[[Path], Any]) -> None:
    """A binding leaves beginning and ending to the user: what it wrote is gone with the user's rollback."""

    async def check() -> None:
        async with kind(path) as connection:
            binding = bind(connection)
            assert not await commits_alone(binding)
            await settled(binding.answer(Execute("INSERT INTO things (name) VALUES ('mine')", {})))
            assert not await commits_alone(binding)
            assert names_in(path) == [TEXT]
            await settled(connection.rollback())
        assert names_in(path) == [TEXT]

    asyncio.run(check())


@pytest.mark.parametrize("kind", [session, scoped, async_session, async_scoped])
def test_a_session_is_asked_each_time(path: Path, kind: Callable[[Path], Any]) -> None:
    """A binding of a session works on when the session gave its connection back and took another."""

    async def check() -> None:
        async with kind(path) as session:
            binding = bind(session)
            for name in ("one", "two"):
                await settled(binding.answer(Execute("INSERT INTO things (name) VALUES (:name)", {"name": name})))
                await settled(session.commit())
                await settled(session.close())
        assert names_in(path) == [TEXT, "one", "two"]

    asyncio.run(check())


def test_autocommit_is_seen(path: Path) -> None:
    """A connection on which a statement would commit alone says so, until a transaction is open on it."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        binding = bind(connection)
        assert not is_async(binding)
        assert binding.commits_alone
        connection.execute("BEGIN")
        assert not binding.commits_alone
        connection.execute("COMMIT")
        assert binding.commits_alone


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the attribute came with Python 3.12")
@pytest.mark.parametrize("autocommit", [True, False])
def test_autocommit_the_new_way(path: Path, autocommit: bool) -> None:
    """Python 3.12's `autocommit` decides, not `isolation_level`, which it keeps and ignores."""
    options: dict[str, Any] = {"autocommit": autocommit}

    async def check() -> None:
        with contextlib.closing(sqlite3.connect(path, **options)) as connection:
            assert await commits_alone(bind(connection)) is autocommit
        async with aiosqlite.connect(path, **options) as connection:
            assert await commits_alone(bind(connection)) is autocommit

    asyncio.run(check())


def test_autocommit_of_sqlalchemy_is_seen(path: Path) -> None:
    """However AUTOCOMMIT was asked for: for the connection, for the engine, of the driver behind its back."""

    async def check() -> None:
        engine = sqlalchemy.create_engine(f"sqlite:///{path}")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            assert await commits_alone(bind(connection))
        for options in ({"isolation_level": "AUTOCOMMIT"}, {"connect_args": {"isolation_level": None}}):
            engine = sqlalchemy.create_engine(f"sqlite:///{path}", **options)
            with Session(engine) as session:
                assert await commits_alone(bind(session))
            async_engine = create_async_engine(f"sqlite+aiosqlite:///{path}", **options)
            async with AsyncSession(async_engine) as async_session:
                assert await commits_alone(bind(async_session))
            await async_engine.dispose()

    asyncio.run(check())


def test_a_blocking_face_on_an_async_driver(path: Path) -> None:
    """Inside `run_sync` SQLAlchemy's session is a blocking one, although its driver is not."""

    def inside(session: Session) -> None:
        binding = bind(session)
        assert not is_async(binding)
        assert not binding.commits_alone
        assert binding.answer(Fetch("SELECT name FROM things", {})) == [(TEXT,)]

    async def check() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        async with AsyncSession(engine) as session:
            await session.run_sync(inside)
        await engine.dispose()

    asyncio.run(check())


# -- what kind it is ---------------------------------------------------------------------------------


def test_binding_imports_no_driver() -> None:
    """Whoever has only one driver pays for none of the others, and does not fail for want of them."""
    script = """
import sqlite3, sys
from dibs.bindings import bind
bind(sqlite3.connect(":memory:"))
drivers = {"psycopg", "psycopg2", "asyncpg", "aiosqlite", "pymysql", "MySQLdb", "aiomysql", "asyncmy", "sqlalchemy", "django"}
print(sorted(drivers & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_subclasses_and_tracers_count(path: Path) -> None:
    """A subclass is bound like what it descends from; a tracer's proxy like what it wraps."""

    class Mine(sqlite3.Connection):
        def cursor(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("a binding opens its own cursor")

    class Traced:
        def __init__(self, wrapped: object) -> None:
            self.__wrapped__ = wrapped

    with contextlib.closing(sqlite3.connect(path, factory=Mine)) as connection:
        for wanted in (connection, Traced(connection), Traced(Traced(connection))):
            assert bind(wanted).answer(Fetch("SELECT n FROM things", {})) == [(1,)]


def mistaken() -> Iterator[Any]:
    connection = sqlite3.connect(":memory:")
    engine = sqlalchemy.create_engine("sqlite://")
    async_engine = create_async_engine("sqlite+aiosqlite://")
    yield pytest.param(None, "leave out connection=", id="None")
    yield pytest.param("postgresql://me:secret@host/db", "a URL has no transaction", id="URL")
    yield pytest.param(object(), "dibs knows those of psycopg", id="object")
    yield pytest.param(sqlite3.Connection, "dibs knows those of", id="class")
    yield pytest.param(connection.cursor(), "pass its connection", id="cursor")
    yield pytest.param(engine, "`with engine.begin() as connection:`", id="engine")
    yield pytest.param(async_engine, "`async with engine.begin() as connection:`", id="async engine")
    yield pytest.param(sessionmaker(engine), "`with Session.begin() as session:`", id="sessionmaker")
    yield pytest.param(async_sessionmaker(async_engine), "`async with Session.begin()", id="async_sessionmaker")
    yield pytest.param(engine.begin(), "not been entered", id="context manager")
    yield pytest.param(engine.connect().begin(), "the connection that this transaction is open on", id="transaction")
    yield pytest.param(engine.raw_connection(), "`driver_connection`", id="raw connection")
    yield pytest.param(async_engine.connect(), "not open", id="async connection, not awaited")
    yield pytest.param(Session(), "`session.connection(bind_arguments=…)`", id="unbound session")
    yield pytest.param(aiosqlite.connect(":memory:"), "not open", id="aiosqlite, not awaited")
    connection.close()
    yield pytest.param(connection, "not open", id="closed")
    closed = engine.connect()
    closed.close()
    yield pytest.param(closed, "not open", id="closed by SQLAlchemy")


@pytest.mark.parametrize(("wanted", "said"), list(mistaken()))
def test_what_is_no_connection_is_refused(wanted: object, said: str) -> None:
    """Each mistake is answered with what to pass instead, and never with a secret."""
    with pytest.raises(UnsupportedConnection) as caught:
        bind(wanted)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)
