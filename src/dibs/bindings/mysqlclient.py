"""mysqlclient (MySQLdb): a connection that the user brought."""

from __future__ import annotations

from typing import Any

from MySQLdb import OperationalError
from MySQLdb.cursors import Cursor

from dibs.bindings.cursors import ask
from dibs.bindings.refusals import closed
from dibs.ops import Execute, Request
from dibs.params import Style

_NO_SUCH_SAVEPOINT = 1305


class Mysqlclient:
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
        if not self._connection.get_autocommit():
            return False
        # The driver hides whether a transaction was begun by hand. Outside one a savepoint is gone at once.
        self.answer(Execute("SAVEPOINT dibs_probe", {}))
        try:
            self.answer(Execute("RELEASE SAVEPOINT dibs_probe", {}))
        except OperationalError as error:
            if error.args[0] != _NO_SUCH_SAVEPOINT:
                raise
            return True
        return False
