"""Who holds rows, on MariaDB, which tells of no lock until somebody waits for it.

So it is asked in two ways. Which rows are held is found by locking what is not (SKIP LOCKED), for a moment. By whom: by
waiting for one of them, for a second at most, while another connection looks at who is waited for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from dibs.dialects.locks import Question
from dibs.dialects.mysql_locks import EVERYTHING, MySQLLocks, table_lock, text, waits_of, who_of
from dibs.dialects.spelling import TABLES
from dibs.holders import Found, TableLock, Who
from dibs.ops import Op, Row, execute, fetch

_DEFINES = re.compile(r"\s*(ALTER|DROP|TRUNCATE|RENAME|CREATE|LOCK|OPTIMIZE|REPAIR|ANALYZE|FLUSH)\b", re.IGNORECASE)

_WHOSE_TABLE = "a whole table is waited for (by {}), and whose it is this server does not tell"
_TO_BE_TOLD = (
    "whose a whole table is, such as by LOCK TABLES, this server does not tell. At once it does after "
    "INSTALL SONAME 'metadata_lock_info'; where performance_schema is on, of all later locks after "
    "UPDATE performance_schema.setup_instruments SET enabled = 'YES' WHERE name = 'wait/lock/metadata/sql/mdl'"
)
_PROCESS = "other users' transactions can't be seen: GRANT PROCESS ON *.* TO this user"


class MariaDBLocks(MySQLLocks):
    finds_by_waiting = True
    to_be_told_of_tables = _TO_BE_TOLD

    def lock_questions(self, queue: str | None) -> Sequence[Question]:
        prepared: list[str] = []
        programs: dict[int, str] = {}
        exact: list[TableLock] = []
        return (
            Question(partial(self.lock_prepared, prepared), "the names of prepared transactions can't be read"),
            Question(partial(self.lock_programs, programs), ""),
            Question(partial(self.lock_sessions, prepared, programs), _PROCESS),
            Question(self.lock_waits, _PROCESS),
            Question(partial(self.lock_tables, exact), ""),
            Question(partial(self.lock_tables_by_sight, exact), _PROCESS),
        )

    PROCESSES: ClassVar[str] = """
        SELECT id, user, host, db, command, state, info, time FROM information_schema.processlist WHERE command <> 'Daemon'
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
        WHERE (state LIKE 'Waiting for table%lock' OR state LIKE 'Waiting for backup lock') AND (db = :schema OR LOCATE(:schema, info) > 0)
    """

    # The plugin tells of what is had, not of who waits.
    PLUGIN: ClassVar[str] = """
        SELECT 1 FROM information_schema.plugins WHERE plugin_name = 'METADATA_LOCK_INFO' AND plugin_status = 'ACTIVE'
    """
    TABLES_HAD: ClassVar[str] = """
        SELECT thread_id, IF(lock_type = 'Backup lock', :everything, table_name), REPLACE(lock_mode, 'MDL_', '')
        FROM information_schema.metadata_lock_info
        WHERE thread_id <> CONNECTION_ID() AND (lock_type = 'Table metadata lock' AND table_schema = :schema
            AND table_name IN :tables OR lock_type = 'Backup lock' AND lock_mode LIKE 'MDL_BACKUP_FTWRL_')
    """

    def lock_tables_by_sight(self, exact: Sequence[TableLock]) -> Op[Found]:
        """Return who waits for a table, and for whom as far as can be told, beyond what is known exactly."""
        yield from execute(self.BRIEFLY)
        ((_, _, mine),) = yield from fetch(self.A_READ)
        tables = tuple(f"{self.prefix}{table}" for table in TABLES)
        had = [lock for lock in exact if lock.granted]
        if told := not exact and (yield from fetch(self.PLUGIN)):
            values: dict[str, Any] = {"schema": self.schema, "tables": tables, "everything": EVERYTHING}
            rows = yield from fetch(self.TABLES_HAD, **values)
            had = [table_lock(session, table, mode, granted=True) for session, table, mode in rows]
        standing = {lock.who for lock in exact if not lock.granted}
        waiters = [row for row in (yield from fetch(self.TABLE_WAITERS, schema=self.schema)) if row[0] not in standing]
        transactions, began = (yield from self._transactions(mine)) if waiters else ([], None)
        here = {row[0] for row in (yield from fetch(self.PROCESSES)) if row[3] == self.schema} - {mine}
        waiting, waits = [], []
        for session, info, seconds in waiters:
            statement = text(info)
            table = next((each for each in tables if re.search(rf"\b{each}\b", statement)), None)
            if table is None:
                continue
            defines = bool(_DEFINES.match(statement))
            waiting.append(TableLock(session, table, "EXCLUSIVE" if defines else "SHARED WRITE", False, defines))
            if defines and not told:
                asked = None if began is None else began - timedelta(seconds=int(seconds))
                older = [row[0] for row in transactions if asked is None or row[3] <= asked]
                waits += [(session, each) for each in older if each in here and each != session]
        waits += waits_of([*had, *waiting])
        lost = sorted({str(lock.who) for lock in waiting} - {str(waiter) for waiter, _ in waits})
        notes = [_WHOSE_TABLE.format(", ".join(lost)), _TO_BE_TOLD] if lost else []
        return Found(tables=[*waiting, *(had if told else [])], waits=waits, notes=notes, complete=not lost)

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
