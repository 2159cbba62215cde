"""Who holds rows on MySQL and MariaDB, as far as their views tell, which takes privileges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from dibs.dialects.reasons import Reasons
from dibs.ops import Op, Row, fetch
from dibs.why import HeldBy


class InnoDBHolders(Reasons):
    """What both have in common."""

    def database_of(self, schema: str) -> str | None:
        return None if schema == self.schema else schema

    def _holders_from(self, rows: Iterable[Row]) -> list[HeldBy]:
        return [
            HeldBy(
                session=int(session),
                user=user,
                application=None,
                address=address,
                state=state,
                since=self.moment_or_none(since),
                rows=number,
            )
            for session, user, address, state, since, number in rows
        ]


class MySQLHolders(InnoDBHolders):
    """MySQL shows the locks themselves; it takes PROCESS, and SELECT on performance_schema."""

    HOLDERS: ClassVar[str] = """
        SELECT p.id, p.user, p.host, p.command, t.trx_started, l.number
        FROM (
            SELECT engine_transaction_id AS trx, COUNT(*) AS number FROM performance_schema.data_locks
            WHERE object_schema = :schema AND object_name = :jobs AND index_name = 'PRIMARY' AND lock_type = 'RECORD'
              AND lock_status = 'GRANTED' AND lock_data IN :places
            GROUP BY engine_transaction_id) AS l
        JOIN information_schema.innodb_trx AS t ON t.trx_id = l.trx
        JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id
        WHERE p.id <> CONNECTION_ID()
        ORDER BY l.number DESC, t.trx_started LIMIT 5
    """

    def lock_holders(self, job_ids: Sequence[int]) -> Op[list[HeldBy]]:
        rows = yield from fetch(
            self.HOLDERS,
            alone=True,
            schema=self.schema,
            jobs=f"{self.prefix}dibs_jobs",
            places=tuple(str(job_id) for job_id in job_ids),
        )
        return self._holders_from(rows)


class MariaDBHolders(InnoDBHolders):
    """MariaDB shows no lock that nobody waits for: whoever holds any rows at all, the oldest first. It takes PROCESS."""

    HOLDERS: ClassVar[str] = """
        SELECT p.id, p.user, p.host, p.command, t.trx_started, NULL
        FROM information_schema.innodb_trx AS t
        JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id
        WHERE t.trx_rows_locked > 0 AND p.id <> CONNECTION_ID()
        ORDER BY t.trx_started LIMIT 5
    """

    def lock_holders(self, job_ids: Sequence[int]) -> Op[list[HeldBy]]:
        del job_ids  # no view tells whose rows they are
        rows = yield from fetch(self.HOLDERS, alone=True)
        return self._holders_from(rows)
