"""Tells of jobs that a rollback took away, on those connections of the user's that say when they roll back.

Listens only: nothing is wrapped, begun or ended. A connection that says nothing (a driver's own) is left alone, and so
is a ROLLBACK that was sent as text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from dibs.bindings.surroundings import kind_of, unwrapped

#: What is called with what was rolled back: pairs of a job's id and its task.
Tell = Callable[[list[tuple[int, str]]], None]


def watch(connection: Any, jobs: Iterable[tuple[int, str]], tell: Tell) -> bool:
    """Call `tell` with these jobs if the open transaction, or the savepoint they were written in, is rolled back.

    Returns False where this kind of connection does not tell.
    """
    wanted = unwrapped(connection)
    kind = kind_of(wanted)
    if kind == "sqlalchemy":
        return _watch_sqlalchemy(wanted, jobs, tell)
    if kind == "django":
        return _watch_django(wanted, jobs, tell)
    return False


# -- SQLAlchemy ------------------------------------------------------------------------------------


class _Written:
    """What was written in one connection's open transaction: jobs, and None where a savepoint was made, in order.

    Savepoints have no names here: SQLAlchemy makes them up after it has told of them. They end innermost first, and
    what ends without having been seen to begin was there before all jobs.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._entries: list[tuple[int, str] | None] = []

    def add(self, jobs: Iterable[tuple[int, str]]) -> None:
        self._entries += jobs

    def begun(self) -> None:
        self._entries.append(None)

    def released(self) -> None:
        if None in self._entries:
            del self._entries[self._innermost()]

    def undone_to_savepoint(self) -> None:
        self._undone_from(self._innermost() if None in self._entries else 0)

    def undone(self) -> None:
        self._undone_from(0)

    def committed(self) -> None:
        self._entries.clear()

    def _innermost(self) -> int:
        return len(self._entries) - 1 - self._entries[::-1].index(None)

    def _undone_from(self, place: int) -> None:
        gone, self._entries = self._entries[place:], self._entries[:place]
        if jobs := [entry for entry in gone if entry is not None]:
            self._tell(jobs)


_written: WeakKeyDictionary[Any, _Written] = WeakKeyDictionary()


def _watch_sqlalchemy(wanted: Any, jobs: Iterable[tuple[int, str]], tell: Tell) -> bool:
    if hasattr(wanted, "registry") and callable(wanted):  # scoped sessions: the one of this thread or task
        wanted = wanted()
    wanted = getattr(wanted, "sync_session", wanted)
    wanted = getattr(wanted, "sync_connection", wanted)
    if hasattr(wanted, "get_bind"):  # a session; the jobs were written over the connection that it has now
        if not wanted.in_transaction():
            return True
        wanted = wanted.connection()
    level = wanted.get_execution_options().get("isolation_level")
    if (level or getattr(wanted.dialect, "_on_connect_isolation_level", None)) == "AUTOCOMMIT":
        return True  # nothing can take them away
    written = _written.get(wanted)
    if written is None:
        written = _written[wanted] = _Written(tell)
        _listen(wanted, written)
    written.add(jobs)
    return True


def _listen(connection: Any, written: _Written) -> None:
    from sqlalchemy import event

    event.listen(connection, "commit", lambda _: written.committed())
    event.listen(connection, "commit_twophase", lambda *_: written.committed())
    event.listen(connection, "rollback", lambda _: written.undone())
    event.listen(connection, "rollback_twophase", lambda *_: written.undone())
    event.listen(connection, "savepoint", lambda *_: written.begun())
    event.listen(connection, "release_savepoint", lambda *_: written.released())
    event.listen(connection, "rollback_savepoint", lambda *_: written.undone_to_savepoint())


# -- Django ----------------------------------------------------------------------------------------


class _UntilCommit:
    """A callback for Django's `on_commit`. Django has none for a rollback: it drops those of the block that was undone,
    and so this one is gone without having been called."""

    def __init__(self, jobs: list[tuple[int, str]], tell: Tell) -> None:
        self._jobs = jobs
        self._tell = tell

    def __call__(self) -> None:
        self._jobs = []

    def __del__(self) -> None:
        if self._jobs and not sys.is_finalizing():
            self._tell(self._jobs)


def _watch_django(connection: Any, jobs: Iterable[tuple[int, str]], tell: Tell) -> bool:
    from django.core import mail
    from django.db import transaction

    # In Django's tests every block is rolled back, and what they assert of the callbacks must not count ours.
    if not connection.in_atomic_block or hasattr(mail, "outbox"):
        return False
    transaction.on_commit(_UntilCommit(list(jobs), tell), using=connection.alias)
    return True
