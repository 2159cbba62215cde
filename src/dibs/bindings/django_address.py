"""Where one of Django's connections leads: its settings, as the URL that dibs' own connections go by.

Read from the connection and not from the project's settings: a test run puts other databases in their place.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from dibs.dialects.urls import DatabaseUrl
from dibs.errors import ConfigurationError, DatabaseUnavailable

#: OPTIONS that are Django's own, not the client library's.
_DJANGOS = {"isolation_level", "pool", "server_side_binding", "assume_role", "cursor_factory", "client_encoding"}

#: OPTIONS of mysqlclient and PyMySQL that mean something to dibs' own connections, too.
_MYSQL = ("connect_timeout", "read_timeout", "write_timeout", "unix_socket", "ssl_mode")

#: What differs between two addresses; a password may change while the address is the same.
_FINGERPRINT = ("ENGINE", "NAME", "HOST", "PORT", "USER")


def fingerprint(connection: Any) -> tuple[str, ...]:
    """Return what tells cheaply whether a connection still leads where it led."""
    return tuple(str(connection.settings_dict.get(name) or "") for name in _FINGERPRINT)


def knows(connection: Any) -> bool:
    """Is this a connection to a kind of database that a queue can be kept in?"""
    return connection.vendor in _ADDRESSES


def can_be_shared(connection: Any) -> bool:
    """Can connections other than Django's reach the database? A database in memory they cannot."""
    return not (connection.vendor == "sqlite" and connection.is_in_memory_db())


def password(connection: Any) -> str:
    """Return the password as it is set now."""
    return str(connection.settings_dict.get("PASSWORD") or "")


def address(connection: Any) -> DatabaseUrl:
    """Return the URL of the database that a Django connection is for.

    Raises ConfigurationError for a database that no queue can be kept in.
    """
    if not knows(connection):
        raise ConfigurationError(
            f"Django calls the database of {connection.alias!r} {connection.vendor!r}, which no queue can be kept in: "
            'name another one with DIBS = {"DATABASE": …}'
        )
    return _ADDRESSES[connection.vendor](connection, connection.settings_dict)


def _of_postgresql(connection: Any, settings: dict[str, Any]) -> DatabaseUrl:
    options: dict[str, Any] = settings.get("OPTIONS") or {}
    query = {
        name: str(int(value) if isinstance(value, bool) else value)
        for name, value in options.items()
        if name not in _DJANGOS and isinstance(value, str | int | float | os.PathLike)
    }
    if role := options.get("assume_role"):
        query["options"] = f"{query.get('options', '')} -c role={role}".strip()
    return _server("postgresql", settings, query)


def _of_mysql(connection: Any, settings: dict[str, Any]) -> DatabaseUrl:
    options: dict[str, Any] = settings.get("OPTIONS") or {}
    if "read_default_file" in options and not settings.get("USER"):
        raise ConfigurationError(
            f"DATABASES[{connection.alias!r}] reads its address from a file (read_default_file), which dibs does not: "
            "write HOST, NAME, USER and PASSWORD in the settings"
        )
    query = {name: str(options[name]) for name in _MYSQL if options.get(name) is not None}
    tls = options.get("ssl")
    if isinstance(tls, dict):
        query |= {f"ssl_{name}": str(tls[name]) for name in ("ca", "cert", "key") if tls.get(name)}
        if tls.get("check_hostname") and "ssl_mode" not in query:
            query["ssl_mode"] = "VERIFY_IDENTITY"
    if tls and not any(name.startswith("ssl_") for name in query):
        query["ssl_mode"] = "REQUIRED"
    if str(settings.get("HOST") or "").startswith("/"):
        settings = {**settings, "HOST": "", "PORT": ""}
        query.setdefault("unix_socket", connection.settings_dict["HOST"])
    return _server("mariadb" if _is_mariadb(connection) else "mysql", settings, query)


def _is_mariadb(connection: Any) -> bool:
    """Ask the server, once for each of Django's connections: to Django the two are one."""
    from django.db import OperationalError

    try:
        return bool(connection.mysql_is_mariadb)
    except OperationalError as error:
        raise DatabaseUnavailable(f"cannot connect to the database of {connection.alias!r}: {error}") from error


def _of_sqlite(connection: Any, settings: dict[str, Any]) -> DatabaseUrl:
    name = str(settings["NAME"])
    if name.startswith("file:") and can_be_shared(connection):
        raise ConfigurationError(f"DATABASES[{connection.alias!r}] names its file as {name}: write the path alone")
    timeout = (settings.get("OPTIONS") or {}).get("timeout")
    query = {} if timeout is None else {"busy_timeout": str(int(float(timeout) * 1000))}
    return DatabaseUrl(scheme="sqlite", database=name, query=query)


_ADDRESSES: dict[str, Callable[[Any, dict[str, Any]], DatabaseUrl]] = {  # by Django's `vendor`
    "postgresql": _of_postgresql,
    "mysql": _of_mysql,
    "sqlite": _of_sqlite,
}


def _server(scheme: str, settings: dict[str, Any], query: dict[str, str]) -> DatabaseUrl:
    host, port = str(settings.get("HOST") or ""), str(settings.get("PORT") or "")
    several = "," in host
    if several:
        ports = port.split(",") if "," in port else [port] * (host.count(",") + 1)
        hosts = ",".join(
            f"{quote(each)}:{its}" if its else quote(each) for each, its in zip(host.split(","), ports, strict=False)
        )
    else:
        shown = f"[{host}]" if ":" in host else quote(host, safe="")
        hosts = f"{shown}:{port}" if port else shown
    return DatabaseUrl(
        scheme=scheme,
        host="" if several else host,
        port=int(port) if port.isdigit() and not several else None,
        user=str(settings.get("USER") or ""),
        password=str(settings.get("PASSWORD") or ""),
        database=str(settings.get("NAME") or ""),
        query=query,
        hosts=hosts,
    )
