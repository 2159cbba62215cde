"""SQLite's drivers: Python's own sqlite3, and aiosqlite."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

from conformance.connections.kind import Connected, Kind, Open
from databases import Database
from dibs.dialects import parse


def as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def blocking(*, odd: bool = False, **settings: Any) -> Open:
    @asynccontextmanager
    async def opened(db: Database) -> AsyncIterator[Connected]:
        with closing(sqlite3.connect(parse(db.url).database, **settings)) as raw:
            if odd:
                raw.row_factory = as_dict
                raw.text_factory = bytes
            begins = settings.get("isolation_level", "") is None or settings.get("autocommit") is True
            begin = (lambda: raw.execute("BEGIN")) if begins else (lambda: None)
            commit, rollback = raw.commit, raw.rollback
            if settings.get("autocommit") is True:  # its commit() does nothing then
                commit, rollback = (lambda: raw.execute("COMMIT") and None), (lambda: raw.execute("ROLLBACK") and None)
            yield Connected(raw, False, begin, commit, rollback, raw.execute)

    return opened


def aio(*, odd: bool = False, **settings: Any) -> Open:
    @asynccontextmanager
    async def opened(db: Database) -> AsyncIterator[Connected]:
        import aiosqlite

        async with aiosqlite.connect(parse(db.url).database, **settings) as raw:
            if odd:
                raw.row_factory = as_dict  # type: ignore[assignment]
                raw.text_factory = bytes
            begins = settings.get("isolation_level", "") is None
            begin = (lambda: raw.execute("BEGIN")) if begins else (lambda: None)
            yield Connected(raw, True, begin, raw.commit, raw.rollback, raw.execute)

    return opened


KINDS = [
    Kind(
        "sqlite3",
        "sqlite",
        ["sqlite3"],
        blocking(),
        autocommit=blocking(isolation_level=None),
        oddly=blocking(odd=True, detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES),
    ),
    Kind(
        "aiosqlite",
        "sqlite",
        ["aiosqlite"],
        aio(),
        autocommit=aio(isolation_level=None),
        oddly=aio(odd=True, detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES),
        is_async=True,
    ),
]

if sys.version_info >= (3, 12):  # PEP 249's way to say it, beside sqlite3's older one
    KINDS.append(
        Kind(
            "sqlite3-pep249",
            "sqlite",
            ["sqlite3"],
            blocking(autocommit=False),
            autocommit=blocking(autocommit=True),
        )
    )
