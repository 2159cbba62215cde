"""dibs' own connections to SQLite, over Python's sqlite3."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
from pathlib import Path
from typing import Any

from dibs.bindings.cursors import CHANGES
from dibs.bindings.refusals import odd_parameters, unreachable
from dibs.dialects.urls import DatabaseUrl
from dibs.errors import ConfigurationError, DatabaseFull, DatabaseUnavailable, ReadOnlyDatabase, UnsuitableDatabase
from dibs.ops import Execute, Fetch, Request
from dibs.params import Style, render
from dibs.troubles import Trouble

OLDEST = (3, 35)  # RETURNING
SYNCHRONOUS = ("normal", "full", "extra")

#: How long, in milliseconds, a statement waits for another process's write, unless the URL says otherwise.
BUSY_TIMEOUT = 5000

TROUBLES = {
    sqlite3.SQLITE_BUSY: Trouble.LOCKED,
    sqlite3.SQLITE_BUSY_SNAPSHOT: Trouble.CONFLICT,  # read before somebody else's write, written after it
    sqlite3.SQLITE_LOCKED: Trouble.LOCKED,
    sqlite3.SQLITE_PROTOCOL: Trouble.LOCKED,  # a race for the WAL's index
    sqlite3.SQLITE_READONLY: Trouble.READ_ONLY,
    sqlite3.SQLITE_READONLY_DBMOVED: Trouble.LOST,
    sqlite3.SQLITE_PERM: Trouble.DENIED,
    sqlite3.SQLITE_AUTH: Trouble.DENIED,
    sqlite3.SQLITE_NOTADB: Trouble.UNSUITABLE,
    sqlite3.SQLITE_CORRUPT: Trouble.UNSUITABLE,
    # The disk is full or fails, the file can't be opened: over when somebody has seen to it, like an outage.
    sqlite3.SQLITE_FULL: Trouble.FULL,
    sqlite3.SQLITE_IOERR: Trouble.FULL,
    sqlite3.SQLITE_IOERR_FSYNC: Trouble.LOST,  # it was written, and may be there after a crash
    sqlite3.SQLITE_CANTOPEN: Trouble.LOST,
}


def connect(url: DatabaseUrl, *, name: str) -> OwnSqlite3:
    """Open the file, making it if there is none; raise DatabaseUnavailable or ConfigurationError.

    The URL's parameters: `synchronous=normal|full|extra` (full) and `busy_timeout` in milliseconds (5000).
    """
    del name  # a file does not care who opened it
    synchronous, busy_timeout = _parameters(url)
    path = Path(url.database)
    if not path.parent.is_dir():
        raise DatabaseUnavailable(f"cannot open {url}: there is no directory {path.parent}")
    try:
        raw = sqlite3.connect(
            path,
            timeout=0,  # waiting is ours, see `_patiently`
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
    except sqlite3.Error as error:
        raise unreachable(url, str(error)) from error
    try:
        _set_up(raw, synchronous, patience=max(busy_timeout / 1000, 5.0))
    except sqlite3.Error as error:
        raw.close()
        raise _unusable(url, error) from error
    except UnsuitableDatabase as error:
        raw.close()
        raise UnsuitableDatabase(f"{url} {error}") from None
    return OwnSqlite3(raw, busy_timeout / 1000, path)


def _parameters(url: DatabaseUrl) -> tuple[str, int]:
    if sqlite3.sqlite_version_info < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ConfigurationError(
            f"this Python has SQLite {sqlite3.sqlite_version}; dibs needs {oldest} or later: take a newer one"
        )
    if odd := odd_parameters(url, ("synchronous", "busy_timeout")):
        raise odd
    synchronous = url.query.get("synchronous", "full").lower()
    if synchronous not in SYNCHRONOUS:
        raise ConfigurationError(f"synchronous={synchronous} in {url}: write one of {', '.join(SYNCHRONOUS)}")
    busy_timeout = url.query.get("busy_timeout", str(BUSY_TIMEOUT))
    if not busy_timeout.isdigit():
        raise ConfigurationError(f"busy_timeout={busy_timeout} in {url}: write a whole number of milliseconds")
    return synchronous, int(busy_timeout)


def _set_up(raw: sqlite3.Connection, synchronous: str, *, patience: float) -> None:
    """Set the journal and how it is written. Raise UnsuitableDatabase where there can be no WAL."""
    deadline = time.monotonic() + patience
    while True:
        try:
            mode = raw.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as error:
            # The change to WAL does not wait as other statements do when another process is making it.
            if trouble(error) is not Trouble.LOCKED or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    if mode != "wal":
        raise UnsuitableDatabase(
            f"cannot be put into WAL mode, only into {mode!r}: put the file on a local disk, where "
            "processes can share memory over it"
        )
    raw.execute(f"PRAGMA synchronous = {synchronous}")
    raw.execute("PRAGMA foreign_keys = OFF")
    _forget_statistics(raw)


def _forget_statistics(raw: sqlite3.Connection) -> None:
    """Plan our tables without statistics.

    An ANALYZE of a nearly empty queue, by a person or another library, lets later plans scan the full table.
    Without any the indexes are used, which on these tables is right whatever is in them.
    """
    with contextlib.suppress(sqlite3.OperationalError):  # locked just now: another connection will do it
        if raw.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'sqlite_stat1'").fetchone()[0]:
            ours = raw.execute("SELECT count(*) FROM sqlite_stat1 WHERE tbl LIKE 'dibs\\_%' ESCAPE '\\'").fetchone()[0]
            if ours:
                raw.execute("DELETE FROM sqlite_stat1 WHERE tbl LIKE 'dibs\\_%' ESCAPE '\\'")
                raw.execute("ANALYZE sqlite_schema")


def _unusable(url: DatabaseUrl, error: sqlite3.Error) -> Exception:
    kind = trouble(error)
    if kind is Trouble.READ_ONLY:
        return ReadOnlyDatabase(f"{url} cannot be written ({error}): its file and its directory must be writable")
    if kind is Trouble.UNSUITABLE:
        return UnsuitableDatabase(f"{url} cannot be used: {error}")
    if kind is Trouble.FULL:
        return DatabaseFull(f"{url} has no room for this, or its disk fails: {error}")
    return unreachable(url, str(error))


class _Replaced(sqlite3.OperationalError):
    """Another file is there now."""


class OwnSqlite3:
    """One file, one writer: `begin` takes the write lock at once, so no op fails half-way for want of it."""

    family = "sqlite"
    # It keeps what it has locked by the process and file: a child would count the parent's locks as its own, write without
    # any, and lose what it wrote when the parent closes. Its mutexes, too, are inherited as they are.
    may_be_forked = False
    pooled = False
    session: int | None = None  # there is no server
    patience: float | None = None  # there is no peer to wait for; where it is given, locks are not waited for longer

    def __init__(self, raw: sqlite3.Connection, busy_timeout: float, path: Path | None = None) -> None:
        self._raw = raw
        self._busy_timeout = busy_timeout
        self._path = path  # None for a database in memory
        self._file = _file_at(path)

    def _must_be_there(self) -> None:
        """See to it that this is still the file which others find under its name.

        SQLite would go on in one that was deleted or moved away: nobody would ever see what is written there.
        """
        there = _file_at(self._path)
        if there is None and self._file is not None:
            raise DatabaseUnavailable(f"the file {self._path} is gone: put it back, or start anew with `dibs migrate`")
        if there != self._file:
            raise _Replaced(f"another file is at {self._path} now")

    def _patiently(self, text: str, values: Any = ()) -> sqlite3.Cursor:
        """Execute; while another process writes, ask again every few milliseconds.

        SQLite's own busy handler sleeps longer each time and so starves behind processes that come and go
        (measured with four busy ones: single waits of 4 s, with these even pauses 0.55 s at most).
        """
        patience = self._busy_timeout if self.patience is None else min(self.patience, self._busy_timeout)
        deadline = time.monotonic() + patience
        while True:
            try:
                return self._raw.execute(text, values)
            except sqlite3.OperationalError as error:
                busy = trouble(error) is Trouble.LOCKED and not self._raw.in_transaction
                if not busy or time.monotonic() > deadline:
                    raise
            time.sleep(random.uniform(0.002, 0.006))

    def answer(self, request: Request) -> Any:
        if not self._raw.in_transaction:
            self._must_be_there()
        cursor = self._patiently(render(request.sql, Style.NAMED).text, request.values)
        if isinstance(request, Fetch):
            return cursor.fetchall()
        if isinstance(request, Execute) and cursor.rowcount >= 0:
            return cursor.rowcount
        cursor.close()
        return self._raw.execute(CHANGES).fetchone()[0] if isinstance(request, Execute) else cursor.lastrowid

    @property
    def commits_alone(self) -> bool:
        return not self._raw.in_transaction

    def begin(self, *, writes: bool = True) -> None:
        self._must_be_there()
        self._patiently("BEGIN IMMEDIATE" if writes else "BEGIN")

    def commit(self) -> None:
        self._raw.execute("COMMIT")

    def rollback(self) -> None:
        if self._raw.in_transaction:
            self._raw.execute("ROLLBACK")

    def prefer_indexes(self) -> None:
        """Its planner has no statistics to go by, see `_forget_statistics`."""

    def hear(self, timeout: float) -> list[str]:
        raise NotImplementedError("SQLite tells nobody anything")

    def unasked(self) -> bool:
        return _file_at(self._path) != self._file

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._raw.close()

    def trouble(self, error: BaseException) -> Trouble:
        return trouble(error)


def _file_at(path: Path | None) -> tuple[int, int] | None:
    """Return what the system calls the file at a path; None if there is none."""
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def trouble(error: BaseException) -> Trouble:
    """Say what kind of trouble an error of sqlite3's is."""
    if isinstance(error, _Replaced):
        return Trouble.LOST
    if not isinstance(error, sqlite3.Error):
        return Trouble.OTHER
    said = str(error)
    if said.startswith("no such table") or "no such column" in said or "has no column named" in said:
        return Trouble.NO_TABLE
    if "closed database" in said:
        return Trouble.LOST
    code = getattr(error, "sqlite_errorcode", 0)
    return TROUBLES.get(code) or TROUBLES.get(code & 0xFF, Trouble.OTHER)
