"""The databases that the tests run on: real ones, each with a database of this run's own.

Which there are comes from the environment (scripts/test starts the servers and sets it); SQLite is always there.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from dibs import Dibs
from dibs.bindings.binding import OwnConnection
from dibs.ops import Execute, Fetch, Request
from dibs.troubles import Trouble

#: Name in test ids → the variable with the URL of a server where databases may be made and dropped.
VARIABLES = {
    "postgres": "DIBS_TEST_POSTGRES_URL",
    "postgres14": "DIBS_TEST_POSTGRES_14_URL",
    "mysql": "DIBS_TEST_MYSQL_URL",
    "mariadb": "DIBS_TEST_MARIADB_URL",
    "mariadb11": "DIBS_TEST_MARIADB_11_URL",
}
NAMES = [
    name
    for name in ("sqlite", *VARIABLES)
    if (name == "sqlite" or os.environ.get(VARIABLES[name])) and os.environ.get("DIBS_TEST_ONLY") in (None, "", name)
]

#: In the order in which rows may be deleted; there are no foreign keys between them.
TABLES = ("dibs_jobs", "dibs_keys", "dibs_loose_keys", "dibs_duplicates", "dibs_queues", "dibs_workers")


@dataclass
class Database:
    """A migrated database of this run's own, emptied between tests."""

    name: str
    url: str
    _behind: OwnConnection | None = field(default=None, init=False, repr=False, compare=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False, compare=False)

    @property
    def kind(self) -> str:
        """Which SQL it speaks: "postgres", "mysql" (MariaDB too) or "sqlite"."""
        return "mysql" if self.name.startswith("m") else self.name.removesuffix("14")

    @property
    def locks_rows(self) -> bool:
        """Can several transactions write at the same time, each locking the rows that it writes?"""
        return self.kind != "sqlite"

    @property
    def refuses_old_snapshots(self) -> bool:
        """At REPEATABLE READ, is it an error to lock a row that was written since the snapshot?"""
        return self.kind == "postgres"

    def app(self, **settings: Any) -> Dibs:
        """Return an app without tasks."""
        return Dibs(self.url, **settings)

    def connect(self) -> OwnConnection:
        """Open one of dibs' own connections, to look at rows or to hold a transaction open."""
        return self.app().store.open()

    def ask(self, request: Request) -> Any:
        """Ask the database itself, on a connection of the tests' own that is kept (making one takes longer than most
        tests do) and made anew when it was lost."""
        with self._lock:
            for last in (False, True):
                if self._behind is None:
                    self._behind = self.connect()
                try:
                    return self._behind.answer(request)
                except Exception as error:
                    lost = self._behind.trouble(error) is Trouble.LOST
                    if lost:
                        self._behind.close()
                        self._behind = None
                    if last or not lost:
                        raise
        raise AssertionError("the last try either returns or raises")

    def fetch(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        """Ask behind dibs' back."""
        rows: list[tuple[Any, ...]] = self.ask(Fetch(sql, values))
        return rows

    def execute(self, sql: str, **values: Any) -> int:
        """Change something behind dibs' back; return the number of rows."""
        changed: int = self.ask(Execute(sql, values))
        return changed

    def empty(self) -> None:
        for table in TABLES:
            self.execute(f"DELETE FROM {table}")
        self.execute("UPDATE dibs_chores SET next_at = '2000-01-01 00:00:00'")

    def close(self) -> None:
        with self._lock:
            if self._behind is not None:
                self._behind.close()
                self._behind = None


def migrated(name: str, folder: Path) -> Iterator[Database]:
    """Make a database of this run's own and drop it at the end."""
    if name == "sqlite":
        url = f"sqlite:///{folder / 'dibs.db'}"
        _migrate(url)
        database = Database(name, url)
        yield database
        database.close()
        return
    with new_database(name) as url:
        _migrate(url)
        database = Database(name, url)
        yield database
        database.close()


class new_database:  # noqa: N801 - used like a function
    """An empty database, without tables, on the server of that name; dropped at the end."""

    def __init__(self, name: str) -> None:
        self._server = os.environ[VARIABLES[name]]
        self._database = f"dibs_test_{uuid.uuid4().hex[:12]}"

    def _run(self, sql: str) -> None:
        connection = Dibs(self._server).store.open()
        try:
            connection.answer(Execute(sql, {}))
        finally:
            connection.close()

    def __enter__(self) -> str:
        self._run(f"CREATE DATABASE {self._database}")
        return urlunsplit(urlsplit(self._server)._replace(path=f"/{self._database}"))

    def __exit__(self, *_: object) -> None:
        if self._server.startswith("postgres"):  # it refuses while somebody is connected
            self._run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self._database}'")
        self._run(f"DROP DATABASE IF EXISTS {self._database}")


def _migrate(url: str) -> None:
    Dibs(url).migrate()
