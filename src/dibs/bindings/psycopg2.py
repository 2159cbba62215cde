"""psycopg2: a connection that the user brought."""

from __future__ import annotations

from typing import Any

from psycopg2.extensions import TRANSACTION_STATUS_IDLE, cursor  # type: ignore[import-untyped,attr-defined,unused-ignore]

from dibs.bindings.cursors import ask
from dibs.bindings.refusals import closed
from dibs.errors import UnsupportedConnection
from dibs.ops import Request
from dibs.params import Style


class Psycopg2:
    family = "postgresql"

    def __init__(self, connection: Any) -> None:
        if connection.closed:
            raise closed(connection)
        if connection.async_:
            raise UnsupportedConnection("psycopg2's own async mode is not supported: use psycopg 3 or asyncpg")
        self._connection = connection

    def answer(self, request: Request) -> Any:
        with self._connection.cursor(cursor_factory=cursor) as plain:
            return ask(plain, request, Style.PYFORMAT)

    @property
    def commits_alone(self) -> bool:
        # `with connection:` in autocommit begins with its first statement, and can't be seen before.
        autocommit = self._connection.autocommit
        return bool(autocommit) and self._connection.info.transaction_status == TRANSACTION_STATUS_IDLE
