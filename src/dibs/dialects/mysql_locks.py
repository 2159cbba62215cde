"""Who holds rows, on MySQL and, as far as it is alike, on MariaDB.

Read before changing a statement:
- performance_schema.data_locks has every row lock with its session. MariaDB has nothing like it: see `mariadb_locks`.
- The locks of tables (metadata locks) are waited for by whoever skips locked rows, too.
- `trx_started` is in the server's own time zone, which a session can't know. So an age is reckoned from our own
  transaction, which begins now: a read of a table of InnoDB's sees to that there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar

from dibs.dialects.locks import ROWS_OUT_OF_REACH, Locks, Question
from dibs.dialects.spelling import TABLES
from dibs.holders import Found, RowsHeld, Session, TableLock, Who
from dibs.ops import Op, Row, execute, fetch

#: How many jobs are looked at for whether they are held, of the ready ones and of the running ones.
MOST_LOOKED_AT = 1_000

#: Locks of tables beside which nothing is written.
STRONG = ("EXCLUSIVE", "SHARED_NO_READ_WRITE", "SHARED_NO_WRITE", "SHARED_READ_ONLY")

#: In the place of a table's name: a lock of all that is on the server, as by FLUSH TABLES WITH READ LOCK.
EVERYTHING = "all tables of the server"

_PROCESS = "other users' transactions can't be seen: GRANT PROCESS ON *.* TO this user"
_SCHEMA = "can't be read: GRANT SELECT ON performance_schema.* TO this user"


class MySQLLocks(Locks):
    def lock_questions(self, queue: str | None) -> Sequence[Question]:
        prepared: list[str] = []
        programs: dict[int, str] = {}
        return (
            Question(
                partial(self.lock_prepared, prepared),
                "the names of prepared transactions can't be read: GRANT XA_RECOVER_ADMIN ON *.* TO this user",
            ),
            Question(partial(self.lock_programs, programs), ""),
            Question(partial(self.lock_sessions, prepared, programs), _PROCESS),
            Question(self.lock_waits, f"who waits for a row {_SCHEMA}"),
            Question(partial(self.lock_tables, []), f"who holds or waits for a whole table {_SCHEMA}"),
            Question(partial(self.lock_rows, queue), f"who holds which rows {_SCHEMA}", ROWS_OUT_OF_REACH),
        )

    XA_RECOVER: ClassVar[str] = "XA RECOVER"

    def lock_prepared(self, prepared: list[str]) -> Op[Found]:
        """Learn the names of prepared transactions, as XA ROLLBACK takes them. The server says of none which one it is."""
        prepared.clear()
        rows = yield from fetch(self.XA_RECOVER, alone=True)
        prepared += [_xid(*row) for row in rows]
        if not prepared:
            return Found()
        ends = "; ".join(f"XA ROLLBACK {name}" for name in prepared)
        return Found(notes=[f"transactions are prepared at this server, and KILL does not end them: {ends}"])

    # Who waits for a whole table keeps all away who come after, us as well. That must not keep us from saying so. For the
    # session, which is one for these questions alone.
    BRIEFLY: ClassVar[str] = "SET SESSION lock_wait_timeout = 1"
    A_READ: ClassVar[str] = "SELECT count(*), UTC_TIMESTAMP(6), CONNECTION_ID() FROM dibs_meta"
    TRANSACTIONS: ClassVar[str] = """
        SELECT trx_mysql_thread_id, trx_id, trx_state, trx_started, trx_query, trx_rows_locked, trx_rows_modified
        FROM information_schema.innodb_trx
    """
    # The list of transactions is a copy, for all sessions, which is not made anew while it is read more often than every
    # tenth of a second. One that does not have our own transaction in it is too old.
    LET_IT_REFRESH: ClassVar[str] = "SELECT SLEEP(0.15)"

    def _transactions(self, mine: int) -> Op[tuple[list[Row], datetime | None]]:
        """Return the open transactions, and when ours began, which has read something just now."""
        rows: list[Row] = []
        for _ in range(5):
            rows = yield from fetch(self.TRANSACTIONS)
            if ours := [row for row in rows if row[0] == mine]:
                return rows, ours[0][3]
            yield from fetch(self.LET_IT_REFRESH)
        return rows, None

    PROCESSES: ClassVar[str] = """
        SELECT t.processlist_id, t.processlist_user, t.processlist_host, t.processlist_db, t.processlist_command,
            t.processlist_state, t.processlist_info, t.processlist_time
        FROM performance_schema.threads AS t
        WHERE t.processlist_id IS NOT NULL AND t.type = 'FOREGROUND'
    """

    PROGRAMS: ClassVar[str] = """
        SELECT processlist_id, attr_value FROM performance_schema.session_connect_attrs WHERE attr_name = 'program_name'
    """

    def lock_programs(self, programs: dict[int, str]) -> Op[Found]:
        """Learn the names under which programs have connected, as far as the server keeps them."""
        programs |= {session: text(name) for session, name in (yield from fetch(self.PROGRAMS, alone=True))}
        return Found()

    def lock_sessions(self, prepared: Sequence[str], programs: Mapping[int, str]) -> Op[Found]:
        """Return what is connected, with its transaction, and the transactions that nobody is connected to."""
        yield from execute(self.BRIEFLY)
        ((_, now, mine),) = yield from fetch(self.A_READ)
        transactions, began = yield from self._transactions(mine)
        processes = yield from fetch(self.PROCESSES)
        sessions = []
        by_session = {row[0]: row for row in transactions if row[0]}
        for process in processes:
            if process[0] != mine:
                sessions.append(
                    self._session((*process, programs.get(process[0])), by_session.get(process[0]), began, now)
                )
        left = [row for row in transactions if not row[0]]
        for row in left:
            name = prepared[0] if len(prepared) == len(left) == 1 else None
            sessions.append(self._left(row, began, now, name))
        return Found(sessions=sessions)

    def _session(self, process: Row, transaction: Row | None, began: datetime | None, now: Any) -> Session:
        session, user, client, database, command, state, info, idle, program = process
        seconds = _age(transaction, began)
        if transaction is None and command != "Sleep":
            seconds = float(idle or 0)
        return Session(
            who=session,
            state=_state(command, state, transaction),
            since=None if seconds is None else self.moment(now) - timedelta(seconds=seconds),
            seconds=seconds,
            wait=state or None,
            query=text(info) or (None if transaction is None else text(transaction[4])),
            application=program,
            client=client,
            user=user,
            may_hold=self._may_hold(database, transaction),
            ends_with=f"KILL {session}",
        )

    def _left(self, row: Row, began: datetime | None, now: Any, name: str | None) -> Session:
        """Return a transaction whose session is gone: it was prepared."""
        seconds = _age(row, began)
        return Session(
            who=f"InnoDB transaction {row[1]}",
            kind="prepared",
            state="prepared, waits for its XA COMMIT",
            since=None if seconds is None else self.moment(now) - timedelta(seconds=seconds),
            seconds=seconds,
            may_hold=self._may_hold(self.schema, row),
            ends_with=f"XA ROLLBACK {name}" if name else "XA RECOVER lists their names, XA ROLLBACK 'name' ends one",
        )

    def _may_hold(self, database: str | None, transaction: Row | None) -> bool:
        """Must this transaction be named although it can't be told what it holds?"""
        return False

    WAITS: ClassVar[str] = """
        SELECT r.processlist_id, b.processlist_id, l.engine_transaction_id
        FROM performance_schema.data_lock_waits AS w
        JOIN performance_schema.threads AS r ON r.thread_id = w.requesting_thread_id
        JOIN performance_schema.data_locks AS l ON l.engine_lock_id = w.blocking_engine_lock_id
        LEFT JOIN performance_schema.threads AS b ON b.thread_id = w.blocking_thread_id
        WHERE l.object_schema = :schema
    """

    def lock_waits(self) -> Op[Found]:
        """Return who waits for whose row."""
        rows = yield from fetch(self.WAITS, alone=True, schema=self.schema)
        return Found(waits=[(row[0], who_of(row[1], row[2])) for row in rows])

    TABLE_LOCKS: ClassVar[str] = """
        SELECT t.processlist_id, IF(m.object_type = 'TABLE', m.object_name, :everything), m.lock_type, m.lock_status
        FROM performance_schema.metadata_locks AS m
        JOIN performance_schema.threads AS t ON t.thread_id = m.owner_thread_id
        WHERE (m.object_type = 'TABLE' AND m.object_schema = :schema AND m.object_name IN :tables
            OR m.object_type IN ('GLOBAL', 'BACKUP') AND m.lock_type IN ('SHARED', 'BACKUP_FTWRL1', 'BACKUP_FTWRL2'))
          AND t.processlist_id IS NOT NULL AND t.processlist_id <> CONNECTION_ID()
    """

    def lock_tables(self, exact: list[TableLock]) -> Op[Found]:
        """Return the locks of dibs' tables, and who waits for one; note in `exact` what was to be seen."""
        tables = tuple(f"{self.prefix}{table}" for table in TABLES)
        values: dict[str, Any] = {"schema": self.schema, "tables": tables, "everything": EVERYTHING}
        rows = yield from fetch(self.TABLE_LOCKS, alone=True, **values)
        locks = [
            table_lock(session, table, mode, granted=status == "GRANTED")
            for session, table, mode, status in rows
            if status in ("GRANTED", "PENDING")
        ]
        exact += locks
        return Found(tables=locks, waits=waits_of(locks))

    # An insert that is not committed has no row lock that could be seen here, until somebody waits for it.
    ROWS: ClassVar[str] = """
        SELECT t.processlist_id, l.engine_transaction_id, j.queue, count(*),
            SUBSTRING_INDEX(GROUP_CONCAT(j.id ORDER BY j.id), ',', 5)
        FROM (SELECT DISTINCT thread_id, engine_transaction_id, lock_data FROM performance_schema.data_locks
            WHERE object_schema = :schema AND object_name = :jobs AND index_name = 'PRIMARY' AND lock_type = 'RECORD'
              AND lock_status = 'GRANTED' AND lock_mode IN ('X', 'S', 'X,REC_NOT_GAP', 'S,REC_NOT_GAP')
              AND lock_data <> 'supremum pseudo-record') AS l
        STRAIGHT_JOIN dibs_jobs AS j ON j.id = CAST(l.lock_data AS SIGNED)
        LEFT JOIN performance_schema.threads AS t ON t.thread_id = l.thread_id
        WHERE (:queue IS NULL OR j.queue = :queue) AND (t.processlist_id IS NULL OR t.processlist_id <> CONNECTION_ID())
        GROUP BY t.processlist_id, l.engine_transaction_id, j.queue
    """

    def lock_rows(self, queue: str | None) -> Op[Found]:
        """Return who holds which rows."""
        jobs = f"{self.prefix}dibs_jobs"
        yield from execute(self.BRIEFLY)
        rows = yield from fetch(self.ROWS, schema=self.schema, jobs=jobs, queue=queue)
        held = [
            RowsHeld(who_of(session, transaction), queue, number, [int(each) for each in text(ids).split(",")])
            for session, transaction, queue, number, ids in rows
        ]
        return Found(rows=held, counted=True)

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

    END_SESSION: ClassVar[str] = "KILL :session"

    def end_session(self, session: int) -> Op[bool]:
        yield from execute(self.END_SESSION, alone=True, session=session)
        return True


def table_lock(session: int, table: str, mode: str, *, granted: bool) -> TableLock:
    """Return a metadata lock, its mode as the servers call it."""
    strong = mode in STRONG or table == EVERYTHING
    return TableLock(session, table, mode.replace("_", " "), granted, strong, mode == "SHARED_WRITE")


def waits_of(locks: Sequence[TableLock]) -> list[tuple[Who, Who]]:
    """Return who waits for whom, by the locks of tables: for those that are had, and for whom stands in line before.

    MariaDB's performance_schema calls what LOCK TABLES … READ has a SHARED READ, which would be in nobody's way. So where
    nobody else is in a waiter's way it is whoever has the table.

    >>> waits_of([TableLock(1, "t", "SHARED WRITE", True, False), TableLock(2, "t", "EXCLUSIVE", False, True)])
    [(2, 1)]
    """
    found: list[tuple[Who, Who]] = []
    for waiting in (lock for lock in locks if not lock.granted):
        others = [lock for lock in locks if lock.table in (waiting.table, EVERYTHING) and lock.who != waiting.who]
        in_the_way = [
            lock
            for lock in others
            if (lock.granted and (lock.strong or waiting.strong)) or (lock.strong and not waiting.strong)
        ]
        found += [(waiting.who, lock.who) for lock in in_the_way or [lock for lock in others if lock.granted]]
    return found


def who_of(session: int | None, transaction: Any) -> Who:
    return session if session else f"InnoDB transaction {transaction}"


def _age(transaction: Row | None, began: datetime | None) -> float | None:
    if transaction is None or began is None:
        return None
    since: timedelta = began - transaction[3]
    return max(since.total_seconds(), 0.0)


def _state(command: str, state: str | None, transaction: Row | None) -> str:
    if command == "Sleep":
        return "idle" if transaction is None else "idle in transaction"
    if (transaction is not None and transaction[2] == "LOCK WAIT") or "lock" in (state or "").lower():
        return "waits for a lock"
    return "runs a statement"


def text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


def _xid(form: int, first: int, second: int, data: Any) -> str:
    """Return the name of a prepared transaction as XA ROLLBACK takes it."""
    name = text(data)
    parts = [name[:first], name[first : first + second]]
    quoted = ",".join("'{}'".format(part.replace("\\", "\\\\").replace("'", "''")) for part in parts)
    return quoted.removesuffix(",''") if form == 1 else f"{quoted},{form}"
