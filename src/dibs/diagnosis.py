"""Reads what `why` decides by: plain statements, each of which reads some thousands of rows at most, however long the queue.

Nothing is written, and no row stays locked: which rows others hold is told by trying to lock those that are due, as a
claim does, in a transaction that is rolled back at once.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from functools import partial

from dibs.connections import Connections
from dibs.elsewhere import other_halves
from dibs.errors import DatabaseError, DatabaseUnavailable, ReadOnlyDatabase
from dibs.holders import LockHolder
from dibs.jobs import Lane
from dibs.looking import look
from dibs.register import WorkerRecord, alive
from dibs.store import RowLocked
from dibs.why import UPKEEP_LATE, Figures, Half, Why, answered

#: Jobs of one lane that are looked at, and lanes.
MOST_OF_LANE = 500
MOST_LANES = 100

#: Running jobs that are looked at, and rows of what has ended, or is new.
MOST_RUNNING = 1_000
MOST_ENDED = 10_000
MOST_NEW = 500

#: Rows that are tried whether others hold them, and holders that are named.
MOST_TRIED = 500
MOST_HOLDERS = 5

#: Where there is one writer at a time: for so long (seconds) it is tried to write.
WRITER_WAITS = 0.5


def why(app: Connections, queue: str) -> Why:
    """Return why nothing of this queue is being claimed. Raises DatabaseError, or SchemaError, where it can't be asked."""
    return answered(queue, str(app.url), _Look(app, queue).figures())


class _Look:
    def __init__(self, app: Connections, queue: str) -> None:
        self._app = app
        self._store = app.store
        self._dialect = app.dialect
        self._queue = queue
        self._figures = Figures()
        self._serving: list[WorkerRecord] | None = None
        self._alive_since: datetime | None = None  # the oldest worker that is
        self._tasks: dict[str, list[int]] = {}  # due jobs, by task
        self._enqueued: datetime | None = None  # when the newest job of the queue was

    def figures(self) -> Figures:
        """Read all there is."""
        try:
            self._read()
        except ReadOnlyDatabase as error:
            return Figures(replica=str(error))
        except RowLocked:
            self._lock_of_all()
        return self._figures

    def _lock_of_all(self) -> None:
        """Take note that somebody has a whole table, or the whole file. A worker that has just begun can't register then."""
        f = self._figures
        f.table_locked, f.held_by = True, self._holders()
        if not f.serving:
            f.workers = f.serving = self._serving = None

    def _read(self) -> None:
        f, store, dialect, queue = self._figures, self._store, self._dialect, self._queue
        next_expiry, now = store.run(dialect.next_expiry, haste=True)
        f.now = now
        for name, at, by in store.run(dialect.paused, haste=True):
            if name == queue:
                f.paused_at, f.paused_by = at, by
        self._read_workers()
        if not dialect.one_writer:
            store.run_undone(dialect.touch)
        self._read_waiting()
        self._read_running()
        if f.expired:
            # A worker that has just begun has not had the time to look.
            late = (now - max(next_expiry, self._alive_since or next_expiry)).total_seconds()
            f.upkeep_late = round(late, 3) if late > UPKEEP_LATE else None
        started, self._enqueued = store.run(partial(dialect.newest_of, queue, limit=MOST_NEW), haste=True)
        f.claimed_at = max((at for at in (f.claimed_at, started) if at is not None), default=None)
        f.failed, f.last_failed_at, f.others_done = store.run(
            partial(dialect.failed_of, queue, limit=MOST_ENDED), haste=True
        )
        if self._tasks or (dialect.one_writer and not f.serving):
            self._read_locks()
        self._look_elsewhere()

    # -- the queue -----------------------------------------------------------------------------------

    def _read_workers(self) -> None:
        f = self._figures
        try:
            seen = alive(self._store.run(self._dialect.workers))
        except DatabaseUnavailable:
            raise
        except DatabaseError:
            return  # no register, or none that may be read
        self._alive_since = min((worker.started_at for worker in seen), default=None)
        self._serving = [worker for worker in seen if worker.serves(self._queue) is not False]
        f.workers, f.serving = len(seen), [worker.worker for worker in self._serving]
        claims = [worker for worker in seen if worker.claimed_queue == self._queue]
        f.claimed_at = max((worker.claimed_at for worker in claims if worker.claimed_at), default=None)

    def _read_waiting(self) -> None:
        f, store, dialect = self._figures, self._store, self._dialect
        lanes: list[Lane] = store.run(lambda: dialect.lanes([self._queue]), haste=True)
        f.capped = len(lanes) > MOST_LANES
        for lane in lanes[-MOST_LANES:]:
            due = store.run(partial(dialect.due_now, lane, limit=MOST_OF_LANE), haste=True)
            later = store.run(partial(dialect.later, lane, limit=MOST_OF_LANE), haste=True)
            f.due += len(due)
            f.scheduled += later.scheduled
            f.retrying += later.retrying
            f.oldest_due_at = _earlier(f.oldest_due_at, due[0].run_at if due else None)
            f.next_scheduled_at = _earlier(f.next_scheduled_at, later.next_scheduled_at)
            f.next_retry_at = _earlier(f.next_retry_at, later.next_retry_at)
            f.capped = f.capped or MOST_OF_LANE in (len(due), later.scheduled + later.retrying)
            for job in due:
                self._tasks.setdefault(job.task, []).append(job.id)
        if self._serving:
            f.unknown_tasks = sorted(
                task for task in self._tasks if all(worker.knows(task) is False for worker in self._serving)
            )

    def _read_running(self) -> None:
        f = self._figures
        running = self._store.run(partial(self._dialect.running_of, self._queue, limit=MOST_RUNNING), haste=True)
        f.capped = f.capped or len(running) == MOST_RUNNING
        live = [job for job in running if not job.past]
        ends = [job.lease_until for job in live if job.lease_until is not None]
        f.running, f.expired = len(live), len(running) - len(live)
        f.lease_until, f.last_lease_until = min(ends, default=None), max(ends, default=None)
        f.owners = sorted({job.owner for job in live if job.owner})[:20]
        f.expired_since = min((job.lease_until for job in running if job.past and job.lease_until), default=None)
        starts = [job.started_at for job in running if job.started_at is not None]
        f.claimed_at = max([*starts, *([f.claimed_at] if f.claimed_at else [])], default=None)

    # -- who is in the way -----------------------------------------------------------------------------

    def _read_locks(self) -> None:
        """Try to lock what is due, on a connection of its own, and let go at once."""
        f, dialect = self._figures, self._dialect
        ids = sorted(job_id for ids in self._tasks.values() for job_id in ids[:MOST_TRIED])[:MOST_TRIED]
        patience = WRITER_WAITS if dialect.one_writer else None
        try:
            held = sorted(self._store.run_undone(lambda: dialect.held(ids), patience=patience))
        except RowLocked:
            self._lock_of_all()
            f.locked = len(ids)
            return
        f.locked = len(held)
        if held:
            f.held_by = self._holders()

    def _holders(self) -> list[LockHolder]:
        """Return who holds the queue's rows, or whole tables: those with most rows first."""
        try:
            found = look(self._app, self._queue).holders
        except DatabaseError:
            return []  # it is only not known then
        return sorted(found, key=lambda holder: (-len(holder.tables), -(holder.rows or 0)))[:MOST_HOLDERS]

    # -- other places ------------------------------------------------------------------------------------

    def _look_elsewhere(self) -> None:
        """Find out whether the other half of this queue is in another place, where something is missing in this one."""
        f = self._figures
        others = f.scheduled or f.retrying or f.running or f.expired
        if self._serving is None or (self._serving if f.due else others):
            return
        here = Half(f.due, f.oldest_due_at, frozenset(self._tasks), tuple(self._serving), self._enqueued)
        with suppress(DatabaseError):  # no further connection is to be had: then this is not known
            f.elsewhere = other_halves(self._app, self._queue, here)


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((each for each in (one, other) if each is not None), default=None)
