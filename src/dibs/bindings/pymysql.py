"""PyMySQL: a connection that the user brought."""

from __future__ import annotations

from typing import Any

from pymysql.constants.SERVER_STATUS import SERVER_STATUS_IN_TRANS
from pymysql.cursors import Cursor

from dibs.bindings.cursors import ask
from dibs.bindings.refusals import closed
from dibs.ops import Request
from dibs.params import Style


class Pymysql:
    family = "mysql"

    def __init__(self, connection: Any) -> None:
        if not connection.open:
            raise closed(connection)
        self._connection = connection

    def answer(self, request: Request) -> Any:
        with self._connection.cursor(Cursor) as plain:
            return ask(plain, request, Style.PYFORMAT)

    @property
    def commits_alone(self) -> bool:
        in_transaction = self._connection.server_status & SERVER_STATUS_IN_TRANS
        return bool(self._connection.get_autocommit()) and not in_transaction
