"""What is said when a connection can't be used or can't be made: what is wrong, and what to do instead.

No sentence here ever holds a password.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from urllib.parse import quote

from dibs.dialects.urls import DatabaseUrl
from dibs.errors import ConfigurationError, DatabaseUnavailable, UnsupportedConnection

_POOL = "a pool can't say which transaction a job belongs to: "
_POOL_ACQUIRE = _POOL + "pass a connection of it, `async with pool.acquire() as connection:`"
_ACQUIRE = "it is not a connection yet: `async with pool.acquire() as connection:`"
_ENGINE = "an engine can't say which transaction a job belongs to: "

#: What people hand over by mistake, by the name of its class, and what they should hand over.
_MISTAKEN = {
    "psycopg_pool.pool.ConnectionPool": _POOL + "pass a connection of it, `with pool.connection() as connection:`",
    "psycopg_pool.pool_async.AsyncConnectionPool": _POOL
    + "pass a connection of it, `async with pool.connection() as connection:`",
    "psycopg2.pool.AbstractConnectionPool": _POOL + "pass a connection of it, `pool.getconn()`",
    "asyncpg.pool.Pool": _POOL_ACQUIRE,
    "asyncpg.pool.PoolAcquireContext": _ACQUIRE,
    "aiomysql.pool.Pool": _POOL_ACQUIRE,
    "aiomysql.utils._ContextManager": _ACQUIRE,
    "asyncmy.pool.Pool": _POOL_ACQUIRE,
    "asyncmy.pool._PoolAcquireContext": _ACQUIRE,
    "asyncmy.contexts._ContextManager": _ACQUIRE,
    "sqlalchemy.engine.base.Engine": _ENGINE + "pass a connection of it, `with engine.begin() as connection:`",
    "sqlalchemy.ext.asyncio.engine.AsyncEngine": _ENGINE
    + "pass a connection of it, `async with engine.begin() as connection:`",
    "sqlalchemy.orm.session.sessionmaker": "it makes sessions: pass one, `with Session.begin() as session:`",
    "sqlalchemy.ext.asyncio.session.async_sessionmaker": "it makes sessions: pass one, "
    "`async with Session.begin() as session:`",
    "sqlalchemy.pool.base.PoolProxiedConnection": "it is a raw connection in SQLAlchemy's wrapping: pass its "
    "`driver_connection`, or a Connection of the engine",
    "flask_sqlalchemy.extension.SQLAlchemy": "pass its session, `db.session`",
    "django.utils.connection.BaseConnectionHandler": "it holds several connections: pass one of them, "
    "`django.db.connections['default']`",
    "builtins.str": "a URL has no transaction of yours: leave out connection= to let dibs use its own, "
    "or pass an open connection",
    "builtins.NoneType": "leave out connection= to let dibs use its own",
}

_KNOWN = (
    "psycopg, psycopg2, asyncpg, sqlite3, aiosqlite, PyMySQL, mysqlclient, aiomysql, asyncmy, "
    "SQLAlchemy (connections and sessions) and Django"
)


def names_of(kind: type) -> list[str]:
    """Return the full names of a class and of what it descends from, nearest first."""
    return [f"{ancestor.__module__}.{ancestor.__qualname__}" for ancestor in kind.__mro__]


def unsupported(connection: object) -> UnsupportedConnection:
    """Return the error for an object that is no connection, with what to pass in its place."""
    names = names_of(type(connection))
    said = f"not a connection that a job can be enqueued on ({names[0].removeprefix('builtins.')}): "
    for name in names:
        if name in _MISTAKEN:
            return UnsupportedConnection(said + _MISTAKEN[name])
    if any(name.lower().endswith("cursor") for name in names):
        return UnsupportedConnection(said + "a cursor has no transaction of its own: pass its connection")
    if any(name.endswith("Transaction") for name in names):
        return UnsupportedConnection(said + "pass the connection that this transaction is open on")
    if any(name.startswith("contextlib.") for name in names):
        return UnsupportedConnection(said + "it has not been entered: pass what `with … as connection:` gives")
    if inspect.isawaitable(connection):
        return UnsupportedConnection(said + "it has not been awaited: pass what awaiting it gives")
    return UnsupportedConnection(f"{said}dibs knows those of {_KNOWN}")


def closed(connection: object) -> UnsupportedConnection:
    return UnsupportedConnection(f"this connection is not open ({names_of(type(connection))[0]}): pass an open one")


def no_driver(package: str, extra: str, error: ImportError) -> ConfigurationError:
    """Return the error for a driver that dibs needs for its own connections and that can't be imported."""
    install = f'pip install "dibs[{extra}]"' if extra else "use a Python that was built with it"
    return ConfigurationError(f"dibs needs {package} for connections of its own: {install} (import said: {error})")


def unreachable(url: DatabaseUrl, said: str, advice: str = "") -> DatabaseUnavailable:
    """Return the error for a connection that could not be made, with what the driver said."""
    return DatabaseUnavailable(f"cannot connect to {url}: {reason(url, said)}{advice and f'; {advice}'}")


def reason(url: DatabaseUrl, said: str) -> str:
    """Return what a driver said, on one line and without the password."""
    parts = [part.strip(" \t-") for part in said.splitlines()]
    line = "; ".join(
        part for part in parts if part and not part.startswith("Is the server running on that host")
    ).replace(":;", ":")
    given = [url.password, *(value for name, value in url.query.items() if name.endswith(("password", "passwd")))]
    secrets = {spelt for secret in given for spelt in (secret, quote(secret), quote(secret, safe=""))}
    for secret in sorted(secrets - {"", url.user, url.database}, key=len, reverse=True):
        line = line.replace(secret, "***")
    return line


def odd_parameters(url: DatabaseUrl, known: Sequence[str]) -> ConfigurationError | None:
    """Return the error for parameters of a URL that nobody knows, None if all are known."""
    odd = sorted(set(url.query) - set(known))
    if not odd:
        return None
    return ConfigurationError(
        f"{url} has a parameter that means nothing here: {', '.join(odd)} (known: {', '.join(known)})"
    )
