"""Django: its connections, `django.db.connection` and those in `django.db.connections`.

Every one of its databases takes `%s`. Statements go through Django's own cursor, so that what hangs on it goes
on working: the debug toolbar, execute wrappers, errors under Django's names.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from dibs.bindings.cursors import CHANGES, ask
from dibs.bindings.refusals import unsupported
from dibs.errors import UnsupportedConnection
from dibs.ops import Execute, Fetch, Request, Row
from dibs.params import Style

_FAMILIES = ("postgresql", "mysql", "sqlite")  # Django's `vendor`


class Django:
    def __init__(self, connection: Any) -> None:
        vendor = getattr(connection, "vendor", None)
        if vendor is None:
            raise unsupported(connection)  # Django's caches hide behind the same kind of proxy
        if vendor not in _FAMILIES:
            raise UnsupportedConnection(f"Django calls this database {vendor!r}, which no queue can be kept in")
        self.family: str = vendor
        self._connection = connection

    def answer(self, request: Request) -> Any:
        with self._connection.cursor() as cursor:
            if self.family == "postgresql" and isinstance(request, Fetch):
                _keep_json_as_text(cursor)
            answer = ask(cursor, request, Style.FORMAT)
            if isinstance(request, Fetch):
                return [self._aware(row) for row in answer]
            if answer == -1 and self.family == "sqlite" and isinstance(request, Execute):
                answer = cursor.execute(CHANGES).fetchone()[0]
            return answer

    @property
    def commits_alone(self) -> bool:
        return bool(self._connection.get_autocommit()) and not self._connection.in_atomic_block

    def _aware(self, row: Row) -> Row:
        """Give a row its time zone back, which Django cuts off under USE_TZ = False."""
        if self.family != "postgresql" or self._connection.timezone is not None:
            return row
        zone = ZoneInfo(self._connection.timezone_name)
        return tuple(value.replace(tzinfo=zone) if isinstance(value, datetime) else value for value in row)


def _keep_json_as_text(cursor: Any) -> None:
    """Have this one cursor leave JSON the text it is, as dibs' own connections do; Django sees to `jsonb` alone."""
    driver = cursor
    while not hasattr(driver, "adapters") and hasattr(driver, "cursor"):  # wrappers of Django's and of its tools
        driver = driver.cursor
    if hasattr(driver, "adapters"):
        from psycopg.types.string import TextLoader

        driver.adapters.register_loader("json", TextLoader)
    else:
        from psycopg2 import extensions

        oid = 114  # of the type json, in every server
        as_text = extensions.new_type((oid,), "DIBS_JSON", lambda value, _: value)  # type: ignore[attr-defined]
        extensions.register_type(as_text, driver)  # type: ignore[attr-defined]
