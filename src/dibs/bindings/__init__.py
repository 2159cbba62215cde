"""Connections: `bind` for those that a user brings, `connector` for dibs' own."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import replace

from dibs.bindings.binding import AsyncBinding, Binding, OwnConnection
from dibs.bindings.kinds import bind, is_async
from dibs.bindings.refusals import no_driver
from dibs.dialects.urls import DatabaseUrl

__all__ = ["AsyncBinding", "Binding", "OwnConnection", "bind", "connector", "is_async"]

#: Scheme of a URL → the module here that connects, the package it needs, and the extra that brings it.
_OWN = {
    "postgresql": ("own_psycopg", "psycopg", "postgres"),
    "mysql": ("own_pymysql", "PyMySQL", "mysql"),
    "mariadb": ("own_pymysql", "PyMySQL", "mysql"),
    "sqlite": ("own_sqlite3", "sqlite3", ""),
}


def connector(url: DatabaseUrl, *, password: Callable[[], str] | None = None) -> Callable[[str], OwnConnection]:
    """Return what opens dibs' own connections to `url`; it takes the name to connect under.

    `password` is asked at each connect, where passwords expire.

    Nothing is imported and nothing opened before it is called.
    """
    module, package, extra = _OWN[url.scheme]
    if url.scheme == "sqlite":
        url = replace(url, database=os.path.abspath(url.database))  # whoever changes directory means the same file

    def connect(name: str) -> OwnConnection:
        try:
            own = importlib.import_module(f"dibs.bindings.{module}")
        except ImportError as error:
            raise no_driver(package, extra, error) from error
        to = url if password is None else replace(url, password=password())
        connection: OwnConnection = own.connect(to, name=name)
        return connection

    return connect
