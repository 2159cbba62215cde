"""SQLAlchemy: connections and sessions that the user brought, blocking or async, over any of its drivers.

A session is asked for its connection each time: it may have been given back and taken anew in between. The
sessions of SQLModel and Flask-SQLAlchemy are sessions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.util import await_only

from dibs.bindings.cursors import CHANGES, spelt
from dibs.bindings.kinds import bind, is_async
from dibs.bindings.refusals import closed
from dibs.errors import UnsupportedConnection
from dibs.ops import Execute, Fetch, Insert, Request
from dibs.params import Style

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult, Dialect
    from sqlalchemy.ext.asyncio import AsyncConnection

_FAMILIES = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite"}
_STYLES = {
    "named": Style.NAMED,
    "pyformat": Style.PYFORMAT,
    "format": Style.FORMAT,
    "qmark": Style.QMARK,
    "numeric_dollar": Style.DOLLAR,
}
#: Whatever the user set for the connection: no server-side cursor, and the count is kept.
_OPTIONS: dict[str, Any] = {"stream_results": False, "yield_per": None, "preserve_rowcount": True}


class Sqlalchemy:
    def __init__(self, current: Callable[[], Connection], dialect: Dialect) -> None:
        self.family = _family(dialect)
        self._style = _style(dialect)
        self._current = current

    def answer(self, request: Request) -> Any:
        connection = self._current()
        answer = _read(connection.exec_driver_sql(*spelt(request, self._style), execution_options=_OPTIONS), request)
        if answer == -1 and self.family == "sqlite" and isinstance(request, Execute):
            answer = connection.exec_driver_sql(CHANGES, execution_options=_OPTIONS).scalar_one()
        return answer

    @property
    def commits_alone(self) -> bool:
        connection = self._current()
        alone = _commits_alone(connection)
        if not isinstance(alone, bool):
            alone = await_only(alone)  # an async driver under a blocking face, as in `run_sync`
        return alone and not _will_begin(connection)


class AsyncSqlalchemy:
    def __init__(self, current: Callable[[], Awaitable[AsyncConnection]], dialect: Dialect) -> None:
        self.family = _family(dialect)
        self._style = _style(dialect)
        self._current = current

    async def answer(self, request: Request) -> Any:
        connection = await self._current()
        result = await connection.exec_driver_sql(*spelt(request, self._style), execution_options=_OPTIONS)
        answer = _read(result, request)
        if answer == -1 and self.family == "sqlite" and isinstance(request, Execute):
            answer = (await connection.exec_driver_sql(CHANGES, execution_options=_OPTIONS)).scalar_one()
        return answer

    async def commits_alone(self) -> bool:
        connection = (await self._current()).sync_connection
        assert connection is not None
        alone = _commits_alone(connection)
        if not isinstance(alone, bool):
            alone = await alone
        return alone and not _will_begin(connection)


# -- what `bind` calls -----------------------------------------------------------------------------


def of_connection(connection: Connection) -> Sqlalchemy:
    if connection.closed:
        raise closed(connection)
    return Sqlalchemy(lambda: connection, connection.dialect)


def of_session(session: Any) -> Sqlalchemy:
    return Sqlalchemy(session.connection, _dialect_of(session))


def of_async_connection(connection: AsyncConnection) -> AsyncSqlalchemy:
    if connection.sync_connection is None or connection.closed:
        raise closed(connection)

    async def current() -> AsyncConnection:
        return connection

    return AsyncSqlalchemy(current, connection.dialect)


def of_async_session(session: Any) -> AsyncSqlalchemy:
    return AsyncSqlalchemy(session.connection, _dialect_of(session))


# -- what they share -------------------------------------------------------------------------------


def _dialect_of(session: Any) -> Dialect:
    try:
        dialect: Dialect = session.get_bind().dialect
    except UnboundExecutionError as error:
        raise UnsupportedConnection(
            "this session does not say which database is meant, being bound to none or to one per table: pass "
            "the connection, `session.connection(bind_arguments=…)`"
        ) from error
    return dialect


def _family(dialect: Dialect) -> str:
    if dialect.name not in _FAMILIES:
        raise UnsupportedConnection(f"SQLAlchemy calls this database {dialect.name!r}, which no queue can be kept in")
    return _FAMILIES[dialect.name]


def _style(dialect: Dialect) -> Style:
    if dialect.paramstyle not in _STYLES:
        raise UnsupportedConnection(f"parameters in the style {dialect.paramstyle!r} are not known here")
    return _STYLES[dialect.paramstyle]


def _read(result: CursorResult[Any], request: Request) -> Any:
    if isinstance(request, Fetch):
        return [tuple(row) for row in result]
    answer = result.lastrowid if isinstance(request, Insert) else result.rowcount
    result.close()
    return answer


def _commits_alone(connection: Connection) -> bool | Awaitable[bool]:
    """Ask the driver's own connection: autocommit can be set there as well as in SQLAlchemy."""
    pooled = connection.connection
    try:
        driver = bind(pooled.driver_connection)
    except UnsupportedConnection:  # one of the drivers that only SQLAlchemy knows
        level = connection.get_execution_options().get("isolation_level")
        return (level or getattr(connection.dialect, "_on_connect_isolation_level", None)) == "AUTOCOMMIT"
    if not is_async(driver):
        return driver.commits_alone
    if connection.dialect.driver == "asyncpg" and not pooled.dbapi_connection.autocommit:  # type: ignore[union-attr]
        return False  # SQLAlchemy begins only with the first statement, and asyncpg knows nothing of it before
    return driver.commits_alone()


def _will_begin(connection: Connection) -> bool:
    """Will the user's own listener begin a transaction, as SQLAlchemy's recipe for SQLite does?"""
    return connection.dialect.name == "sqlite" and not connection.in_transaction() and bool(connection.dispatch.begin)
