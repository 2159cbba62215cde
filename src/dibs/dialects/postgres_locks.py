"""Who holds rows, on PostgreSQL.

Read before changing a statement:
- pg_locks knows nothing of who holds a row: its `tuple` rows are waiters. pgrowlocks reads it from the rows themselves.
- So do we where that is not installed: a row's `xmax` is the transaction that has locked or changed it last, and one
  that is still open holds a lock on its own transaction id. (Not where several share a row: `xmax` is a number of
  another kind then, and only pgrowlocks resolves it.)
- pg_blocking_pids knows who waits. A claim that skips a row waits for nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from dibs.dialects.locks import ROWS_OUT_OF_REACH, Locks, Question
from dibs.dialects.spelling import TABLES
from dibs.holders import Found, RowsHeld, Session, TableLock
from dibs.ops import Op, Row, fetch

#: Modes beside which no statement of dibs' gets on.
STRONG = ("ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock")

#: Up to this size (bytes) of the jobs' table pgrowlocks is used: it reads all of it.
MOST_FOR_PGROWLOCKS = 2**28

#: What pg_stat_activity says in the place of a statement that one may not see.
_HIDDEN = "<insufficient privilege>"

_RIGHTS = (
    "the statements and states of other users' sessions are hidden from this role: a superuser may "
    "GRANT pg_read_all_stats TO it"
)
_WITHOUT_PGROWLOCKS = (
    "rows are counted by their last locker, among the first 100,000 ready and running jobs; "
    "CREATE EXTENSION pgrowlocks counts exactly"
)


class PostgresLocks(Locks):
    def lock_questions(self, queue: str | None) -> Sequence[Question]:
        return (
            Question(self.lock_sessions, "the server's sessions can't be read"),
            Question(self.lock_tables, "the locks of tables can't be read"),
            Question(lambda: self.lock_rows(queue), ROWS_OUT_OF_REACH),
        )

    SESSIONS: ClassVar[str] = """
        SELECT pid, usename, application_name, coalesce(host(client_addr), 'this machine'), state, wait_event_type,
            wait_event, xact_start, extract(epoch FROM clock_timestamp() - xact_start)::float8, query,
            CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_locks AS l WHERE l.pid = a.pid AND NOT l.granted)
                THEN pg_catalog.pg_blocking_pids(pid) ELSE CAST('{}' AS integer[]) END
        FROM pg_catalog.pg_stat_activity AS a WHERE datname = current_database() AND pid <> pg_backend_pid()
    """
    PREPARED: ClassVar[str] = """
        SELECT gid, owner, prepared, extract(epoch FROM clock_timestamp() - prepared)::float8
        FROM pg_catalog.pg_prepared_xacts WHERE database = current_database()
    """

    def lock_sessions(self) -> Op[Found]:
        """Return the sessions in this database, and the prepared transactions."""
        rows = yield from fetch(self.SESSIONS, alone=True)
        sessions = [_session(row) for row in rows]
        for gid, owner, since, seconds in (yield from fetch(self.PREPARED, alone=True)):
            sessions.append(
                Session(
                    who=gid,
                    kind="prepared",
                    state="prepared, waits for its COMMIT PREPARED",
                    since=self.moment(since),
                    seconds=seconds,
                    user=owner,
                    ends_with="ROLLBACK PREPARED '{}'".format(gid.replace("'", "''")),
                )
            )
        hidden = any(row[9] == _HIDDEN for row in rows)
        waits = [(row[0], blocker) for row in rows for blocker in row[10]]
        return Found(sessions=sessions, waits=waits, notes=[_RIGHTS] if hidden else [])

    TABLE_LOCKS: ClassVar[str] = """
        SELECT l.pid, p.gid, c.relname, l.mode, l.granted
        FROM pg_catalog.pg_locks AS l
        JOIN pg_catalog.pg_class AS c ON c.oid = l.relation
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        LEFT JOIN pg_catalog.pg_prepared_xacts AS p ON l.pid IS NULL AND l.virtualtransaction = '-1/' || p.transaction::text
        WHERE l.locktype = 'relation' AND n.nspname = CAST(:schema AS text) AND c.relname = ANY(CAST(:tables AS text[]))
          AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
          AND l.pid IS DISTINCT FROM pg_backend_pid()
    """

    def lock_tables(self) -> Op[Found]:
        """Return the locks of dibs' tables: of open transactions, and of what waits for one."""
        tables = [f"{self.prefix}{table}" for table in TABLES]
        rows = yield from fetch(self.TABLE_LOCKS, alone=True, schema=self.schema, tables=tables)
        locks = []
        for pid, gid, table, mode, granted in rows:
            if pid is not None or gid is not None:
                strong, writes = mode in STRONG, mode == "RowExclusiveLock" and granted
                locks.append(TableLock(gid if pid is None else pid, table, _words(mode), granted, strong, writes))
        return Found(tables=locks)

    PGROWLOCKS: ClassVar[str] = """
        SELECT quote_ident(n.nspname), pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
            AND pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
            pg_catalog.pg_relation_size(CAST(:jobs AS text)::regclass)
        FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
        WHERE p.proname = 'pgrowlocks' AND p.pronargs = 1
    """
    # Who waits for a whole table keeps all away who come after, us as well. That must not keep us from saying so.
    BRIEFLY: ClassVar[str] = "SELECT set_config('lock_timeout', '500ms', true)"
    FIND_PGROWLOCKS: ClassVar[str] = "SELECT set_config('search_path', CAST(:path AS text), true)"
    # `pids` has 0 for a prepared transaction. Who only holds its place for a foreign key hides nothing from a claim.
    ROWS_BY_PGROWLOCKS: ClassVar[str] = """
        SELECT l.pid, p.gid, j.queue, count(*), (array_agg(j.id ORDER BY j.id))[1:5]
        FROM pgrowlocks(CAST(:jobs AS text)) AS r
        CROSS JOIN LATERAL unnest(r.xids, r.modes, r.pids) AS l(xid, mode, pid)
        JOIN dibs_jobs AS j ON j.ctid = r.locked_row
        LEFT JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction::text = l.xid::text
        WHERE l.mode NOT LIKE '%Key Share' AND l.pid <> pg_backend_pid()
          AND (CAST(:queue AS text) IS NULL OR j.queue = CAST(:queue AS text))
        GROUP BY l.pid, p.gid, j.queue
    """
    ROWS_BY_XMAX: ClassVar[str] = """
        SELECT l.pid, p.gid, j.queue, count(*), (array_agg(j.id ORDER BY j.id))[1:5]
        FROM (
            (SELECT id, queue, xmax AS locker FROM dibs_jobs WHERE status = 'ready'
                AND (CAST(:queue AS text) IS NULL OR queue = CAST(:queue AS text)) LIMIT 100000)
            UNION ALL
            (SELECT id, queue, xmax AS locker FROM dibs_jobs WHERE status = 'running'
                AND (CAST(:queue AS text) IS NULL OR queue = CAST(:queue AS text)) LIMIT 100000)
        ) AS j
        JOIN pg_catalog.pg_locks AS l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = j.locker
        LEFT JOIN pg_catalog.pg_prepared_xacts AS p ON l.pid IS NULL AND p.transaction = j.locker
        WHERE l.pid IS DISTINCT FROM pg_backend_pid()
        GROUP BY l.pid, p.gid, j.queue
    """

    def lock_rows(self, queue: str | None) -> Op[Found]:
        """Return who holds which rows: by pgrowlocks where it is, may be used and the table is not too large for it."""
        jobs = self.qualify("dibs_jobs")
        yield from fetch(self.BRIEFLY)
        installed = yield from fetch(self.PGROWLOCKS, jobs=jobs)
        notes = [_WITHOUT_PGROWLOCKS]
        if installed and installed[0][1] and installed[0][2] <= MOST_FOR_PGROWLOCKS:
            yield from fetch(self.FIND_PGROWLOCKS, path=installed[0][0])
            rows = yield from fetch(self.ROWS_BY_PGROWLOCKS, jobs=jobs, queue=queue)
            notes = []
        else:
            rows = yield from fetch(self.ROWS_BY_XMAX, queue=queue)
        held = [RowsHeld(gid or pid, queue, number, list(ids)) for pid, gid, queue, number, ids in rows if pid or gid]
        return Found(rows=held, notes=notes, counted=True)

    END_SESSION: ClassVar[str] = "SELECT pg_terminate_backend(CAST(:session AS integer))"

    def end_session(self, session: int) -> Op[bool]:
        rows = yield from fetch(self.END_SESSION, alone=True, session=session)
        return bool(rows[0][0])


def _session(row: Row) -> Session:
    pid, user, application, client, state, wait_type, wait, since, seconds, query, _ = row
    hidden = query == _HIDDEN
    return Session(
        who=pid,
        state="hidden" if hidden else _state(state, wait_type),
        since=since,
        seconds=seconds,
        wait=f"{wait_type}: {wait}" if wait_type else None,
        query=None if hidden else query,
        application=application,
        client=None if hidden else client,
        user=user,
        ends_with=_TERMINATE.format(pid),
    )


_TERMINATE = "SELECT pg_terminate_backend({})"


def _state(state: str | None, wait_type: Any) -> str:
    if state == "active":
        return "waits for a lock" if wait_type == "Lock" else "runs a statement"
    return state or "unknown"


def _words(mode: str) -> str:
    """Return a lock's mode as SQL writes it.

    >>> _words("AccessExclusiveLock")
    'ACCESS EXCLUSIVE'
    """
    words = "".join(f" {letter}" if letter.isupper() else letter for letter in mode.removesuffix("Lock"))
    return words.strip().upper()
