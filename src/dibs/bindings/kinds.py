"""Which kind of connection an object is, told by the names of its classes: no driver is imported for that."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from dibs.bindings.binding import AsyncBinding, Binding
from dibs.bindings.refusals import names_of, unsupported

if TYPE_CHECKING:
    from typing_extensions import TypeIs

#: Class of a connection → what makes its binding, as `module of this package:name`. Subclasses count as well.
KINDS = {
    "psycopg.Connection": "psycopg:Psycopg",
    "psycopg.AsyncConnection": "psycopg:AsyncPsycopg",
    "psycopg2.extensions.connection": "psycopg2:Psycopg2",
    "asyncpg.connection.Connection": "asyncpg:Asyncpg",
    "asyncpg.pool.PoolConnectionProxy": "asyncpg:Asyncpg",
    "sqlite3.Connection": "sqlite3:Sqlite3",
    "aiosqlite.core.Connection": "aiosqlite:Aiosqlite",
    "pymysql.connections.Connection": "pymysql:Pymysql",
    "MySQLdb.connections.Connection": "mysqlclient:Mysqlclient",
    "aiomysql.connection.Connection": "aiomysql:Aiomysql",
    "asyncmy.connection.Connection": "asyncmy:Asyncmy",
    "sqlalchemy.engine.base.Connection": "sqlalchemy:of_connection",
    "sqlalchemy.orm.session.Session": "sqlalchemy:of_session",
    "sqlalchemy.orm.scoping.scoped_session": "sqlalchemy:of_session",
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": "sqlalchemy:of_async_connection",
    "sqlalchemy.ext.asyncio.session.AsyncSession": "sqlalchemy:of_async_session",
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": "sqlalchemy:of_async_session",
    "django.utils.connection.ConnectionProxy": "django:Django",
    "django.db.backends.base.base.BaseDatabaseWrapper": "django:Django",
}


def bind(connection: object) -> Binding | AsyncBinding:
    """Return the binding for a connection or a session.

    Raises UnsupportedConnection, which says what to pass instead.
    """
    wanted: Any = connection
    while True:
        kind: Any = type(wanted)
        if (make := _maker(kind)) is not None:
            return make(wanted)
        # Tracers (OpenTelemetry, ddtrace) wrap connections in proxies whose own class says nothing.
        if type(wanted).__module__.partition(".")[0] == "builtins" or not hasattr(wanted, "__wrapped__"):
            raise unsupported(connection)
        wanted = wanted.__wrapped__


@lru_cache(maxsize=256)
def _maker(kind: Any) -> Callable[[Any], Binding | AsyncBinding] | None:
    """Return what makes a binding of a connection of this class."""
    for name in names_of(kind):
        if name in KINDS:
            module, _, make = KINDS[name].partition(":")
            maker: Callable[[Any], Binding | AsyncBinding] = getattr(
                importlib.import_module(f"dibs.bindings.{module}"), make
            )
            return maker
    return None


def is_async(binding: Binding | AsyncBinding) -> TypeIs[AsyncBinding]:
    """Must its answers be awaited?"""
    return _answers_async(type(binding))


@lru_cache(maxsize=64)
def _answers_async(kind: Any) -> bool:
    return iscoroutinefunction(kind.answer)
