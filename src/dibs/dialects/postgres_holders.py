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

    PLACES: ClassVar[str] = """
        SELECT table_schema, table_name FROM information_schema.tables WHERE right(table_name, 9) = CAST(:jobs AS text)
    """
