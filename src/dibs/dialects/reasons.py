"""Why nothing of a queue is claimed: what there is to be read, each statement with a bound on what it reads.

Plain reads, but for one: which due rows somebody's transaction holds is told by trying to lock them with SKIP LOCKED, as a
claim does. No view of locks tells that: who skips waits for nobody, and a row lock is in no view until somebody waits.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from dibs.dialects.spelling import Spelling
from dibs.jobs import Lane
from dibs.ops import Op, execute, fetch
from dibs.states import State


class Due(NamedTuple):
    """A job that may be claimed now."""

    id: int
    task: str
    run_at: datetime


class Later(NamedTuple):
    """What is not due yet: how many jobs were never tried, how many were, and when the first of each is due."""

    scheduled: int
    next_scheduled_at: datetime | None
    retrying: int
    next_retry_at: datetime | None


class Leased(NamedTuple):
    """A running job, and whether its lease is over."""

    id: int
    owner: str | None
    lease_until: datetime | None
    past: bool
    started_at: datetime | None


class Reasons(Spelling):
    """Ops that look for a reason."""

    DUE_NOW: ClassVar[str] = """
        SELECT id, task, run_at FROM dibs_jobs
        WHERE status = 'ready' AND queue = :queue AND priority = :priority AND run_at <= {now}
        ORDER BY run_at, id LIMIT :limit
    """
    LATER: ClassVar[str] = """
        SELECT sum(CASE WHEN attempts = 0 THEN 1 ELSE 0 END), min(CASE WHEN attempts = 0 THEN run_at END),
            sum(CASE WHEN attempts > 0 THEN 1 ELSE 0 END), min(CASE WHEN attempts > 0 THEN run_at END)
        FROM (
            SELECT run_at, attempts FROM dibs_jobs
            WHERE status = 'ready' AND queue = :queue AND priority = :priority AND run_at > {now}
            ORDER BY run_at, id LIMIT :limit) AS later
    """

    def due_now(self, lane: Lane, *, limit: int) -> Op[list[Due]]:
        """Return the first jobs of a lane that are due."""
        rows = yield from fetch(self.DUE_NOW, alone=True, **lane._asdict(), limit=limit)
        return [Due(job_id, task, self.moment(run_at)) for job_id, task, run_at in rows]

    def later(self, lane: Lane, *, limit: int) -> Op[Later]:
        """Count what is not due yet among the first `limit` of these."""
        ((scheduled, next_scheduled, retrying, next_retry),) = yield from fetch(
            self.LATER, alone=True, **lane._asdict(), limit=limit
        )
        return Later(
            int(scheduled or 0),
            self.moment_or_none(next_scheduled),
            int(retrying or 0),
            self.moment_or_none(next_retry),
        )

    # By their ids alone: with a status beside them a planner whose statistics are old would go through the ready index.
    LOCK_DUE: ClassVar[str] = (
        "SELECT id, status FROM dibs_jobs WHERE id {in_ids} ORDER BY id {for_update} {skip_locked}"
    )
    STATUSES: ClassVar[str] = "SELECT id, status FROM dibs_jobs WHERE id {in_ids}"

    TOUCH: ClassVar[str] = "SELECT id FROM dibs_jobs WHERE id > 0 ORDER BY id LIMIT 1"

    def touch(self) -> Op[None]:
        """Read a job, any; where somebody has the whole table that is soon known."""
        for statement in self.hurry:
            yield from execute(statement)
        yield from fetch(self.TOUCH)

    def held(self, job_ids: Collection[int]) -> Op[set[int]]:
        """Return which of these jobs are ready and held by others' transactions. Locks the rest until this one ends.

        On a connection that is closed afterwards, as `touch`: both have it wait for a table no longer than a moment.
        """
        for statement in self.hurry:
            yield from execute(statement)
        free = {row[0] for row in (yield from fetch(self.LOCK_DUE, ids=self.ids(job_ids)))}
        missing = set(job_ids) - free
        if not missing:
            return set()
        rows = yield from fetch(self.STATUSES, ids=self.ids(sorted(missing)))
        return {job_id for job_id, status in rows if status == State.READY}

    RUNNING_OF: ClassVar[str] = """
        SELECT id, lease_owner, lease_until, CASE WHEN lease_until < {now} THEN 1 ELSE 0 END, started_at
        FROM dibs_jobs WHERE status = 'running' AND queue = :queue ORDER BY id LIMIT :limit
    """

    def running_of(self, queue: str, *, limit: int) -> Op[list[Leased]]:
        """Return the running jobs of a queue, as many as `limit`."""
        rows = yield from fetch(self.RUNNING_OF, alone=True, queue=queue, limit=limit)
        return [
            Leased(job_id, owner, self.moment_or_none(until), bool(past), self.moment_or_none(started))
            for job_id, owner, until, past, started in rows
        ]

    # No index leads to what has ended of a queue on every database. Failed jobs are kept longest, so they are the last by
    # the end of their retention; whether anything was done lately, the newest jobs tell. (`id > 0` makes a range of it.)
    FAILED_OF: ClassVar[str] = """
        SELECT count(*), max(finished_at) FROM (
            SELECT queue, status, finished_at FROM dibs_jobs WHERE expires_at IS NOT NULL
            ORDER BY expires_at DESC LIMIT :limit) AS ended
        WHERE queue = :queue AND status = 'failed'
    """
    DONE_OF: ClassVar[str] = """
        SELECT count(*) FROM (SELECT queue, status FROM dibs_jobs WHERE id > 0 ORDER BY id DESC LIMIT :limit) AS newest
        WHERE queue = :queue AND status = 'done'
    """
    NEWEST_OF: ClassVar[str] = """
        SELECT max(started_at), max(created_at)
        FROM (SELECT queue, started_at, created_at FROM dibs_jobs WHERE id > 0 ORDER BY id DESC LIMIT :limit) AS newest
        WHERE queue = :queue
    """

    def failed_of(self, queue: str, *, limit: int) -> Op[tuple[int, datetime | None, bool]]:
        """Return how many jobs of a queue have failed, when the last one did, and whether others were done; as far as
        `limit` rows tell."""
        ((failed, last),) = yield from fetch(self.FAILED_OF, alone=True, queue=queue, limit=limit)
        done = 0
        if failed:
            ((done,),) = yield from fetch(self.DONE_OF, alone=True, queue=queue, limit=limit)
        return failed, self.moment_or_none(last), done > 0

    def newest_of(self, queue: str, *, limit: int) -> Op[tuple[datetime | None, datetime | None]]:
        """Return when a run of this queue began last, and a job was enqueued, among the newest `limit` jobs of all queues."""
        ((started, enqueued),) = yield from fetch(self.NEWEST_OF, alone=True, queue=queue, limit=limit)
        return self.moment_or_none(started), self.moment_or_none(enqueued)

    NEXT_EXPIRY: ClassVar[str] = "SELECT next_at, {now} FROM dibs_chores WHERE chore = 'expire'"

    def next_expiry(self) -> Op[tuple[datetime, datetime]]:
        """Return when somebody is to look for leases that are over, and the time now. Each look moves it forward."""
        ((next_at, now),) = yield from fetch(self.NEXT_EXPIRY, alone=True)
        return self.moment(next_at), self.moment(now)

    # A name is compared by its end, for `_` in LIKE is any letter.
    PLACES: ClassVar[str] = """
        SELECT table_schema, table_name FROM information_schema.tables WHERE right(table_name, 9) = CAST(:jobs AS char(9))
    """

    def places(self, own: bool) -> Op[list[tuple[str, str]]]:
        """Return the schemas and prefixes of queues' tables, as far as this connection reaches: those near this one's first.
        `own`: leave this one's out, since this is its database."""
        values: dict[str, Any] = {"schema": self.schema, "jobs": "dibs_jobs"}
        rows = yield from fetch(self.PLACES, alone=True, **values)
        found = {(str(schema), str(table)[:-9]) for schema, table in rows} - (
            {(self.schema, self.prefix)} if own else set()
        )
        return sorted(found, key=lambda place: (place[0] != self.schema, place))

    def other_databases(self, *, limit: int) -> Op[list[str]]:
        """Return the databases of this server that take a connection of their own, those where dibs is at work first."""
        del limit
        yield from ()
        return []

    def database_of(self, schema: str) -> str | None:
        """Return the name of a schema if it is a database, and another one than this."""
        del schema
        return None
