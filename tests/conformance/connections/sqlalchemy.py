"""SQLAlchemy: connections and sessions, blocking and async, over each of its drivers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from conformance.connections.kind import Connected, Kind, Open
from databases import Database


def url(db: Database, driver: str) -> str:
    """Return the database's URL as SQLAlchemy has it."""
    parts = urlsplit(db.url)
    return (
        f"{driver}://{urlunsplit(parts._replace(scheme=''))[2:]}"
        if parts.netloc
        else f"{driver}:{db.url.partition(':')[2]}"
    )


def blocking(driver: str, *, session: bool = False, **settings: Any) -> Open:
    @asynccontextmanager
    async def opened(db: Database) -> AsyncIterator[Connected]:
        from sqlalchemy import create_engine, text
        from sqlalchemy.orm import Session

        engine = create_engine(url(db, driver), **settings)
        try:
            with Session(engine) if session else engine.connect() as connection:
                yield Connected(
                    connection,
                    False,
                    lambda: None,
                    connection.commit,
                    connection.rollback,
                    lambda sql: connection.execute(text(sql)) and None,
                )
        finally:
            engine.dispose()

    return opened


def aio(driver: str, *, session: bool = False, **settings: Any) -> Open:
    @asynccontextmanager
    async def opened(db: Database) -> AsyncIterator[Connected]:
        from sqlalchemy import text
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

        engine = create_async_engine(url(db, driver), **settings)
        try:
            async with AsyncSession(engine) if session else engine.connect() as connection:
                yield Connected(
                    connection,
                    True,
                    lambda: None,
                    connection.commit,
                    connection.rollback,
                    lambda sql: connection.execute(text(sql)),
                )
        finally:
            await engine.dispose()

    return opened


DRIVERS = [
    ("postgresql+psycopg", "postgres", "psycopg", blocking),
    ("postgresql+psycopg2", "postgres", "psycopg2", blocking),
    ("postgresql+pg8000", "postgres", "pg8000", blocking),
    ("postgresql+psycopg", "postgres", "psycopg", aio),
    ("postgresql+asyncpg", "postgres", "asyncpg", aio),
    ("mysql+pymysql", "mysql", "pymysql", blocking),
    ("mysql+mysqldb", "mysql", "MySQLdb", blocking),
    ("mysql+aiomysql", "mysql", "aiomysql", aio),
    ("mysql+asyncmy", "mysql", "asyncmy", aio),
    ("sqlite+pysqlite", "sqlite", "sqlite3", blocking),
    ("sqlite+aiosqlite", "sqlite", "aiosqlite", aio),
]


def _kinds() -> list[Kind]:
    kinds = []
    for driver, database, module, make in DRIVERS:
        repeats = database != "sqlite"
        for what in ("connection", "session"):
            settings: dict[str, Any] = {"session": what == "session"}
            kinds.append(
                Kind(
                    f"sqlalchemy-{'async-' * (make is aio)}{what}-{driver.partition('+')[2]}",
                    database,
                    ["sqlalchemy", module],
                    make(driver, **settings),
                    autocommit=make(driver, isolation_level="AUTOCOMMIT", **settings),
                    oddly=make(driver, execution_options={"stream_results": True, "yield_per": 1}, **settings),
                    repeatable=make(driver, isolation_level="REPEATABLE READ", **settings) if repeats else None,
                    is_async=make is aio,
                )
            )
    return kinds


KINDS = _kinds()
