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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakSet

from dibs import migrations, ops, overlapping, privileges
from dibs.bindings.binding import OwnConnection
from dibs.dialects.dialect import Dialect
from dibs.errors import DatabaseError, MissingPrivilege, OutcomeUnknown
from dibs.meanings import raise_as
from dibs.ops import Op
from dibs.troubles import Trouble

T = TypeVar("T")

#: How often one op is tried where trying again can help, and how long the pause after the n-th try grows.
TRIES = 12
FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.5

#: A lock timeout is seconds long already, so it is not waited for as often.
LOCKED_TRIES = 4

#: Where there is no room, a moment's waiting helps only against what takes it for a moment.
FULL_TRIES = 2

#: A server that takes no writes is not asked as often either: if a new connection leads to the same one, it says so.
READ_ONLY_TRIES = 4

#: How often an op is tried, by what went wrong; what is not here would go wrong again.
_TRIES = {
    Trouble.CONFLICT: TRIES,
    Trouble.LOST: TRIES,
    Trouble.LOCKED: LOCKED_TRIES,
    Trouble.FULL: FULL_TRIES,
    Trouble.READ_ONLY: READ_ONLY_TRIES,
}

#: A connection idle for longer is asked a question before work that must not be sent twice goes over it; so is one on
#: which something has come that nobody asked for: that the server is being stopped, or the end.
FRESH = 1.0

#: Connections of a parent process, kept from being closed by their finalizers in the child: the parent uses them.
_inherited: list[object] = []


#: The stores of this process. Without a lock, which a child would find as it was.
_stores: WeakSet[Store] = WeakSet()

#: How long (seconds) a fork waits for what is under way on connections that must not be open then.
FORK_WAITS = 5.0


class RowLocked(DatabaseError):
    """Somebody's transaction holds a row that was wanted in haste."""


@dataclass(slots=True)
class Attempt:
    """One attempt at an op, for whoever has to say what an error in it means."""

    number: int
    of: int
    once: bool
    generation: int
    committing: bool = False  # its effects may be there although we see an error
    sql: str = ""  # the statement that was sent last


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
        #: Called before each connection is made; may raise DatabaseUnavailable, if it is too soon to try again.
        self.admit: Callable[[], None] = lambda: None
        #: How many seconds to wait for an answer, at most; see `OwnConnection`.
        self.patience: float | None = None
        #: Grows when all connections that there are must not be used any more.
        self.generation = 0
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
        for number in range(1, tries + 1):
            generation = self.generation
            connection = self._take(fresh=once)
            attempt = Attempt(number, tries, once, generation)
            try:
                result = self._transact(connection, make(), attempt)
            except Exception as error:
                if haste and connection.trouble(error) is Trouble.LOCKED:
                    self._roll_back(connection, generation)
                    raise RowLocked(str(error)) from error
                self._judge(error, connection, attempt)
                continue
            except BaseException:  # Ctrl-C: nobody will end this transaction, and a traceback may keep it alive
                connection.close()
                raise
            self._give_back(connection, generation)
            return result
        raise AssertionError("the last try either returns or raises")

    def _transact(self, connection: OwnConnection, op: Op[T], attempt: Attempt) -> T:
        try:
            request = op.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        if request.alone:
            attempt.committing = True  # the statement is its own commit
            return ops.run(_resumed(op, request, attempt), connection)
        connection.begin()
        result = overlapping.run(_resumed(op, request, attempt), connection)
        attempt.committing = True
        connection.commit()
        return result

    def _judge(self, error: Exception, connection: OwnConnection, attempt: Attempt) -> None:
        """Return if the op should be tried again, raise what the caller should see otherwise."""
        trouble = connection.trouble(error)
        if trouble is Trouble.DENIED:
            self._deny(error, connection, attempt.sql)
            raise_as(trouble, error)
        if trouble in (Trouble.LOST, Trouble.FULL, Trouble.READ_ONLY):
            self._drop_all(connection)
        else:
            self._roll_back(connection, attempt.generation)
        if trouble is Trouble.LOST and attempt.once and attempt.committing:
            raise OutcomeUnknown(
                "the connection was lost while this was being committed: it may have happened or not. "
                "Look before you repeat it, or give the job a key: then repeating it is safe"
            ) from error
        if trouble not in _TRIES or attempt.number >= min(_TRIES[trouble], attempt.of):
            raise_as(trouble, error)
        pause = min(FIRST_PAUSE * 2 ** (attempt.number - 1), LONGEST_PAUSE)
        time.sleep(pause * self._dice.uniform(0.5, 1.5))

    def _deny(self, error: Exception, connection: OwnConnection, work: str | Iterable[privileges.Privilege]) -> None:
        """Close the connection; raise MissingPrivilege if it can be found out what the work, or a statement, lacks."""
        try:
            connection.rollback()
            needed = privileges.needed_for(self.dialect, work) if isinstance(work, str) else work
            lacking = privileges.missing(self.dialect, connection, needed)
            denied = privileges.error_for(self.dialect, connection, lacking, str(error).strip()) if lacking else None
        except Exception:  # noqa: BLE001 - what the database said has to do then
            denied = None
        finally:
            connection.close()
        if denied is not None:
            raise denied from error

    def require(self, needed: Iterable[privileges.Privilege]) -> None:
        """Raise MissingPrivilege unless the account has all of these; else what a lost connection does."""
        with self._places:
            connection = self._take(fresh=False)
            try:
                privileges.require(self.dialect, connection, needed)
            except MissingPrivilege:
                raise
            except Exception as error:  # noqa: BLE001 - raised again as what it means
                raise_as(connection.trouble(error), error)
            finally:
                connection.close()

    def run_undone(self, make: Callable[[], Op[T]], *, patience: float | None = None) -> T:
        """Run an op on a connection of its own, in a transaction that is undone at once; return its result.

        For a try whether others' locks are in the way. It is tried once. With one writer at a time `patience` is how long
        (seconds) to wait for its place. Raises RowLocked where a lock was not to be had, else as `run`.
        """
        connection = self._connect(self.name)
        try:
            if patience is not None:
                connection.patience = patience
            connection.begin()
            result = ops.run(make(), connection)
            connection.rollback()
        except Exception as error:
            trouble = connection.trouble(error)
            if trouble is Trouble.LOCKED:
                raise RowLocked(str(error)) from error
            raise_as(trouble, error)
        finally:
            connection.close()
        return result

    def migrate(self) -> list[str]:
        """Make or update the tables; return the names of the migrations that were applied. Safe to run again.

        Raises DatabaseUnavailable, ReadOnlyDatabase, UnsuitableDatabase or DatabaseError.
        """
        self._notice_fork()
        with self._places:
            connection = self._connect(self.name)
            try:
                ops.run(self.dialect.suitable(), connection)
                return migrations.migrate(self.dialect, connection, another=lambda: self._connect(self.name))
            except Exception as error:  # noqa: BLE001 - raised again as what it means
                trouble = connection.trouble(error)
                if trouble is Trouble.DENIED:
                    self._deny(error, connection, privileges.TO_MIGRATE)
                raise_as(trouble, error)
            finally:
                connection.close()

    # -- connections -----------------------------------------------------------------------------

    def open(self) -> OwnConnection:
        """Open a connection for the caller to keep and to close, such as one that listens."""
        self.admit()
        connection = self._connect(self.name)
        if self.patience is not None and connection.patience is not None:
            connection.patience = min(connection.patience, self.patience)
        return connection

    def distrust(self) -> None:
        """Use none of the connections again that there are: they may lead to a server that takes no writes any more."""
        with self._lock:
            self.generation += 1
            idle, self._idle = self._idle, []
            self._reachable_since = None
        for connection, _ in idle:
            connection.close()

    def _take(self, *, fresh: bool) -> OwnConnection:
        """Return an idle connection or a new one; with `fresh`, one that has just been heard of."""
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection, since = self._idle.pop()
            if not fresh or (time.monotonic() - since < FRESH and not connection.unasked()):
                return connection
            try:
                connection.answer(ops.Fetch("SELECT 1", {}))
            except DatabaseError:  # it knows that another one would be of no use
                self._give_back(connection, self.generation)
                raise
            except Exception as error:  # noqa: BLE001 - whatever it says, this connection is not fresh
                del error
                self._drop_all(connection)
            else:
                return connection
        return self._make()

    def _make(self, *, again: bool = True) -> OwnConnection:
        """Return a new connection to a database that can be worked on; one that is lost at once is made `again`."""
        try:
            connection = self.open()
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
            if trouble is Trouble.DENIED:
                self._deny(error, connection, self.dialect.qualify(migrations.META))
            connection.close()
            self._reachable_since = None
            if trouble is Trouble.LOST and again:
                return self._make(again=False)
            raise_as(trouble, error)
        return connection

    def _give_back(self, connection: OwnConnection, generation: int) -> None:
        now = time.monotonic()
        with self._lock:
            if generation != self.generation:
                connection.close()
                return
            if self._reachable_since is None or now - self._last_contact > self._gap:
                self._reachable_since = now
            self._last_contact = now
            self._idle.append((connection, now))

    def _roll_back(self, connection: OwnConnection, generation: int) -> None:
        try:
            connection.rollback()
        except Exception:  # noqa: BLE001 - a connection that can't roll back is of no use; the server will
            self._drop_all(connection)
        else:
            with self._lock:
                if generation == self.generation:
                    self._idle.append((connection, time.monotonic()))
                else:
                    connection.close()

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


def _resumed(op: Op[T], request: ops.Request, attempt: Attempt) -> Op[T]:
    """Return an op whose first request has been taken already; the attempt knows the last one."""
    while True:
        attempt.sql = request.sql
        answer = yield request
        try:
            request = op.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result


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
