"""One fault in a process, at its n-th request to the database: it dies, or loses the connection that it asks on.

Every request counts: those of dibs' own connections with their BEGIN and COMMIT, and those of the user's, which go over
SQLAlchemy. Nothing is pretended: the process is killed by the system, the socket is shut down, the session is ended by
another one; the driver finds out by itself.
"""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

import psycopg
from sqlalchemy import Engine

from dibs import Dibs
from dibs.bindings import connector
from dibs.bindings.binding import OwnConnection
from dibs.bindings.inside import inside
from dibs.dialects.dialect import Dialect
from dibs.ops import Fetch, Request
from dibs.store import Store
from faults.book import Book
from faults.orders import How, When

T = TypeVar("T")

WRITES = 2  # what psycopg's generators wait for: 1 to read, 2 to write


class Fault:
    """What happens at the n-th request of this process, counted over all its threads and connections."""

    def __init__(self, at: int, when: When, how: How, *, url: str, book: Book) -> None:
        self.at = at
        self.when = when
        self.how = how
        self.seen = 0
        self.labels: set[str] = set()
        self._url = url
        self._book = book
        self._lock = threading.Lock()

    def step(self, label: str, raw: Any, call: Callable[[], T]) -> T:
        """Make a request, with the fault in it if it is its turn."""
        with self._lock:
            self.seen += 1
            mine = self.seen == self.at
            self.labels.add(label)
        if not mine:
            return call()
        self._book.write("struck", number=self.at, detail=label)
        if self.when is When.BEFORE:
            self._strike(raw)
            return call()
        if self.when is When.DURING:
            with_strike(raw, lambda: self._strike(raw))
        try:
            result = call()
        finally:
            without_strike(raw)
        if self.when is When.AFTER:
            self._strike(raw)
        return result

    def _strike(self, raw: Any) -> None:
        if self.how is How.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        elif isinstance(raw, sqlite3.Connection):
            raw.rollback()  # closed with a cursor open it would keep its lock until that is collected
            raw.close()
        elif self.how is How.CUT:
            if isinstance(raw, psycopg.Connection):
                with socket.socket(fileno=os.dup(raw.fileno())) as copy:
                    copy.shutdown(socket.SHUT_RDWR)
            else:
                raw._sock.shutdown(socket.SHUT_RDWR)
        else:
            _end_session(self._url, raw)


def _end_session(url: str, raw: Any) -> None:
    """End a session and wait until it is gone, so that it can't answer any more."""
    if isinstance(raw, psycopg.Connection):
        number = raw.info.backend_pid
        end, left = f"SELECT pg_terminate_backend({number})", f"SELECT 1 FROM pg_stat_activity WHERE pid = {number}"
    else:
        number = raw.thread_id()
        end, left = f"KILL {number}", f"SELECT 1 FROM information_schema.processlist WHERE id = {number}"
    connection = Dibs(url).store.open()
    try:
        connection.answer(Fetch(end, {}))
        give_up = time.monotonic() + 5
        while connection.answer(Fetch(left, {})) and time.monotonic() < give_up:
            time.sleep(0.002)
    finally:
        connection.close()


# -- between a request that was sent and its answer ----------------------------------------------------------


def with_strike(raw: Any, strike: Callable[[], None]) -> None:
    """Have `strike` called once when this driver's connection has sent its next request and not read the answer."""
    if isinstance(raw, psycopg.Connection):
        wait = raw.wait

        def striking(gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
            struck = False
            try:
                wanted = next(gen)
                while True:
                    if not struck and not wanted & WRITES:
                        struck = True
                        strike()
                    wanted = gen.send((yield wanted))
            except StopIteration as end:
                return end.value

        raw.wait = lambda gen, *how, **named: wait(striking(gen), *how, **named)  # type: ignore[method-assign]
    elif isinstance(raw, sqlite3.Connection):  # in this process: after some steps of the statement's program
        raw.set_progress_handler(strike, 5)
    else:
        read = raw._read_packet

        def reading(*how: Any, **named: Any) -> Any:
            raw._read_packet = read
            strike()
            return read(*how, **named)

        raw._read_packet = reading


def without_strike(raw: Any) -> None:
    """Have the connection as it was."""
    if isinstance(raw, psycopg.Connection):
        vars(raw).pop("wait", None)
    elif isinstance(raw, sqlite3.Connection):
        try:
            raw.set_progress_handler(None, 0)
        except sqlite3.ProgrammingError:  # closed
            return
    else:
        vars(raw).pop("_read_packet", None)


# -- the two kinds of connections ------------------------------------------------------------------------------


class Struck:
    """One of dibs' own connections, whose requests count."""

    def __init__(self, real: OwnConnection, dialect: Dialect, fault: Fault) -> None:
        self._real = real
        self._raw = inside(real)
        self._fault = fault
        self._names = names(dialect)
        self._op = "nothing"  # the last statement, after which a COMMIT is called

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def answer(self, request: Request) -> Any:
        self._op = self._names.get(request.sql, request.sql.strip()[:30])
        return self._fault.step(self._op, self._raw, lambda: self._real.answer(request))

    def begin(self, *, writes: bool = True) -> None:
        self._fault.step("BEGIN", self._raw, lambda: self._real.begin(writes=writes))

    def commit(self) -> None:
        self._fault.step(f"COMMIT after {self._op}", self._raw, self._real.commit)


def names(dialect: Dialect) -> dict[str, str]:
    """Return what this dialect's statements are called."""
    constants = [name for name in dir(dialect) if name.isupper() and isinstance(getattr(dialect, name), str)]
    return {getattr(dialect, name): name for name in constants}


def put_into(app: Dibs, engine: Engine, fault: Fault) -> None:
    """Have every request of this app, and of the user's engine, count."""

    def new_store(*, name: str = "dibs", size: int = 5, gap: float = 15.0) -> Store:
        connect = connector(app.url)
        return Store(
            app.dialect,
            lambda name: cast("OwnConnection", Struck(connect(name), app.dialect, fault)),
            name=name,
            size=size,
            gap=gap,
        )

    app.new_store = new_store  # type: ignore[method-assign]
    dialect: Any = engine.dialect
    execute, commit = dialect.do_execute, dialect.do_commit
    known = names(app.dialect)
    by_beginning = {" ".join(text.split())[:60]: name for text, name in known.items()}
    last = ["nothing"]

    def counted_execute(cursor: Any, statement: str, *rest: Any, **named: Any) -> None:
        beginning = " ".join(statement.split())
        last[0] = f"the user's {by_beginning.get(beginning[:60], beginning[:24])}"
        fault.step(last[0], cursor.connection, lambda: execute(cursor, statement, *rest, **named))

    def counted_commit(connection: Any) -> None:
        raw = getattr(connection, "driver_connection", connection)
        fault.step("the user's COMMIT", raw, lambda: commit(connection))

    dialect.do_execute, dialect.do_commit = counted_execute, counted_commit
