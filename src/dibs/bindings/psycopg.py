"""psycopg 3: a connection that the user brought, blocking or async."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from dibs.bindings.cursors import spelt
from dibs.bindings.refusals import closed
from dibs.ops import Fetch, Request
from dibs.params import Style


class Psycopg:
    family = "postgresql"

    def __init__(self, connection: Connection[Any]) -> None:
        if connection.closed:
            raise closed(connection)
        self._connection = connection

    def answer(self, request: Request) -> Any:
        text, values = spelt(request, Style.PYFORMAT)
        # Not `connection.cursor()`: the user may have set a cursor_factory with another style of parameters.
        cursor = Cursor(self._connection, row_factory=tuple_row)
        with self._synchronized():
            cursor.execute(text.encode(), values)
        return cursor.fetchall() if isinstance(request, Fetch) else cursor.rowcount

    @property
    def commits_alone(self) -> bool:
        if not self._connection.autocommit:
            return False
        with self._synchronized():
            pass
        return self._connection.info.transaction_status == TransactionStatus.IDLE

    def _synchronized(self) -> Any:
        """In the user's pipeline, wait for the answers: a nested pipeline does when it ends."""
        pipelined = self._connection.pgconn.pipeline_status != PipelineStatus.OFF
        return self._connection.pipeline() if pipelined else nullcontext()


class AsyncPsycopg:
    family = "postgresql"

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        if connection.closed:
            raise closed(connection)
        self._connection = connection

    async def answer(self, request: Request) -> Any:
        text, values = spelt(request, Style.PYFORMAT)
        cursor = AsyncCursor(self._connection, row_factory=tuple_row)
        async with self._synchronized():
            await cursor.execute(text.encode(), values)
        return await cursor.fetchall() if isinstance(request, Fetch) else cursor.rowcount

    async def commits_alone(self) -> bool:
        if not self._connection.autocommit:
            return False
        async with self._synchronized():
            pass
        return self._connection.info.transaction_status == TransactionStatus.IDLE

    def _synchronized(self) -> Any:
        pipelined = self._connection.pgconn.pipeline_status != PipelineStatus.OFF
        return self._connection.pipeline() if pipelined else nullcontext()
