"""asyncpg: a connection that the user brought, its own or one that a pool lent."""

from __future__ import annotations

from typing import Any

from asyncpg import Record
from asyncpg.exceptions import InterfaceError

from dibs.bindings.cursors import spelt
from dibs.bindings.refusals import closed
from dibs.ops import Fetch, Request
from dibs.params import Style


class Asyncpg:
    family = "postgresql"

    def __init__(self, connection: Any) -> None:
        try:
            if connection.is_closed():
                raise closed(connection)
        except InterfaceError:  # given back to its pool
            raise closed(connection) from None
        self._connection = connection

    async def answer(self, request: Request) -> Any:
        text, values = spelt(request, Style.DOLLAR)
        if isinstance(request, Fetch):
            records = await self._connection.fetch(text, *values, record_class=Record)
            return [tuple(record) for record in records]
        status = await self._connection.execute(text, *values)  # such as "UPDATE 3" or "INSERT 0 3"
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() else -1

    async def commits_alone(self) -> bool:
        return not self._connection.is_in_transaction()
