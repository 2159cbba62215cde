"""What can be told of a user's connection without asking its server: has a transaction begun, and where does it lead?

For the connection that a bare enqueue would join. Wrong guesses are cheap here: what looks like no transaction, or
another database, is not joined, and dibs uses a connection of its own.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from dibs.bindings.refusals import names_of
from dibs.dialects.urls import DatabaseUrl

#: Of MySQL's protocol: the server says with each answer whether a transaction is open.
_IN_TRANSACTION = 1


class Address(NamedTuple):
    """Where a connection leads, as far as it says so; None and "" are what it does not say."""

    host: str | None
    port: int | None
    database: str

    def __str__(self) -> str:
        return f"{self.host}{f':{self.port}' if self.port else ''}/{self.database}" if self.host else self.database

    def leads_elsewhere(self, url: DatabaseUrl) -> bool:
        """Is this certainly another database than that of the URL?"""
        if url.scheme == "sqlite":
            return bool(self.database) and os.path.realpath(self.database) != os.path.realpath(url.database)
        if self.database and url.database and self.database != url.database:
            return True
        if self.port and url.port and self.port != url.port:
            return True
        return bool(self.host and url.host and _local(self.host) != _local(url.host))


def _local(host: str) -> str:
    """Return one name for this machine's several; a socket's directory is on it, too."""
    return "localhost" if host in ("127.0.0.1", "::1") or host.startswith("/") else host.lower()


def has_begun(connection: Any) -> bool:
    """Is a transaction open on this connection or session, so that a statement sent now would be part of it?

    A session or a connection that would only begin one with our statement is not in one: nobody may ever commit it.
    """
    wanted = unwrapped(connection)
    kind = kind_of(wanted)
    if kind == "sqlalchemy":
        wanted = _of_this_scope(wanted)
        return wanted is not None and bool(wanted.in_transaction())
    if kind == "django":
        # Not its get_autocommit(), which would connect: what is not open yet has begun nothing.
        return bool(wanted.in_atomic_block) or (wanted.connection is not None and not wanted.autocommit)
    if kind == "psycopg":
        return int(wanted.info.transaction_status) != 0
    if kind == "psycopg2":
        return int(wanted.info.transaction_status) != 0
    if kind == "asyncpg":
        return bool(wanted.is_in_transaction())
    if kind in ("sqlite3", "aiosqlite"):
        return bool(wanted.in_transaction)
    if kind == "MySQLdb":
        return not wanted.get_autocommit()  # it hides what the server says
    status = getattr(wanted, "server_status", None)
    if status is None and (result := getattr(wanted, "_result", None)) is not None:
        status = getattr(result, "server_status", None)
    return bool((status or 0) & _IN_TRANSACTION)


def around_of(connection: Any) -> Any:
    """Return the connection whose open transaction this session works in, or None where it is in none but its own.

    That is how tests have it: the session was given a connection, and what it commits is a savepoint there. A plain
    connection in a transaction is its own.
    """
    wanted = unwrapped(connection)
    if kind_of(wanted) != "sqlalchemy":
        return connection if has_begun(connection) else None
    if hasattr(wanted, "registry") and callable(wanted):
        try:
            wanted = wanted()
        except RuntimeError:  # there is no scope here, such as a context of a Flask application
            return None
    if not hasattr(wanted, "get_bind"):
        return connection if wanted.in_transaction() else None
    given = getattr(wanted, "bind", None)
    if given is None and not hasattr(wanted, "sync_session"):
        try:
            given = wanted.get_bind()
        except Exception:  # noqa: BLE001 - a session with several databases: it can't say which one this would be
            return None
    return given if given is not None and hasattr(given, "in_transaction") and given.in_transaction() else None


def address_of(connection: Any) -> Address | None:
    """Return where a connection leads, or None where it does not say."""
    wanted = unwrapped(connection)
    kind = kind_of(wanted)
    if kind == "sqlalchemy":
        url = _sqlalchemy_url(wanted)
        return None if url is None else Address(url.host, url.port, url.database or "")
    if kind == "django":
        settings = wanted.settings_dict
        digits = str(settings.get("PORT") or "")
        return Address(settings.get("HOST") or None, int(digits) if digits.isdigit() else None, str(settings["NAME"]))
    if kind in ("psycopg", "psycopg2"):
        info = wanted.info
        return Address(info.host or None, info.port or None, info.dbname or "")
    if kind == "sqlite3":
        rows = wanted.cursor().execute("PRAGMA database_list").fetchall()
        return Address(None, None, next((str(row[2]) for row in rows if row[1] == "main"), ""))
    if kind in ("pymysql", "aiomysql", "asyncmy"):
        database: object = getattr(wanted, "db", None) or getattr(wanted, "_db", None) or b""
        name = database.decode() if isinstance(database, bytes) else str(database)
        host: object = getattr(wanted, "host", None) or getattr(wanted, "_host", None)
        port: object = getattr(wanted, "port", None) or getattr(wanted, "_port", None)
        return Address(host if isinstance(host, str) else None, port if isinstance(port, int) else None, name)
    return None


def session_or_connection(connection: Any) -> Any:
    """Return SQLAlchemy's session or connection of this moment; None where it is no such thing."""
    wanted = unwrapped(connection)
    return _of_this_scope(wanted) if kind_of(wanted) == "sqlalchemy" else None


def _of_this_scope(wanted: Any) -> Any:
    """Return the session of this thread, task or request where sessions are scoped; None where there is none.

    None is made, since nobody may ever give it back. A scope that there is none of here (no context of a Flask
    application, no running event loop) is how a script looks, and has begun nothing.
    """
    if not (hasattr(wanted, "registry") and callable(wanted)):
        return wanted
    try:
        return wanted() if wanted.registry.has() else None
    except RuntimeError:
        return None


def _sqlalchemy_url(wanted: Any) -> Any:
    wanted = _of_this_scope(wanted)
    session = getattr(wanted, "sync_session", wanted)
    if hasattr(session, "get_bind"):
        try:
            session = session.get_bind()
        except Exception:  # noqa: BLE001 - a session with several databases: it can't say which one this would be
            return None
    return getattr(getattr(session, "engine", None), "url", None)


def unwrapped(connection: Any) -> Any:
    while kind_of(connection) == "" and hasattr(connection, "__wrapped__"):
        connection = connection.__wrapped__
    return connection


#: The packages whose connections and sessions dibs knows.
_PACKAGES = (
    "sqlalchemy", "django", "psycopg", "psycopg2", "asyncpg", "sqlite3", "aiosqlite", "pymysql", "aiomysql", "asyncmy",
    "MySQLdb",
)  # fmt: skip


def kind_of(connection: Any) -> str:
    """Return the package that a connection's class, or a class it inherits from, is of."""
    packages = [name.partition(".")[0] for name in names_of(type(connection))]
    return next((package for package in packages if package in _PACKAGES), "")
