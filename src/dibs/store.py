"""dibs' own connections: a few per process, opened late, blocking. One op is one transaction.

What the database's troubles mean is decided here and nowhere else, and never inside a user's transaction: a
conflict, or a connection lost before COMMIT was sent, is tried again; lost while a commit was under way, the
outcome is unknown, and only what may be asked twice is asked twice.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from typing import NoReturn, TypeVar
from weakref import WeakSet

from dibs import migrations, ops
from dibs.bindings.binding import OwnConnection
from dibs.dialects.dialect import Dialect
from dibs.errors import (
    DatabaseError,
    DatabaseUnavailable,
    OutcomeUnknown,
    ReadOnlyDatabase,
    SchemaError,
    UnsuitableDatabase,
)
from dibs.ops import Op
from dibs.troubles import Trouble

T = TypeVar("T")

#: How often one op is tried where trying again can help, and how long the pause after the n-th try grows.
TRIES = 12
FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.5

#: A lock timeout is seconds long already, so it is not waited for as often.
LOCKED_TRIES = 4

#: A connection idle for longer is asked a question before work that must not be sent twice goes over it.
FRESH = 1.0

#: Connections of a parent process, kept from being closed by their finalizers in the child: the parent uses them.
_inherited: list[object] = []


#: The stores of this process. Without a lock, which a child would find as it was.
_stores: WeakSet[Store] = WeakSet()

#: How long (seconds) a fork waits for what is under way on connections that must not be open then.
FORK_WAITS = 5.0


class RowLocked(DatabaseError):
    """Somebody's transaction holds a row that was wanted in haste."""


class Store:
    """Runs ops on connections of dibs' own. Safe to share between threads, and across a fork."""

    def __init__(
        self,
        dialect: Dialect,
        connect: Callable[[str], OwnConnection],
        *,
        name: str = "dibs",
        size: int = 5,
        gap: float = 15.0,
        prepare: bool = True,
    ) -> None:
        """`size` is how many connections at most; `gap` seconds without contact end a spell of reachability."""
        self.dialect = dialect
        self.name = name
        self._connect = connect
        self._size = size
        self._gap = gap
        self._prepare = prepare
        #: Is it for a worker's statements alone, which all go by an index?
        self.by_index = False
        self._dice = random.Random()
        self._may_be_forked = False  # until a connection says that it may: the first one may be under way
        self._reset()
        _stores.add(self)

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[tuple[OwnConnection, float]] = []
        self._places = threading.BoundedSemaphore(self._size)
        self._held = 0  # places, by a fork that is under way
        self._reachable_since: float | None = None
        self._last_contact = 0.0
        #: Is an op under way, and when (monotonic) did the last one end? Of use where one thread has this store to itself.
        self.asking = False
        self.asked = 0.0
        self.connections = 0  # made so far: when it grows, it may be another server
        self.session: int | None = None  # what the server calls the newest connection, where there is a server

    def _before_fork(self, end: float) -> None:
        """Close the connections that must not be open when this process forks, and let none be used until it has.

        What is under way is waited for until `end` (monotonic).
        """
        if self._may_be_forked or self._process != os.getpid():
            return
        while self._held < self._size and self._places.acquire(timeout=max(end - time.monotonic(), 0.0)):
            self._held += 1
        if self._held == self._size:
            self.close()

    def _after_fork(self) -> None:
        while self._held:
            self._held -= 1
            self._places.release()

    def _notice_fork(self) -> None:
        if os.getpid() != self._process:
            _inherited.append(self._idle)
            self._reset()

    # -- running ops -----------------------------------------------------------------------------

    def run(self, make: Callable[[], Op[T]], *, once: bool = False, persistent: bool = True, haste: bool = False) -> T:
        """Run the op that `make` makes, in a transaction of its own; return its result.

        `make` is called anew for every try. `once` says that it must not be carried out twice: then a
        connection lost during its commit raises OutcomeUnknown. What is not `persistent` is tried once: nothing depends
        on it. `haste`: a lock that is not to be had raises RowLocked and is not tried for again. Raises
        DatabaseUnavailable, ReadOnlyDatabase, UnsuitableDatabase, SchemaError or DatabaseError.
        """
        self._notice_fork()
        with self._places:
            self.asking = True
            try:
                return self._run(make, once=once, tries=TRIES if persistent else 1, haste=haste)
            finally:
                self.asking = False
                self.asked = time.monotonic()

    def _run(self, make: Callable[[], Op[T]], *, once: bool, tries: int, haste: bool) -> T:
        for attempt in range(1, tries + 1):
            connection = self._take(fresh=once)
            committing = [False]
            try:
                result = self._transact(connection, make(), committing)
            except Exception as error:
                if haste and connection.trouble(error) is Trouble.LOCKED:
                    self._roll_back(connection)
                    raise RowLocked(str(error)) from error
                self._judge(error, connection, attempt=attempt, tries=tries, once=once, committing=committing[0])
                continue
            except BaseException:  # Ctrl-C: nobody will end this transaction, and a traceback may keep it alive
                connection.close()
                raise
            self._give_back(connection)
            return result
        raise AssertionError("the last try either returns or raises")

    def _transact(self, connection: OwnConnection, op: Op[T], committing: list[bool]) -> T:
        """Run an op; `committing[0]` turns True once its effects may be there although we see an error."""
        try:
            request = op.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        if request.alone:
            committing[0] = True  # the statement is its own commit
            return ops.run(_resumed(op, request), connection)
        connection.begin()
        result = ops.run(_resumed(op, request), connection)
        committing[0] = True
        connection.commit()
        return result

    def _judge(
        self, error: Exception, connection: OwnConnection, *, attempt: int, tries: int, once: bool, committing: bool
    ) -> None:
        """Return if the op should be tried again, raise what the caller should see otherwise."""
        trouble = connection.trouble(error)
        if trouble in (Trouble.LOST, Trouble.READ_ONLY):
            self._drop_all(connection)
        else:
            self._roll_back(connection)
        if trouble is Trouble.LOST and once and committing:
            raise OutcomeUnknown(
                "the connection was lost while this was being committed: it may have happened or not. "
                "Look before you repeat it, or give the job a key: then repeating it is safe"
            ) from error
        if trouble is Trouble.LOCKED:
            tries = min(tries, LOCKED_TRIES)
        again = trouble in (Trouble.LOST, Trouble.CONFLICT, Trouble.LOCKED)
        if not again or attempt >= tries:
            self._raise(trouble, error)
        pause = min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE)
        time.sleep(pause * self._dice.uniform(0.5, 1.5))

    def _raise(self, trouble: Trouble, error: Exception) -> NoReturn:
        if isinstance(error, DatabaseError):
            raise error
        reason = str(error).strip() or type(error).__name__
        if trouble is Trouble.READ_ONLY:
            raise ReadOnlyDatabase(f"the server takes no writes (a replica, or set read-only): {reason}") from error
        if trouble is Trouble.UNSUITABLE:
            raise UnsuitableDatabase(f"the server is set so that no queue can run on it: {reason}") from error
        if trouble is Trouble.NO_TABLE:
            raise SchemaError(
                f"the tables of dibs are missing or too old ({reason}): run `dibs migrate`, or have `dibs migrate --sql` "
                "run by whoever may"
            ) from error
        if trouble is Trouble.LOST:
            raise DatabaseUnavailable(f"the connection to the database was lost again and again: {reason}") from error
        if trouble is Trouble.LOCKED:
            raise DatabaseUnavailable(f"a lock in the database was not to be had in time: {reason}") from error
        if trouble is Trouble.DENIED:
            raise DatabaseError(f"a privilege is missing: {reason}") from error
        if trouble is Trouble.OTHER and not is_of_a_driver(error):
            raise error
        raise DatabaseError(reason) from error

    def migrate(self) -> list[str]:
        """Make or update the tables; return the names of the migrations that were applied. Safe to run again.

        Raises DatabaseUnavailable, ReadOnlyDatabase, UnsuitableDatabase or DatabaseError.
        """
        self._notice_fork()
        with self._places:
            connection = self._connect(self.name)
            try:
                ops.run(self.dialect.suitable(), connection)
                return migrations.migrate(self.dialect, connection)
            except Exception as error:  # noqa: BLE001 - raised again as what it means
                self._raise(connection.trouble(error), error)
            finally:
                connection.close()

    # -- connections -----------------------------------------------------------------------------

    def open(self) -> OwnConnection:
        """Open a connection for the caller to keep and to close, such as one that listens."""
        return self._connect(self.name)

    def _take(self, *, fresh: bool) -> OwnConnection:
        """Return an idle connection or a new one; with `fresh`, one that has just been heard of."""
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection, since = self._idle.pop()
            if not fresh or time.monotonic() - since < FRESH:
                return connection
            try:
                connection.answer(ops.Fetch("SELECT 1", {}))
            except Exception as error:  # noqa: BLE001 - whatever it says, this connection is not fresh
                del error
                self._drop_all(connection)
            else:
                return connection
        try:
            connection = self._connect(self.name)
            self._may_be_forked = connection.may_be_forked
            self.connections += 1
            self.session = connection.session
        except Exception:
            self._reachable_since = None
            raise
        try:
            if self.by_index:
                connection.prefer_indexes()
            ops.run(self.dialect.suitable(), connection)
            if self._prepare:
                migrations.require(self.dialect, connection)
        except Exception as error:  # noqa: BLE001 - raised again as what it means
            trouble = connection.trouble(error)
            connection.close()
            self._raise(trouble, error)
        return connection

    def _give_back(self, connection: OwnConnection) -> None:
        now = time.monotonic()
        with self._lock:
            if self._reachable_since is None or now - self._last_contact > self._gap:
                self._reachable_since = now
            self._last_contact = now
            self._idle.append((connection, now))

    def _roll_back(self, connection: OwnConnection) -> None:
        try:
            connection.rollback()
        except Exception:  # noqa: BLE001 - a connection that can't roll back is of no use; the server will
            self._drop_all(connection)
        else:
            with self._lock:
                self._idle.append((connection, time.monotonic()))

    def _drop_all(self, connection: OwnConnection) -> None:
        """Close a connection that was lost, and the idle ones, which are likely to share its fate."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._reachable_since = None
        for lost, _ in [(connection, 0.0), *idle]:
            lost.close()

    def reachable(self) -> float:
        """Return for how many seconds the database has been reachable without a gap, as far as this store knows.

        By this process's monotonic clock. Grows only with use: whoever asks must use the store more often than
        its `gap`.
        """
        since = self._reachable_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def contact(self) -> float:
        """When (monotonic) the database last did what it was asked; 0 if it never did."""
        return self._last_contact

    def close(self) -> None:
        """Close the idle connections. The store can still be used; it opens new ones."""
        self._notice_fork()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()


def _resumed(op: Op[T], first: ops.Request) -> Op[T]:
    """Return an op whose first request has been taken already."""
    answer = yield first
    while True:
        try:
            request = op.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = yield request


def _stores_now() -> list[Store]:
    while True:
        try:
            return list(_stores)
        except RuntimeError:  # another thread has just made one
            continue


def _before_fork() -> None:
    end = time.monotonic() + FORK_WAITS
    done: set[Store] = set()
    while new := set(_stores_now()) - done:  # while one is waited for, others may be made
        for store in new:
            store._before_fork(end)
        done |= new


def _after_fork() -> None:
    for store in _stores_now():
        store._after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork)


def is_of_a_driver(error: Exception) -> bool:
    """Does it come from a driver? What PEP 249 calls Error is in its ancestry then."""
    return any(kind.__name__ == "Error" and kind is not Exception for kind in type(error).__mro__)
