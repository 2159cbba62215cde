"""PostgreSQL's drivers: psycopg, blocking and async, psycopg2 and asyncpg."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import Any

from conformance.connections.kind import Connected, Kind, Open
from databases import Database


def nothing() -> None:
    """Begin: this driver does it by itself."""


def psycopg_blocking(**settings: Any) -> Open:
    @asynccontextmanager
    async def opened(db: Database) -> AsyncIterator[Connected]:
        import psycopg

        with closing(psycopg.connect(db.url, **(_odd(psycopg.RawCursor) if "odd" in settings else settings))) as raw:
            begin = (lambda: raw.execute("BEGIN")) if raw.autocommit else nothing
            yield Connected(raw, False, begin, raw.commit, raw.rollback, raw.execute)

    return opened


def psycopg_async(**settings: Any) -> Open:
    @asynccontextmanager
    async def opened(db: Database) -> AsyncIterator[Connected]:
        import psycopg

        odd = _odd(psycopg.AsyncRawCursor) if "odd" in settings else settings
        raw = await psycopg.AsyncConnection.connect(db.url, **odd)
        try:
            begin = (lambda: raw.execute("BEGIN")) if raw.autocommit else nothing
            yield Connected(raw, True, begin, raw.commit, raw.rollback, raw.execute)
        finally:
            await raw.close()

    return opened


def _odd(cursor: type) -> dict[str, Any]:
    from psycopg.rows import dict_row

    return {"row_factory": dict_row, "cursor_factory": cursor, "prepare_threshold": 0}


REPEATABLE = "-c default_transaction_isolation=repeatable\\ read"


def psycopg2(*, autocommit: bool = False, dicts: bool = False, repeatable: bool = False) -> Open:
    @asynccontextmanager
    async def opened(db: Database) -> AsyncIterator[Connected]:
        import psycopg2 as driver
        from psycopg2.extras import RealDictCursor

        with closing(driver.connect(db.url, **({"cursor_factory": RealDictCursor} if dicts else {}))) as raw:
            raw.set_session(autocommit=autocommit, isolation_level="REPEATABLE READ" if repeatable else None)

            def execute(sql: str) -> None:
                with raw.cursor() as cursor:
                    cursor.execute(sql)

            def roll_back() -> None:
                execute("ROLLBACK")

            begin = (lambda: execute("BEGIN")) if autocommit else nothing
            commit = (lambda: execute("COMMIT")) if autocommit else raw.commit
            yield Connected(raw, False, begin, commit, roll_back if autocommit else raw.rollback, execute)

    return opened


def asyncpg(*, isolation: str | None = None, odd: bool = False) -> Open:
    @asynccontextmanager
    async def opened(db: Database) -> AsyncIterator[Connected]:
        import asyncpg as driver

        class Odd(driver.Record):  # type: ignore[misc]
            def __iter__(self) -> Any:
                return iter(self.keys())

        raw = await driver.connect(db.url, **({"record_class": Odd} if odd else {}))
        try:
            if odd:
                for name in ("json", "jsonb"):
                    await raw.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
            transaction = raw.transaction(isolation=isolation)
            yield Connected(raw, True, transaction.start, transaction.commit, transaction.rollback, raw.execute)
        finally:
            await raw.close()

    return opened


def asyncpg_pool(db: Database) -> AbstractAsyncContextManager[Connected]:
    return _asyncpg_pool(db)


@asynccontextmanager
async def _asyncpg_pool(db: Database) -> AsyncIterator[Connected]:
    import asyncpg as driver

    async with driver.create_pool(db.url, min_size=1, max_size=1) as pool, pool.acquire() as lent:
        transaction = lent.transaction()
        yield Connected(lent, True, transaction.start, transaction.commit, transaction.rollback, lent.execute)


KINDS = [
    Kind(
        "psycopg",
        "postgres",
        ["psycopg"],
        psycopg_blocking(),
        autocommit=psycopg_blocking(autocommit=True),
        oddly=psycopg_blocking(odd=True),
        repeatable=psycopg_blocking(options=REPEATABLE),
    ),
    Kind(
        "psycopg-async",
        "postgres",
        ["psycopg"],
        psycopg_async(),
        autocommit=psycopg_async(autocommit=True),
        oddly=psycopg_async(odd=True),
        repeatable=psycopg_async(options=REPEATABLE),
        is_async=True,
    ),
    Kind(
        "psycopg2",
        "postgres",
        ["psycopg2"],
        psycopg2(),
        autocommit=psycopg2(autocommit=True),
        oddly=psycopg2(dicts=True),
        repeatable=psycopg2(repeatable=True),
    ),
    Kind(
        "asyncpg",
        "postgres",
        ["asyncpg"],
        asyncpg(),
        autocommit=asyncpg(),
        oddly=asyncpg(odd=True),
        repeatable=asyncpg(isolation="repeatable_read"),
        is_async=True,
    ),
    Kind("asyncpg-pool", "postgres", ["asyncpg"], asyncpg_pool, is_async=True),
]
