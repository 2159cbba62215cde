"""A test's own transaction, as people have it: a session on a connection whose transaction is rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from databases import Database

DRIVERS = {"postgres": "postgresql+psycopg", "mysql": "mysql+pymysql", "sqlite": "sqlite"}
ASYNC_DRIVERS = {"postgres": "postgresql+asyncpg", "mysql": "mysql+aiomysql", "sqlite": "sqlite+aiosqlite"}


def sqlalchemy_url(db: Database, drivers: dict[str, str]) -> str:
    """Return the database's URL with the driver that SQLAlchemy is to use."""
    if db.kind == "sqlite":
        return drivers[db.kind] + db.url[db.url.index("://") :]
    return urlunsplit(urlsplit(db.url)._replace(scheme=drivers[db.kind]))


@pytest.fixture
def engine(db: Database) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(db, DRIVERS))
    yield engine
    engine.dispose()


@pytest.fixture
def connection(engine: sqlalchemy.Engine) -> Iterator[sqlalchemy.Connection]:
    """A connection in a transaction that is never committed."""
    with engine.connect() as connection:
        transaction = connection.begin()
        connection.execute(sqlalchemy.text("CREATE TEMPORARY TABLE notes (text VARCHAR(100))"))
        yield connection
        transaction.rollback()


@pytest.fixture
def session(connection: sqlalchemy.Connection) -> Iterator[Session]:
    """A session whose commits are savepoints."""
    with Session(connection, join_transaction_mode="create_savepoint") as session:
        yield session
