"""Connections that are lost on purpose, for real: cut, or ended by the server, at the n-th request.

`before` the request is sent, or `after` it was carried out, so that only its answer is lost. Nothing is pretended:
the socket is shut down, or another session kills this one, and the driver finds out by itself.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any, TypeVar

from conftest import wait_for
from databases import Database
from dibs.bindings.binding import OwnConnection
from dibs.ops import Execute, Fetch, Request
from dibs.store import Store
from dibs.troubles import Trouble

T = TypeVar("T")

WHEN = ["before", "after"]
HOW = ["cut", "killed"]


class Fault:
    """One loss, at the n-th request from when it is armed, counting BEGIN and COMMIT too."""

    def __init__(self, db: Database, at: int, *, when: str, how: str) -> None:
        self.at = at
        self.when = when
        self._db = db
        self._how = how
        self._seen: int | None = None
        self.struck = False
        self.could_have_committed = False  # was it in a COMMIT, or in a statement that is its own?

    def arm(self) -> None:
        self._seen = 0

    def due(self) -> bool:
        """Is it now? Counts the request."""
        if self._seen is None or self.struck:
            return False
        self._seen += 1
        self.struck = self._seen == self.at
        return self.struck

    def strike(self, connection: OwnConnection, session: int) -> None:
        """Lose the connection, and wait until the server has noticed and undone what was open."""
        if self._db.kind == "sqlite":
            connection.close()
            return
        if self._how == "cut":
            _cut(connection)
        else:
            self._db.ask(_kill(self._db, session))
        gone = _sessions(self._db)
        wait_for(lambda: (session,) not in self._db.ask(gone), what="the server to notice", every=0.002)


def _cut(connection: OwnConnection) -> None:
    raw: Any = connection._raw  # type: ignore[attr-defined]
    if hasattr(raw, "pgconn"):
        with socket.socket(fileno=os.dup(raw.fileno())) as copy:
            copy.shutdown(socket.SHUT_RDWR)
    else:
        raw._sock.shutdown(socket.SHUT_RDWR)


def _session(db: Database) -> Request:
    return Fetch("SELECT pg_backend_pid()" if db.kind == "postgres" else "SELECT connection_id()", {})


def _kill(db: Database, session: int) -> Request:
    if db.kind == "postgres":
        return Fetch("SELECT pg_terminate_backend(CAST(:session AS integer))", {"session": session})
    return Execute(f"KILL {session}", {})


def _sessions(db: Database) -> Request:
    if db.kind == "postgres":
        return Fetch("SELECT pid FROM pg_stat_activity", {})
    return Fetch("SELECT id FROM information_schema.processlist", {})


class Failing:
    """One of dibs' own connections, with a fault in it."""

    def __init__(self, real: OwnConnection, db: Database, fault: Fault) -> None:
        self._real = real
        self._fault = fault
        self._session = 0 if db.kind == "sqlite" else real.answer(_session(db))[0][0]
        self.family = real.family
        self.patience = real.patience
        self.may_be_forked = real.may_be_forked
        self.pooled = real.pooled
        self.session = real.session

    def _pass(self, call: Callable[[], T], *, commits: bool) -> T:
        if not self._fault.due():
            return call()
        self._fault.could_have_committed = commits
        if self._fault.when == "after":
            call()
        self._fault.strike(self._real, self._session)
        if self._fault.when == "before":
            return call()  # raises what the driver makes of it
        self._real.answer(Fetch("SELECT 1", {}))
        raise AssertionError("the connection was to be lost")

    def answer(self, request: Request) -> Any:
        return self._pass(lambda: self._real.answer(request), commits=self._real.commits_alone)

    def begin(self, *, writes: bool = True) -> None:
        self._pass(lambda: self._real.begin(writes=writes), commits=False)

    def commit(self) -> None:
        self._pass(self._real.commit, commits=True)

    @property
    def commits_alone(self) -> bool:
        return self._real.commits_alone

    def rollback(self) -> None:
        self._real.rollback()

    def prefer_indexes(self) -> None:
        self._real.prefer_indexes()

    def hear(self, timeout: float) -> list[str]:
        return self._real.hear(timeout)

    def unasked(self) -> bool:
        return self._real.unasked()

    def close(self) -> None:
        self._real.close()

    def trouble(self, error: BaseException) -> Trouble:
        return self._real.trouble(error)


def failing_store(db: Database, fault: Fault) -> Store:
    """Return a store whose connections have this fault in them; its first one is open and idle."""
    app = db.app()
    store = Store(app.dialect, lambda name: Failing(app.store.open(), db, fault), size=1)
    store.run(app.dialect.paused)
    fault.arm()
    return store
