"""Connections that are not dibs' own: a user's, in whose transactions jobs are enqueued, and one that holds a snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql

_connect_mysql: Any = pymysql.connect  # PyMySQL has no types


def kind_of(url: str) -> str:
    """Return what kind of database a URL is of: postgres, mysql, mariadb or sqlite."""
    return {"postgresql": "postgres"}.get(scheme := urlsplit(url).scheme, scheme)


@contextmanager
def own_connection(url: str) -> Iterator[Any]:
    """Yield a connection of the driver's, in whose transactions nothing is committed before `commit`."""
    parts = urlsplit(url)
    connection: Any
    match kind_of(url):
        case "postgres":
            connection = psycopg.connect(url)
        case "sqlite":
            connection = sqlite3.connect(parts.path.removeprefix("/"), isolation_level=None, check_same_thread=False)
        case _:
            connection = _connect_mysql(
                host=parts.hostname or "",
                port=parts.port or 3306,
                user=parts.username,
                password=parts.password or "",
                database=parts.path[1:],
                charset="utf8mb4",
            )
    with closing(connection):
        yield connection


#: How to get a snapshot that stays: what a report or a backup has while it runs, and a forgotten transaction for ever.
SNAPSHOT = {
    "postgres": ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM dibs_meta"),
    "mysql": ("START TRANSACTION WITH CONSISTENT SNAPSHOT", "SELECT count(*) FROM dibs_meta"),
    "mariadb": ("START TRANSACTION WITH CONSISTENT SNAPSHOT", "SELECT count(*) FROM dibs_meta"),
    "sqlite": ("BEGIN", "SELECT count(*) FROM dibs_meta"),
}


@contextmanager
def snapshot(url: str, *, held: bool = True) -> Iterator[None]:
    """Hold a snapshot open, so that nothing that dies from now on can be cleaned away; with `held=False` do nothing."""
    if not held:
        yield
        return
    with own_connection(url) as connection:
        cursor = connection.cursor()
        for statement in SNAPSHOT[kind_of(url)]:
            cursor.execute(statement)
        cursor.fetchall()
        yield
