"""Where a run takes place: a database of its own, on a throwaway server or on one that was given, or a file."""

from __future__ import annotations

import secrets
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from servers import Server, engine

from dibs import Dibs
from dibs.ops import Execute, Fetch, Request
from faults.proxy import Lines

#: How SQLAlchemy calls the drivers that dibs itself uses. SQLite's waits for other writers, as long as dibs does at most.
DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}
KINDS = {"postgresql": "postgres", "postgres": "postgres", "mysql": "mysql", "mariadb": "mariadb", "sqlite": "sqlite"}

#: Where a replica is promoted, and what it is started with: it is soon back after its primary's restart.
HAVE_REPLICAS: dict[str, dict[str, str]] = {"postgres": {"wal_retrieve_retry_interval": "200ms"}, "mysql": {}}


class Ground:
    """One database. `url` leads to it directly, `through(line)` by way of a proxy that may be bad weather."""

    def __init__(self, kind: str, url: str, *, server: Server | None = None, lines: Lines | None = None) -> None:
        self.kind = kind
        self.url = url
        self.server = server  # only where it is ours, so that it may be killed
        self.replica: Server | None = None  # has each commit before it is answered
        self.lines = lines  # only where there is a network

    @property
    def client_url(self) -> str:
        """The URL in SQLAlchemy's spelling, which dibs reads too."""
        if self.lines is None:
            return f"{self.url.replace('sqlite:', 'sqlite+pysqlite:')}?timeout=20"
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(scheme=DRIVERS[parts.scheme]))

    def through(self, line: int) -> str:
        """Return the URL for a client behind the proxy, where there is a network to be behind."""
        if self.lines is None:
            return self.client_url
        parts = urlsplit(self.client_url)
        account = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        return urlunsplit(parts._replace(netloc=f"{account}127.0.0.1:{self.lines.listening(line)}"))

    @property
    def title(self) -> str:
        """The database with its version, as far as that is known."""
        if self.server is not None:
            return str(self.server.engine)
        return f"SQLite {sqlite3.sqlite_version}" if self.kind == "sqlite" else f"the {self.kind} server given"

    def fail_over(self) -> None:
        """Kill the primary and have its replica take its place, for the clients too."""
        assert self.server is not None
        assert self.replica is not None
        assert self.lines is not None
        if self.server.running:
            self.server.kill()
        self.replica.promote()
        self.server, self.replica = self.replica, None
        self.lines.port = self.server.port
        self.url = urlunsplit(urlsplit(self.server.url)._replace(path=urlsplit(self.url).path))

    def ask(self, *requests: Request) -> list[Any]:
        """Ask the database itself, on a connection of its own."""
        return ask(self.url, *requests)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self.ask(Fetch(sql, {}))[0]
        return rows

    def end_sessions(self, line: int) -> int:
        """End the sessions of one client, as an administrator would; return how many there were."""
        assert self.lines is not None
        ports = set(self.lines.ports(line))
        connection = Dibs(self.url).store.open()
        ended = 0
        try:
            if self.kind == "postgres":
                found = connection.answer(Fetch("SELECT pid, client_port FROM pg_stat_activity", {}))
                end = "SELECT pg_terminate_backend({})"
            else:
                listed = connection.answer(Fetch("SELECT id, host FROM information_schema.processlist", {}))
                found = [(number, _port(host or "")) for number, host in listed]
                end = "KILL {}"
            for number, port in found:
                if port in ports:
                    try:
                        connection.answer(Fetch(end.format(number), {}))
                    except Exception as error:
                        if connection.trouble(error).name == "LOST":
                            raise
                        continue  # it has ended by itself
                    ended += 1
        finally:
            connection.close()
        return ended


def _port(host: str) -> int | None:
    """Return the port in `127.0.0.1:50123`; there are threads of the server's that have none."""
    port = host.rpartition(":")[2]
    return int(port) if port.isdigit() else None


def ask(url: str, *requests: Request) -> list[Any]:
    connection = Dibs(url).store.open()
    try:
        return [connection.answer(request) for request in requests]
    finally:
        connection.close()


@contextmanager
def ground(kind: str, url: str | None, *, lines: int, replica: bool = False) -> Iterator[Ground]:
    """Make a database and remove it at the end. With a `url` it is made on that server, which is not ours to kill.

    `lines` is how many clients need one of their own; with `replica` a throwaway server has one that can be promoted. Raises Unavailable where there is no server of the kind to be had.
    """
    with ExitStack() as stack:
        if kind == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dibs-faults-"))
            yield Ground(kind, f"sqlite:///{folder}/queue.db")
            return
        server = follower = None
        if url is None:
            # Durable, since it is going to be killed: without that a server's death may cost the last commits.
            server = stack.enter_context(Server(engine(kind), durable=True))
            server.start()
            if replica and kind in HAVE_REPLICAS:
                follower = stack.enter_context(server.replica(synchronous=True, options=HAVE_REPLICAS[kind]))
            url = server.url
        name = f"dibs_faults_{secrets.token_hex(4)}"
        ask(url, Execute(f"CREATE DATABASE {name}", {}))
        if server is None:
            stack.callback(_drop, kind, url, name)
        parts = urlsplit(url)
        port = parts.port or {"postgres": 5432}.get(kind, 3306)
        proxied = stack.enter_context(Lines(parts.hostname or "127.0.0.1", port, lines))
        place = Ground(kind, urlunsplit(parts._replace(path=f"/{name}")), server=server, lines=proxied)
        place.replica = follower
        yield place


def _drop(kind: str, url: str, name: str) -> None:
    if kind == "postgres":  # it refuses while somebody is connected
        ask(url, Fetch(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'", {}))
    ask(url, Execute(f"DROP DATABASE IF EXISTS {name}", {}))
