"""aiosqlite: a connection that the user brought. It is sqlite3 in a thread, and so is its binding."""

from __future__ import annotations

import sqlite3
from typing import Any

from dibs.bindings.refusals import closed
from dibs.bindings.sqlite3 import Sqlite3
from dibs.ops import Request


class Aiosqlite:
    family = "sqlite"

    def __init__(self, connection: Any) -> None:
        raw: sqlite3.Connection | None = connection._connection
        if raw is None:
            raise closed(connection)
        self._connection = connection
        self._inner = Sqlite3(raw)

    # `_execute` is how aiosqlite itself reaches its thread. Over its public cursors a request would take four
    # trips, between which other users of the connection may change what we are about to read.

    async def answer(self, request: Request) -> Any:
        return await self._connection._execute(self._inner.answer, request)

    async def commits_alone(self) -> bool:
        alone: bool = await self._connection._execute(lambda: self._inner.commits_alone)
        return alone
