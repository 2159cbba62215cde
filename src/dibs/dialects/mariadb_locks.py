"""Who holds rows, on MariaDB, which tells of no lock until somebody waits for it.

So it is asked in two ways. Which rows are held is found by locking what is not (SKIP LOCKED), for a moment. By whom: by
waiting for one of them, for a second at most, while another connection looks at who is waited for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import ClassVar

from dibs.dialects.locks import Question
from dibs.dialects.mysql_locks import MySQLLocks, text, waits_of, who_of
from dibs.dialects.spelling import TABLES
from dibs.holders import Found, TableLock, Who
from dibs.ops import Op, Row, execute, fetch

#: How many jobs are looked at, of the ready ones and of the running ones.
MOST_LOOKED_AT = 1_000

_DEFINES = re.compile(r"\s*(ALTER|DROP|TRUNCATE|RENAME|CREATE|LOCK|OPTIMIZE|REPAIR|ANALYZE|FLUSH)\b", re.IGNORECASE)


class MariaDBLocks(MySQLLocks):
    finds_by_waiting = True

    def lock_questions(self, queue: str | None) -> Sequence[Question]:
        prepared: list[str] = []
        return (
            Question(partial(self.lock_prepared, prepared), "the names of prepared transactions can't be read"),
            Question(
                partial(self.lock_sessions, prepared),
                "other users' transactions can't be seen: GRANT PROCESS ON *.* TO this user",
            ),
            Question(self.lock_waits, "who waits for a row can't be seen: GRANT PROCESS ON *.* TO this user"),
            Question(self.lock_tables, "the locks of tables can't be read"),
        )

    PROCESSES: ClassVar[str] = """
        SELECT p.id, p.user, p.host, p.db, p.command, p.state, p.info, p.time, a.attr_value
        FROM information_schema.processlist AS p
        LEFT JOIN performance_schema.session_connect_attrs AS a
            ON a.processlist_id = p.id AND a.attr_name = 'program_name'
        WHERE p.command <> 'Daemon'
    """
    WAITS: ClassVar[str] = """
        SELECT r.trx_mysql_thread_id, b.trx_mysql_thread_id, b.trx_id
        FROM information_schema.innodb_lock_waits AS w
        JOIN information_schema.innodb_trx AS r ON r.trx_id = w.requesting_trx_id
        JOIN information_schema.innodb_trx AS b ON b.trx_id = w.blocking_trx_id
        WHERE :schema <> ''
    """

    def _may_hold(self, database: str | None, transaction: Row | None) -> bool:
        return transaction is not None and transaction[5] > 0 and database in (None, self.schema)

    # Where performance_schema is off, as it is unless one turns it on, this says nothing: a statement that waits for a
    # table shows so itself, and whom it waits for has a transaction that began before.
    TABLE_WAITERS: ClassVar[str] = """
        SELECT id, info, time_ms / 1000 FROM information_schema.processlist
        WHERE state LIKE 'Waiting for table%lock' AND (db = :schema OR LOCATE(:schema, info) > 0)
    """

    def lock_tables(self) -> Op[Found]:
        found = yield from super().lock_tables()
        if found.tables:
            return found
        yield from execute(self.BRIEFLY)
        ((_, _, mine),) = yield from fetch(self.A_READ)
        waiters = yield from fetch(self.TABLE_WAITERS, schema=self.schema)
        if not waiters:
            return found
        transactions, began = yield from self._transactions(mine)
        here = {row[0] for row in (yield from fetch(self.PROCESSES)) if row[3] == self.schema} - {mine}
        tables = tuple(f"{self.prefix}{table}" for table in TABLES)
        locks, waits = [], []
        for session, info, seconds in waiters:
            statement = text(info)
            table = next((each for each in tables if re.search(rf"\b{each}\b", statement)), None)
            if table is None:
                continue
            defines = bool(_DEFINES.match(statement))
            locks.append(TableLock(session, table, "EXCLUSIVE" if defines else "SHARED WRITE", False, defines))
            if defines:
                asked = None if began is None else began - timedelta(seconds=int(seconds))
                older = [row[0] for row in transactions if asked is None or row[3] <= asked]
                waits += [(session, each) for each in older if each in here and each != session]
        waits += waits_of(locks)
        return Found(tables=locks, waits=waits)

    LOOK_AT_READY: ClassVar[str] = """
        SELECT id, queue FROM dibs_jobs FORCE INDEX (dibs_jobs_ready)
        WHERE status = 'ready' AND (:queue IS NULL OR queue = :queue) ORDER BY queue, priority, run_at, id LIMIT :limit
    """
    LOOK_AT_RUNNING: ClassVar[str] = """
        SELECT id, queue FROM dibs_jobs FORCE INDEX (dibs_jobs_ready)
        WHERE status = 'running' AND (:queue IS NULL OR queue = :queue) ORDER BY queue, priority, run_at, id LIMIT :limit
    """
    LOCK_FREE: ClassVar[str] = "SELECT id FROM dibs_jobs WHERE id {in_ids} {for_update} {skip_locked}"

    def held_rows(self, queue: str | None) -> Op[dict[int, str]]:
        """Return the jobs that are held just now, with their queues."""
        yield from execute(self.BRIEFLY)
        ready = yield from fetch(self.LOOK_AT_READY, queue=queue, limit=MOST_LOOKED_AT)
        running = yield from fetch(self.LOOK_AT_RUNNING, queue=queue, limit=MOST_LOOKED_AT)
        queues = dict([*ready, *running])
        if not queues:
            return {}
        free = yield from fetch(self.LOCK_FREE, ids=self.ids(queues))
        for row in free:
            queues.pop(row[0], None)
        return queues

    WHO_AM_I: ClassVar[str] = "SELECT CONNECTION_ID()"
    WAIT: ClassVar[str] = """
        SET STATEMENT innodb_lock_wait_timeout = 1 FOR SELECT id FROM dibs_jobs WHERE id = :id {for_update}
    """

    def wait_for_row(self, job_id: int, waiting: dict[int, int]) -> Op[None]:
        """Wait for a row, for a second at most; note in `waiting` which session waits for which job."""
        ((session,),) = yield from fetch(self.WHO_AM_I)
        waiting[session] = job_id
        yield from fetch(self.WAIT, id=job_id)

    def waited_for(self) -> Op[list[tuple[int, Who]]]:
        """Return which sessions wait for whose row."""
        rows = yield from fetch(self.WAITS, alone=True, schema=self.schema)
        return [(row[0], who_of(row[1], row[2])) for row in rows]
