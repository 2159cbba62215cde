"""Who holds rows on PostgreSQL: the rows themselves say which transaction locked them last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dibs.dialects.reasons import Reasons
from dibs.ops import Op, fetch
from dibs.why import HeldBy


class PostgresHolders(Reasons):
    """Looks for the sessions behind locked rows, and for other queues in all schemas."""

    # A row's xmax is the transaction that holds it (or a multixact, which is in no view). pg_locks has no entry of the
    # holder for the row: its `tuple` rows are those who wait. So the way goes by the transaction's own lock on its number.
    HOLDERS: ClassVar[str] = """
        SELECT a.pid, a.usename, a.application_name, host(a.client_addr), a.state, a.xact_start, count(*)
        FROM dibs_jobs j
        JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = j.xmax AND l.granted
            AND l.mode = 'ExclusiveLock'
        JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE j.id {in_ids}
        GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 7 DESC, 1
    """

    def lock_holders(self, job_ids: Sequence[int]) -> Op[list[HeldBy]]:
        rows = yield from fetch(self.HOLDERS, alone=True, ids=self.ids(job_ids))
        return [
            HeldBy(
                session=pid,
                user=user,
                application=application,
                address=address,
                state=state,
                since=self.moment_or_none(since),
                rows=number,
            )
            for pid, user, application, address, state, since, number in rows
        ]

    # An account sees of others' sessions the database and under which name they have connected.
    DATABASES: ClassVar[str] = """
        SELECT d.datname FROM pg_catalog.pg_database AS d
        WHERE d.datallowconn AND NOT d.datistemplate AND d.datname <> current_database()
            AND has_database_privilege(d.oid, 'CONNECT')
        ORDER BY EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a
            WHERE a.datid = d.oid AND a.application_name LIKE 'dibs%') DESC, d.datname
        LIMIT :limit
    """

    def other_databases(self, *, limit: int) -> Op[list[str]]:
        rows = yield from fetch(self.DATABASES, alone=True, limit=limit)
        return [row[0] for row in rows]
