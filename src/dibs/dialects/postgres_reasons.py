"""Why nothing of a queue is claimed, on PostgreSQL: which other databases there are, each out of this connection's reach."""

from __future__ import annotations

from typing import ClassVar

from dibs.dialects.reasons import Reasons
from dibs.ops import Op, fetch


class PostgresReasons(Reasons):
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
