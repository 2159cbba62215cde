"""MySQL's and MariaDB's drivers: PyMySQL, mysqlclient, aiomysql and asyncmy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from conformance.connections.kind import Connected, Kind, Open
from databases import Database
from dibs.dialects import parse

REPEATABLE = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"


def parameters(db: Database, *, password: str = "password", database: str = "database") -> dict[str, Any]:
    """Return what a driver wants to know, under the names that it has for it."""
    url = parse(db.url)
    return {
        "host": url.host,
        "port": url.port or 3306,
        "user": url.user,
        password: url.password,
        database: url.database,
        "charset": "utf8mb4",
    }


def blocking(module: str, *, autocommit: bool = False, cursor: str = "", isolation: str = REPEATABLE) -> Open:
    @asynccontextmanager
    async def opened(db: Database) -> AsyncIterator[Connected]:
        driver = import_module(module)
        settings: dict[str, Any] = parameters(db)
        if cursor:
            settings["cursorclass"] = getattr(import_module(f"{module}.cursors"), cursor)
        raw = driver.connect(**settings, autocommit=autocommit)
        try:

            def execute(sql: str) -> None:
                with raw.cursor() as opened:
                    opened.execute(sql)

            execute(isolation)
            begin = (lambda: execute("BEGIN")) if autocommit else (lambda: None)
            yield Connected(raw, False, begin, raw.commit, raw.rollback, execute)
        finally:
            if raw.open:
                raw.close()

    return opened


def aio(module: str, *, autocommit: bool = False, cursor: str = "", isolation: str = REPEATABLE) -> Open:
    @asynccontextmanager
    async def opened(db: Database) -> AsyncIterator[Connected]:
        driver = import_module(module)
        settings: dict[str, Any] = parameters(db, database="db")
        if cursor:
            settings["cursor_cls" if module == "asyncmy" else "cursorclass"] = getattr(
                import_module(f"{module}.cursors"), cursor
            )
        raw = await driver.connect(**settings, autocommit=autocommit)
        try:

            async def execute(sql: str) -> None:
                async with raw.cursor() as opened:
                    await opened.execute(sql)

            await execute(isolation)
            begin = (lambda: execute("BEGIN")) if autocommit else (lambda: None)
            yield Connected(raw, True, begin, raw.commit, raw.rollback, execute)
        finally:
            await raw.ensure_closed()

    return opened


COMMITTED = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"

# These databases are at REPEATABLE READ unless somebody says otherwise, and so are their users.
KINDS = [
    Kind(
        name,
        "mysql",
        [module],
        make(module, isolation=COMMITTED),
        autocommit=make(module, autocommit=True),
        oddly=make(module, cursor=cursor),
        repeatable=make(module),
        is_async=make is aio,
    )
    for name, module, make, cursor in [
        ("PyMySQL", "pymysql", blocking, "SSDictCursor"),
        ("mysqlclient", "MySQLdb", blocking, "SSDictCursor"),
        ("aiomysql", "aiomysql", aio, "SSDictCursor"),
        ("asyncmy", "asyncmy", aio, "DictCursor"),
    ]
]
