"""Django's connections to its three kinds of database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import Any

from conformance.connections.kind import Connected, Kind, Open
from databases import Database
from dibs.dialects import parse

ENGINES = {"postgres": "postgresql", "mysql": "mysql", "sqlite": "sqlite3"}


@contextmanager
def alias(db: Database, **settings: Any) -> Iterator[str]:
    """Make a database known to Django, as its settings would, under the name that is returned."""
    from django.conf import settings as configured

    if not configured.configured:
        import django

        configured.configure(USE_TZ=True, TIME_ZONE="Europe/Berlin", DATABASES={})
        django.setup()
    from django.db import connections

    if db.kind == "mysql" and find_spec("MySQLdb") is None:
        import pymysql

        pymysql.install_as_MySQLdb()
    url = parse(db.url)
    database = {
        "ENGINE": f"django.db.backends.{ENGINES[db.kind]}",
        "NAME": url.database,
        "HOST": url.host,
        "PORT": url.port or "",
        "USER": url.user,
        "PASSWORD": url.password,
        **settings,
    }
    connections.settings[db.name] = connections.configure_settings({"default": {}, db.name: database})[db.name]
    try:
        yield db.name
    finally:
        connections[db.name].close()
        del connections[db.name]
        del connections.settings[db.name]


def opened_with(**settings: Any) -> Open:
    @asynccontextmanager
    async def opened(db: Database) -> AsyncIterator[Connected]:
        with alias(db, **settings) as name, ExitStack() as stack:
            from django.db import connections, transaction

            connection = connections[name]
            block = transaction.atomic(using=name)

            def begin() -> None:
                stack.enter_context(block)

            def commit() -> None:
                stack.close()

            def roll_back() -> None:
                transaction.set_rollback(True, using=name)
                stack.close()

            def execute(sql: str) -> None:
                with connection.cursor() as cursor:
                    cursor.execute(sql)

            yield Connected(connection, False, begin, commit, roll_back, execute)
            if connection.in_atomic_block:
                roll_back()

    return opened


KINDS = [
    Kind(
        "django",
        database,
        # With PyMySQL in its place where mysqlclient is not installed.
        ["django", {"postgres": "psycopg", "mysql": "pymysql", "sqlite": "sqlite3"}[database]],
        opened_with(),
        autocommit=opened_with(),
        oddly=opened_with(
            TIME_ZONE="Asia/Tokyo", **({"OPTIONS": {"server_side_binding": True}} if database == "postgres" else {})
        ),
        repeatable=opened_with(OPTIONS={"isolation_level": level}) if level is not None else None,
    )
    for database, level in [("postgres", 3), ("mysql", "repeatable read"), ("sqlite", None)]
]
