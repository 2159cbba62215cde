"""Enqueue for MySQL and MariaDB. All of it may be sent on a user's connection, in the user's transaction.

So it must do with any isolation level and driver: lists travel as JSON, times as text, and no lock is taken but on the
rows written and on keys that somebody else was just taking too. The statements are the same on both databases, so it
does not matter here which of them a `mysql://` URL has led to.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, cast

import msgspec

from dibs.dialects.enqueuing import Key, KeyedEnqueue, alike
from dibs.dialects.innodb import AS_IT_IS, ISOLATION
from dibs.dialects.spelling import utc
from dibs.jobs import NewJob
from dibs.ops import Op, Value, execute, fetch, insert, long

_ALIKE = ("queue", "task", "priority", "max_attempts", "retention")
_NAMES = ("queue", "task", "payload", "priority", "max_attempts", "task_key", "key_until", "retention", "meta")
NAME = "VARCHAR(255) CHARACTER SET utf8mb4"  # JSON_TABLE takes the database's character set unless it is told one

#: The keys to be taken, and the jobs for them.
_WANTED = f"""
    JSON_TABLE(:wanted, '$[*]' COLUMNS (place FOR ORDINALITY,
        task {NAME} PATH '$[0]', task_key {NAME} PATH '$[1]', job_id BIGINT PATH '$[2]')) AS wanted
"""


@lru_cache(maxsize=4)
def _inserting(beginning: str, row: str, rows: int) -> str:
    """Return the statement that inserts so many jobs."""
    return beginning + ", ".join([row.replace("#", str(number)) for number in range(rows)])


class MySQLEnqueue(KeyedEnqueue):
    """The enqueue op of MySQL and MariaDB."""

    #: A statement's text grows with its rows (200 of them: 59,000 jobs/s; 500: 65,000; 1,000: 70,000; 3,000: 68,000).
    chunk = 1_000

    INSERT: ClassVar[str] = f"INSERT INTO dibs_jobs ({', '.join(_NAMES)}, run_at, created_at) VALUES "
    NEW_ROW: ClassVar[str] = f"""({", ".join(f":{name}_#" for name in _NAMES)}, GREATEST({{now}}, COALESCE(
        CAST(:run_at_# AS DATETIME(6)), {{now}} + INTERVAL COALESCE(:delay_#, 0) SECOND)), {{now}})"""
    INSERT_ALIKE: ClassVar[str] = """
        INSERT INTO dibs_jobs (queue, task, payload, priority, max_attempts, retention, run_at, created_at) VALUES
    """
    NEW_ROW_ALIKE: ClassVar[str] = "(:queue, :task, :payload_#, :priority, :max_attempts, :retention, {now}, {now})"
    STEP: ClassVar[str] = "SELECT @@auto_increment_increment"

    def insert_jobs(self, jobs: Sequence[NewJob], *, tell: bool) -> Op[list[int]]:
        # The ids of VALUES follow each other in every mode of innodb_autoinc_lock_mode; those of a SELECT do not.
        step = 1
        if len(jobs) > 1:
            ((step,),) = yield from fetch(self.STEP, alone=True)
        values: dict[str, Value] = {}
        if len(jobs) > 1 and alike(jobs):
            text = _inserting(self.INSERT_ALIKE, self.NEW_ROW_ALIKE, len(jobs))
            values = {name: getattr(jobs[0], name) for name in _ALIKE}
            values |= {f"payload_{number}": text_of(job.payload) for number, job in enumerate(jobs)}
        else:
            text = _inserting(self.INSERT, self.NEW_ROW, len(jobs))
            for number, job in enumerate(jobs):
                values |= _values(job, number)
        first = yield from long(insert(text, alone=True, **values))
        return [first + number * step for number in range(len(jobs))]

    # ON DUPLICATE KEY UPDATE where INSERT IGNORE would do: that locks the key of another for reading first, so that two
    # who waited for a key deadlock when it is let go of. Rows affected mean different things to different drivers, so
    # it is asked which keys are ours. What we wrote ourselves is in every snapshot.
    TAKE_KEY: ClassVar[str] = f"""
        {AS_IT_IS} INSERT INTO dibs_keys (task, task_key, job_id) VALUES (:task, :task_key, :id)
        ON DUPLICATE KEY UPDATE job_id = dibs_keys.job_id
    """
    TAKE_KEYS: ClassVar[str] = f"""
        {AS_IT_IS} INSERT INTO dibs_keys (task, task_key, job_id)
        SELECT task, task_key, job_id FROM {_WANTED} ORDER BY place
        ON DUPLICATE KEY UPDATE job_id = dibs_keys.job_id
    """
    # With a LIMIT, since a user's session may have one for all that have none (sql_select_limit): a job that is not in the
    # answer would be taken for a duplicate.
    TAKEN: ClassVar[str] = f"""
        SELECT k.job_id FROM {_WANTED} STRAIGHT_JOIN dibs_keys AS k FORCE INDEX (PRIMARY)
        ON k.task = wanted.task AND k.task_key = wanted.task_key AND k.job_id = wanted.job_id
        LIMIT 1000000
    """
    DROP_JOB: ClassVar[str] = "DELETE FROM dibs_jobs WHERE id = :id"

    def insert_keyed(self, jobs: Sequence[NewJob], *, tell: bool) -> Op[dict[Key, int]]:
        ids = yield from self.insert_jobs(jobs, tell=tell)
        ours = {(job.task, cast("str", job.task_key)): job_id for job, job_id in zip(jobs, ids, strict=True)}
        # In order, so that two bulks with the same keys wait for each other instead of deadlocking.
        in_order = [(task, key, ours[task, key]) for task, key in sorted(ours)]
        wanted = msgspec.json.encode(in_order).decode()
        if len(in_order) == 1:
            task, key, job_id = in_order[0]
            yield from execute(self.TAKE_KEY, task=task, task_key=key, id=job_id)
        else:
            yield from execute(self.TAKE_KEYS, wanted=wanted)
        rows = yield from fetch(self.TAKEN, wanted=wanted)
        taken = {row[0] for row in rows}
        for job_id in set(ids) - taken:
            yield from execute(self.DROP_JOB, id=job_id)
        return {key: job_id for key, job_id in ours.items() if job_id in taken}

    # The payload by a subquery: a join becomes a hash join over all jobs while the statistics believe in a few.
    # At SERIALIZABLE every read locks, and one that finds nothing locks the gap: who enqueues another key then waits for
    # us, or deadlocks. There nothing is read first, and the insert finds the duplicates.
    FIND_HOLDERS: ClassVar[str] = f"""
        SELECT k.task, k.task_key, k.job_id, (SELECT payload FROM dibs_jobs WHERE id = k.job_id)
        FROM JSON_TABLE(:keys, '$[*]' COLUMNS (task {NAME} PATH '$.task', task_key {NAME} PATH '$.task_key')) AS asked
        STRAIGHT_JOIN dibs_keys AS k FORCE INDEX (PRIMARY) ON k.task = asked.task AND k.task_key = asked.task_key
        WHERE {ISOLATION} <> 'SERIALIZABLE'
        LIMIT 1000000
    """
    FIND_NEW_HOLDER: ClassVar[str] = f"""
        {AS_IT_IS} SELECT job_id FROM dibs_keys WHERE task = :task AND task_key = :task_key LOCK IN SHARE MODE
    """

    def find_new_holders(self, keys: Sequence[Key]) -> Op[dict[Key, tuple[int, str | None]]]:
        # Each was locked by the insert that it refused, so it is there, and nobody is waited for.
        holders: dict[Key, tuple[int, str | None]] = {}
        for task, key in keys:
            for (job_id,) in (yield from fetch(self.FIND_NEW_HOLDER, task=task, task_key=key)):
                holders[task, key] = (job_id, None)
        return holders

    RECORD_DUPLICATES: ClassVar[str] = """
        INSERT INTO dibs_duplicates (job_id, times, created_at)
        SELECT job_id, JSON_EXTRACT(:duplicates, CONCAT('$."', job_id, '"')), {now}
        FROM JSON_TABLE(JSON_KEYS(:duplicates), '$[*]' COLUMNS (job_id BIGINT PATH '$')) AS held
    """


def _values(job: NewJob, number: int) -> dict[str, Value]:
    """Return the values of the `number`-th row of an insert."""
    values: dict[str, Value] = {f"{name}_{number}": getattr(job, name) for name in _NAMES}
    values[f"payload_{number}"] = text_of(job.payload)
    values[f"meta_{number}"] = text_of(job.meta)
    # As text, since drivers write the time zone of a datetime in their own ways, or leave it out.
    values[f"run_at_{number}"] = None if job.run_at is None else f"{utc(job.run_at):%Y-%m-%d %H:%M:%S.%f}"
    values[f"delay_{number}"] = job.delay
    return values


def text_of(json: msgspec.Raw | None) -> str | None:
    return None if json is None else bytes(json).decode()
