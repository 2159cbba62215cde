"""What a person asks for: look at jobs, count them, cancel, requeue, pause. Alike on every database.

On dibs' own connections only. Rows are locked first and changed after, in the order of their ids, so that two
people who cancel the same jobs wait for each other instead of deadlocking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from dibs.dialects.selecting import EVERY_ROW, Edge, Selecting
from dibs.filters import Filter
from dibs.jobs import RECORD_COLUMNS, Cancelled, JobRecord, Waiting
from dibs.ops import Op, Row, execute, fetch
from dibs.secrets import concealed, unstamped
from dibs.states import State
from dibs.stored import errors_of, value_of

_RECORD_FIELDS = [name.strip().removesuffix("{as_text}") for name in RECORD_COLUMNS.split(",")]
_TIMES = {"run_at", "lease_until", "created_at", "started_at", "finished_at", "expires_at", "cancel_requested_at"}
_JSON = {"payload", "result", "errors", "meta", "progress", "checkpoint"}


class People(Selecting):
    """Ops that people and their programs ask for."""

    FIND: ClassVar[str] = f"SELECT {RECORD_COLUMNS} FROM dibs_jobs WHERE id = :id"
    COUNT_DUPLICATES: ClassVar[str] = "SELECT sum(times) FROM dibs_duplicates WHERE job_id = :id"

    def find(self, job_id: int) -> Op[JobRecord | None]:
        """Return one job, or None where there is no such row."""
        rows = yield from fetch(self.FIND, alone=True, id=job_id)
        if not rows:
            return None
        ((duplicates,),) = yield from fetch(self.COUNT_DUPLICATES, alone=True, id=job_id)
        return self.record(rows[0], duplicates=int(duplicates or 0))

    # Only what `join` needs, since it is asked over and over.
    OUTCOME: ClassVar[str] = "SELECT status, result, error FROM dibs_jobs WHERE id = :id"

    def outcome(self, job_id: int) -> Op[tuple[State, str | None, str | None] | None]:
        """Return a job's status, its result as JSON text and its error."""
        rows = yield from fetch(self.OUTCOME, alone=True, id=job_id)
        return (State(rows[0][0]), rows[0][1], rows[0][2]) if rows else None

    LIST: ClassVar[str] = f"""
        SELECT {RECORD_COLUMNS} FROM dibs_jobs WHERE id < :before AND {EVERY_ROW} ORDER BY id DESC LIMIT :limit
    """

    def list_jobs(self, chosen: Filter, edge: Edge, *, before: int, limit: int) -> Op[list[JobRecord]]:
        """Return the newest jobs that a filter means and that have a lower id than `before`, newest first."""
        text, values = self.narrowed(self.LIST, chosen, edge)
        rows = yield from fetch(text, alone=True, before=before, limit=limit, **values)
        duplicates = yield from self.duplicates([row[0] for row in rows])
        return [self.record(row, duplicates=duplicates.get(row[0], 0)) for row in rows]

    COUNT_DUPLICATES_OF: ClassVar[str] = """
        SELECT job_id, sum(times) FROM dibs_duplicates WHERE job_id {in_ids} GROUP BY job_id
    """

    def duplicates(self, job_ids: Sequence[int]) -> Op[dict[int, int]]:
        """Return how often each of these jobs was enqueued again; those that never were are left out."""
        if not job_ids:
            return {}
        rows = yield from fetch(self.COUNT_DUPLICATES_OF, alone=True, ids=self.ids(job_ids))
        return {job_id: int(times) for job_id, times in rows}

    SPAN_READY: ClassVar[str] = "SELECT count(*), min(id), max(id) FROM dibs_jobs WHERE status = 'ready'"
    SPAN_RUNNING: ClassVar[str] = "SELECT count(*), min(id), max(id) FROM dibs_jobs WHERE status = 'running'"

    def span(self, status: State) -> Op[tuple[int, int, int]]:
        """Return how many jobs are ready, or running, and their lowest and highest id."""
        rows = yield from fetch(self.SPAN_READY if status is State.READY else self.SPAN_RUNNING, alone=True)
        number, first, last = rows[0]
        return number, first or 0, last or 0

    # Sorts all ready rows for each batch, on some databases. (Where they can choose they do, however many there are:
    # measured on MySQL, 62 s for 180,000 jobs.)
    READ_READY: ClassVar[str] = """
        SELECT id, task, payload, meta FROM dibs_jobs
        WHERE status = 'ready' AND id > :after AND id <= :upto ORDER BY id LIMIT :limit
    """
    # Reads all rows between two ids. As an expression the status is no reason to take its index.
    READ_READY_BY_ID: ClassVar[str] = """
        SELECT id, task, payload, meta FROM dibs_jobs
        WHERE CASE status WHEN 'ready' THEN 1 ELSE 0 END = 1 AND id > :after AND id <= :upto ORDER BY id LIMIT :limit
    """
    READ_RUNNING: ClassVar[str] = READ_READY.replace("'ready'", "'running'")
    READ_RUNNING_BY_ID: ClassVar[str] = READ_READY_BY_ID.replace("'ready'", "'running'")

    def read(self, status: State, *, after: int, upto: int, limit: int, by_id: bool) -> Op[list[Waiting]]:
        """Return the ready, or running, jobs between two ids, in the order of their ids.

        `by_id` costs as much as there are rows between the ids, else as there are such jobs at all.
        """
        if status is State.READY:
            text = self.READ_READY_BY_ID if by_id else self.READ_READY
        else:
            text = self.READ_RUNNING_BY_ID if by_id else self.READ_RUNNING
        rows = yield from fetch(text, alone=True, after=after, upto=upto, limit=limit)
        return [Waiting(*row) for row in rows]

    COUNTS: ClassVar[str] = "SELECT queue, status, count(*) FROM dibs_jobs GROUP BY queue, status"

    def counts(self) -> Op[dict[str, dict[str, int]]]:
        """Return how many jobs each queue has in each status."""
        rows = yield from fetch(self.COUNTS, alone=True)
        counts: dict[str, dict[str, int]] = {}
        for queue, status, number in sorted(rows):
            counts.setdefault(queue, {})[status] = number
        return counts

    # The same one pass over the table; what is ready is told apart by whether it is due and whether it was tried.
    OVERVIEW: ClassVar[str] = """
        SELECT queue, status, CASE WHEN status = 'ready' AND run_at > {now} THEN 1 ELSE 0 END AS later,
            CASE WHEN status = 'ready' AND attempts > 0 THEN 1 ELSE 0 END AS tried, count(*), min(run_at)
        FROM dibs_jobs GROUP BY queue, status, later, tried
    """

    def overview(self) -> Op[list[Row]]:
        """Return for each queue, status, whether not yet due, and whether tried: how many, and the earliest `run_at`."""
        rows = yield from fetch(self.OVERVIEW, alone=True)
        return [
            (queue, State(status), bool(later), bool(tried), number, self.moment(earliest))
            for queue, status, later, tried, number, earliest in rows
        ]

    LOCK_CANCELLABLE: ClassVar[str] = """
        SELECT id, CASE WHEN status = 'ready' THEN 1 ELSE 0 END, task, queue, attempts, max_attempts, task_key, meta
        FROM dibs_jobs
        WHERE id {in_ids} AND status IN ('ready', 'running') ORDER BY id {for_update}
    """
    CANCEL_READY: ClassVar[str] = """
        UPDATE dibs_jobs SET status = 'cancelled', cancel_requested_at = {now}, finished_at = {now},
            expires_at = {after_keeping}, cancel_requested_by = :by, cancel_reason = :reason, error = :reason
        WHERE id {in_ids} AND status = 'ready'
    """
    # Not the end yet: whoever runs it is told, and whatever it then does, its verdict becomes `cancelled` and the
    # reason its error. The first wish counts.
    ASK_RUNNING: ClassVar[str] = """
        UPDATE dibs_jobs SET cancel_requested_at = {now}, cancel_requested_by = :by, cancel_reason = :reason
        WHERE id {in_ids} AND status = 'running' AND cancel_requested_at IS NULL
    """

    def cancel(self, job_ids: Iterable[int], *, reason: str | None, by: str | None) -> Op[list[Cancelled]]:
        """Cancel ready jobs and ask for the end of running ones; return both.

        The other ids are of jobs that have ended or never were.
        """
        rows = yield from fetch(self.LOCK_CANCELLABLE, ids=self.ids(job_ids))
        cancelled = [Cancelled(row[0], bool(row[1]), *row[2:]) for row in rows]
        ready = [job.id for job in cancelled if job.waited]
        running = [job.id for job in cancelled if not job.waited]
        if ready:
            yield from execute(self.CANCEL_READY, ids=self.ids(ready), reason=reason, by=by)
            yield from self.free_keys(ready)
        if running:
            yield from execute(self.ASK_RUNNING, ids=self.ids(running), reason=reason, by=by)
        return cancelled

    def cancel_chosen(
        self, job_ids: Iterable[int], chosen: Filter, edge: Edge, *, reason: str | None, by: str | None
    ) -> Op[list[Cancelled]]:
        """Cancel those of these jobs that a filter still means and that nobody holds."""
        mine = yield from self.lock_chosen(job_ids, chosen, edge)
        return (yield from self.cancel(mine, reason=reason, by=by)) if mine else []

    LOCK_REQUEUABLE: ClassVar[str] = """
        SELECT id, queue, task, task_key FROM dibs_jobs
        WHERE id {in_ids} AND (status IN ('failed', 'cancelled') OR (:force = 1 AND status = 'done'))
        ORDER BY id {for_update}
    """
    TAKE_KEY: ClassVar[str] = """
        {insert_new} INTO dibs_keys (task, task_key, job_id) VALUES (:task, :task_key, :id) {or_nothing}
    """
    KEY_HOLDER: ClassVar[str] = "SELECT job_id FROM dibs_keys WHERE task = :task AND task_key = :task_key"
    # A job that failed or was cancelled goes on from its checkpoint; one that was done begins anew. That assignment
    # stands first: on some databases those after it would see the new status.
    REQUEUE: ClassVar[str] = """
        UPDATE dibs_jobs SET checkpoint = CASE WHEN status = 'done' THEN NULL ELSE checkpoint END, progress = NULL,
            status = 'ready', run_at = {now}, attempts = 0, crashes = 0, releases = 0,
            lease_until = NULL, started_at = NULL, finished_at = NULL, expires_at = NULL,
            cancel_requested_at = NULL, cancel_requested_by = NULL, cancel_reason = NULL, result = NULL, error = NULL
        WHERE id {in_ids} AND status IN ('done', 'failed', 'cancelled')
    """

    def requeue(self, job_ids: Iterable[int], *, force: bool) -> Op[tuple[list[int], dict[int, int]]]:
        """Send ended jobs round again, due now, their attempts from 0. Return the ids moved and the ids refused.

        Refused are jobs whose key another job holds by now; each with its holder. `force` takes done jobs too.
        """
        rows = yield from fetch(self.LOCK_REQUEUABLE, ids=self.ids(job_ids), force=int(force))
        moved: list[int] = []
        refused: dict[int, int] = {}
        for job_id, _queue, task, task_key in rows:
            if task_key is not None:
                yield from execute(self.TAKE_KEY, task=task, task_key=task_key, id=job_id)
                holders = yield from fetch(self.KEY_HOLDER, task=task, task_key=task_key)
                if holders and holders[0][0] != job_id:
                    refused[job_id] = holders[0][0]
                    continue
            moved.append(job_id)
        if moved:
            yield from execute(self.REQUEUE, ids=self.ids(moved))
            yield from self.tell(sorted({row[1] for row in rows if row[0] not in refused}))
        return moved, refused

    def requeue_chosen(
        self, job_ids: Iterable[int], chosen: Filter, edge: Edge, *, force: bool
    ) -> Op[tuple[list[int], dict[int, int]]]:
        """Requeue those of these jobs that a filter still means and that nobody holds."""
        mine = yield from self.lock_chosen(job_ids, chosen, edge)
        return (yield from self.requeue(mine, force=force)) if mine else ([], {})

    def tell(self, queues: Sequence[str]) -> Op[None]:
        """Wake the workers that wait for these queues, at commit, where the database can."""
        yield from ()

    PAUSE: ClassVar[str] = """
        UPDATE dibs_queues SET paused_at = {now}, paused_by = :by WHERE queue = :queue AND paused_at IS NULL
    """
    KNOW_QUEUE: ClassVar[str] = "{insert_new} INTO dibs_queues (queue) VALUES (:queue) {or_nothing}"
    RESUME: ClassVar[str] = """
        UPDATE dibs_queues SET paused_at = NULL, paused_by = NULL WHERE queue = :queue AND paused_at IS NOT NULL
    """
    PAUSED: ClassVar[str] = "SELECT queue, paused_at, paused_by FROM dibs_queues WHERE paused_at IS NOT NULL"

    def pause(self, queue: str, *, by: str) -> Op[bool]:
        """Pause a queue; return False when it was paused already."""
        yield from execute(self.KNOW_QUEUE, queue=queue)
        changed = yield from execute(self.PAUSE, queue=queue, by=by)
        return changed > 0

    def resume(self, queue: str) -> Op[bool]:
        """Let a queue go on; return False when it was not paused."""
        changed = yield from execute(self.RESUME, queue=queue)
        if changed:
            yield from self.tell([queue])
        return changed > 0

    def paused(self) -> Op[list[Row]]:
        """Return the paused queues: name, since when, by whom."""
        rows = yield from fetch(self.PAUSED, alone=True)
        return [(queue, self.moment(at), by) for queue, at, by in sorted(rows)]

    EMPTY_JOBS: ClassVar[str] = "DELETE FROM dibs_jobs"
    EMPTY_KEYS: ClassVar[str] = "DELETE FROM dibs_keys"
    EMPTY_LOOSE_KEYS: ClassVar[str] = "DELETE FROM dibs_loose_keys"
    EMPTY_DUPLICATES: ClassVar[str] = "DELETE FROM dibs_duplicates"
    EMPTY_QUEUES: ClassVar[str] = "DELETE FROM dibs_queues"

    def forget(self) -> Op[None]:
        """Delete all jobs, keys and pauses, whatever state they are in: for tests, which begin with an empty queue."""
        yield from execute(self.EMPTY_JOBS)
        yield from execute(self.EMPTY_KEYS)
        yield from execute(self.EMPTY_LOOSE_KEYS)
        yield from execute(self.EMPTY_DUPLICATES)
        yield from execute(self.EMPTY_QUEUES)

    def record(self, row: Row, *, duplicates: int = 0) -> JobRecord:
        """Turn a row of RECORD_COLUMNS into a record."""
        values = dict(zip(_RECORD_FIELDS, row, strict=True))
        for name in _TIMES:
            values[name] = self.moment_or_none(values[name])
        errors = errors_of(values["errors"])
        values |= {name: value_of(values[name]) for name in _JSON} | {"errors": errors}
        values["meta"], secret = unstamped(values["meta"])
        values["status"] = State(values["status"])
        return JobRecord(**concealed(values, secret), duplicates=duplicates)
