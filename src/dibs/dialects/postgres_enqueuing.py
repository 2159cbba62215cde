"""Enqueue for PostgreSQL. One statement each, so it also works in autocommit; all of it may be sent on a user's connection,
in the user's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dibs.dialects.enqueuing import Key, KeyedEnqueue, alike, jobs_json, payloads_json
from dibs.dialects.spelling import JOB_IDS
from dibs.jobs import NewJob
from dibs.ops import Op, fetch, long

_NEW_COLUMNS = "queue, task, payload, priority, max_attempts, task_key, key_until, retention, meta"
_NEW_TYPES = (
    "queue text, task text, payload json, priority smallint, max_attempts integer, task_key text, key_until text, "
    "retention float8, meta json, run_at timestamptz, delay float8"
)
_NEW_RUN_AT = "greatest(statement_timestamp(), coalesce(run_at, statement_timestamp() + coalesce(delay, 0) * interval '1 second'))"


class PostgresEnqueue(KeyedEnqueue):
    """The enqueue op of PostgreSQL."""

    #: Under which name workers listen.
    channel: str | None

    # One notification per queue and transaction: PostgreSQL drops those that are equal to an earlier one, and they
    # are equal because they carry the transaction's now(), the earliest moment any of its jobs can be due.
    # Never from a row trigger: NOTIFY takes a lock that serialises commits.
    TELL_NEW: ClassVar[str] = """
        SELECT pg_notify(CAST(:channel AS text), json_build_array(queue, now())::text)
        FROM (SELECT DISTINCT queue FROM new WHERE run_at <= statement_timestamp()) AS due
        WHERE CAST(:channel AS text) IS NOT NULL
    """

    ENQUEUE: ClassVar[str] = f"""
        WITH new AS (
            INSERT INTO dibs_jobs ({_NEW_COLUMNS}, run_at, created_at)
            SELECT {_NEW_COLUMNS}, {_NEW_RUN_AT}, statement_timestamp()
            FROM json_to_recordset(CAST(CAST(:jobs AS text) AS json)) AS r({_NEW_TYPES})
            RETURNING id, queue, run_at
        ), told AS MATERIALIZED ({TELL_NEW})
        SELECT id, (SELECT count(*) FROM told) FROM new
    """

    # One job takes two thirds of that time when its values are not in a list (64 µs, a bare INSERT 55, the list 98).
    ENQUEUE_ONE: ClassVar[str] = """
        INSERT INTO dibs_jobs (queue, task, payload, priority, max_attempts, retention, meta, run_at, created_at)
        VALUES (
            CAST(:queue AS text), CAST(:task AS text), CAST(CAST(:payload AS text) AS json),
            CAST(:priority AS smallint), CAST(:max_attempts AS integer), CAST(:retention AS float8),
            CAST(CAST(:meta AS text) AS json),
            greatest(statement_timestamp(), coalesce(
                CAST(:run_at AS timestamptz),
                statement_timestamp() + coalesce(CAST(:delay AS float8), 0) * interval '1 second'
            )),
            statement_timestamp()
        )
        RETURNING id, CASE WHEN CAST(:channel AS text) IS NOT NULL AND run_at <= statement_timestamp()
            THEN pg_notify(CAST(:channel AS text), json_build_array(queue, now())::text) END
    """

    # 10 µs a job with the server's share; from objects in the list 36, as VALUES 33.
    ENQUEUE_ALIKE: ClassVar[str] = f"""
        WITH new AS (
            INSERT INTO dibs_jobs (queue, task, payload, priority, max_attempts, retention, run_at, created_at)
            SELECT
                CAST(:queue AS text), CAST(:task AS text), payload, CAST(:priority AS smallint),
                CAST(:max_attempts AS integer), CAST(:retention AS float8), statement_timestamp(), statement_timestamp()
            FROM json_array_elements(CAST(CAST(:payloads AS text) AS json)) AS given(payload)
            RETURNING id, queue, run_at
        ), told AS MATERIALIZED ({TELL_NEW})
        SELECT id, (SELECT count(*) FROM told) FROM new
    """

    def insert_jobs(self, jobs: Sequence[NewJob], *, tell: bool) -> Op[list[int]]:
        if len(jobs) == 1:
            (job,) = jobs
            rows = yield from fetch(
                self.ENQUEUE_ONE,
                alone=True,
                queue=job.queue,
                task=job.task,
                payload=bytes(job.payload).decode(),
                priority=job.priority,
                max_attempts=job.max_attempts,
                retention=job.retention,
                meta=None if job.meta is None else bytes(job.meta).decode(),
                run_at=job.run_at,
                delay=job.delay,
                channel=self.channel if tell else None,
            )
            return [rows[0][0]]
        if alike(jobs):
            first = jobs[0]
            op = fetch(
                self.ENQUEUE_ALIKE,
                alone=True,
                payloads=payloads_json(jobs),
                queue=first.queue,
                task=first.task,
                priority=first.priority,
                max_attempts=first.max_attempts,
                retention=first.retention,
                channel=self.channel if tell else None,
            )
        else:
            op = fetch(self.ENQUEUE, alone=True, jobs=jobs_json(jobs), channel=self.channel if tell else None)
        rows = yield from long(op)
        return sorted(row[0] for row in rows)

    # Keys first, jobs for the keys that were free: one statement, so it also works in autocommit. Sorted, so that
    # two bulks with the same keys wait for each other instead of deadlocking.
    ENQUEUE_KEYED: ClassVar[str] = f"""
        WITH asked AS MATERIALIZED (
            SELECT nextval(CAST(CAST(:sequence AS text) AS regclass)) AS id, r.*
            FROM json_to_recordset(CAST(CAST(:jobs AS text) AS json)) AS r({_NEW_TYPES})
        ), held AS (
            INSERT INTO dibs_keys (task, task_key, job_id)
            SELECT task, task_key, id FROM asked ORDER BY task, task_key
            ON CONFLICT DO NOTHING RETURNING job_id
        ), new AS (
            INSERT INTO dibs_jobs (id, {_NEW_COLUMNS}, run_at, created_at)
            SELECT id, {_NEW_COLUMNS}, {_NEW_RUN_AT}, statement_timestamp()
            FROM asked WHERE id IN (SELECT job_id FROM held)
            RETURNING id, queue, task, task_key, run_at
        ), told AS MATERIALIZED ({TELL_NEW})
        SELECT task, task_key, id, (SELECT count(*) FROM told) FROM new
    """

    def insert_keyed(self, jobs: Sequence[NewJob], *, tell: bool) -> Op[dict[tuple[str, str], int]]:
        op = fetch(
            self.ENQUEUE_KEYED,
            jobs=jobs_json(jobs),
            channel=self.channel if tell else None,
            sequence=f"{self.quote(self.schema)}.{self.prefix}{JOB_IDS}",
        )
        rows = yield from long(op)
        return {(task, key): job_id for task, key, job_id, _ in rows}

    # Key by key (OFFSET 0 can't be flattened into a join): as a join, a planner whose statistics are of a few keys reads
    # all of them for each enqueue.
    # In a serializable transaction a read that finds nothing counts as one of the page where the key would be: two that
    # enqueue different keys then seem to depend on each other, and one of them fails. There nothing is read first, and the
    # insert finds the duplicates. (Nothing of this condition is left to be looked at row by row.)
    FIND_HOLDERS: ClassVar[str] = """
        SELECT k.task, k.task_key, k.job_id, (SELECT CAST(payload AS text) FROM dibs_jobs WHERE id = k.job_id)
        FROM json_to_recordset(CAST(CAST(:keys AS text) AS json)) AS r(task text, task_key text)
        CROSS JOIN LATERAL (
            SELECT * FROM dibs_keys
            WHERE task = r.task AND task_key = r.task_key AND current_setting('transaction_isolation') <> 'serializable'
            OFFSET 0
        ) AS k
    """
    FIND_NEW_HOLDERS: ClassVar[str] = """
        SELECT k.task, k.task_key, k.job_id, (SELECT CAST(payload AS text) FROM dibs_jobs WHERE id = k.job_id)
        FROM json_to_recordset(CAST(CAST(:keys AS text) AS json)) AS r(task text, task_key text)
        CROSS JOIN LATERAL (
            SELECT * FROM dibs_keys WHERE task = r.task AND task_key = r.task_key OFFSET 0
        ) AS k
    """

    def find_new_holders(self, keys: Sequence[Key]) -> Op[dict[Key, tuple[int, str | None]]]:
        return (yield from self.holders_by(self.FIND_NEW_HOLDERS, keys))

    RECORD_DUPLICATES: ClassVar[str] = """
        INSERT INTO dibs_duplicates (job_id, times, created_at)
        SELECT CAST(d.key AS bigint), CAST(d.value AS bigint), statement_timestamp()
        FROM json_each_text(CAST(CAST(:duplicates AS text) AS json)) AS d
    """
