"""Python's sqlite3: a connection that the user brought."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from dibs.bindings.cursors import CHANGES, ask
from dibs.bindings.refusals import closed
from dibs.ops import Execute, Request
from dibs.params import Style

_LEGACY = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, new in Python 3.12


class Sqlite3:
    family = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        try:
            _ = connection.total_changes
        except sqlite3.ProgrammingError:
            raise closed(connection) from None
        self._connection = connection

    def answer(self, request: Request) -> Any:
        connection = self._connection
        text_factory = connection.text_factory
        connection.text_factory = str
        try:
            # Not `connection.cursor()`, which takes over the connection's row_factory.
            with closing(sqlite3.Cursor(connection)) as cursor:
                answer = ask(cursor, request, Style.NAMED)
                if answer == -1 and isinstance(request, Execute):
                    answer = cursor.execute(CHANGES).fetchone()[0]
                return answer
        finally:
            connection.text_factory = text_factory

    @property
    def commits_alone(self) -> bool:
        connection = self._connection
        if connection.in_transaction:
            return False
        autocommit = getattr(connection, "autocommit", _LEGACY)
        if autocommit == _LEGACY:
            return connection.isolation_level is None  # else it begins by itself before an INSERT (not before a WITH)
        return bool(autocommit)
