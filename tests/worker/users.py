"""Connections as users have them: a driver's or SQLAlchemy's, at its own and the server's default settings."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dibs import Dibs

#: The kinds of connection that there are for each database.
KINDS = ("driver", "Connection", "Session")


def of_driver(app: Dibs) -> Any:
    """Open a connection of the driver: sqlite3, psycopg or PyMySQL."""
    url = app.url
    if url.scheme == "sqlite":
        return sqlite3.connect(Path(url.database))
    if url.scheme == "postgresql":
        import psycopg

        return psycopg.connect(host=url.host, port=url.port, user=url.user, dbname=url.database)
    import pymysql

    return pymysql.connect(  # type: ignore[no-untyped-call]
        host=url.host, port=url.port or 3306, user=url.user, database=url.database
    )


@contextmanager
def users_connection(app: Dibs, kind: str = "driver") -> Iterator[Any]:
    """Open a connection of this kind; what was not committed is rolled back at the end."""
    if kind == "driver":
        raw = of_driver(app)
        try:
            yield raw
            raw.rollback()
        finally:
            raw.close()
        return
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    dialects = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}
    engine = create_engine(f"{dialects.get(app.url.scheme, 'mysql+pymysql')}://", creator=lambda: of_driver(app))
    try:
        with engine.connect() if kind == "Connection" else Session(engine) as connection:
            yield connection
    finally:
        engine.dispose()


def write(connection: Any, sql: str) -> None:
    """Run a statement of the user's on a connection of any kind."""
    if hasattr(connection, "exec_driver_sql"):
        connection.exec_driver_sql(sql)
    elif hasattr(connection, "scalars"):
        from sqlalchemy import text

        connection.execute(text(sql))
    else:
        cursor = connection.cursor()
        cursor.execute(sql)
        cursor.close()
