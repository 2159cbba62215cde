"""aiomysql: a connection that the user brought."""

from __future__ import annotations

from typing import Any

from aiomysql.cursors import Cursor

from dibs.bindings.cursors import aask
from dibs.bindings.refusals import closed
from dibs.ops import Request
from dibs.params import Style


class _Quiet(Cursor):
    """A cursor that does not fetch and print warnings: a duplicate under INSERT IGNORE is no news."""

    async def _show_warnings(self, connection: Any) -> None:
        pass


class Aiomysql:
    family = "mysql"

    def __init__(self, connection: Any) -> None:
        if connection.closed:
            raise closed(connection)
        self._connection = connection

    async def answer(self, request: Request) -> Any:
        async with self._connection.cursor(_Quiet) as plain:
            return await aask(plain, request, Style.FORMAT)

    async def commits_alone(self) -> bool:
        return bool(self._connection.get_autocommit()) and not self._connection.get_transaction_status()
