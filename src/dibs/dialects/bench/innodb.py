"""What measures MySQL and MariaDB."""

from __future__ import annotations

from typing import ClassVar

from dibs.dialects.bench.locking import LOCKING, Locking
from dibs.ops import Op, execute, fetch

# Named, since on a small table the optimizer would rather scan and sort: then the first claim locks every row.
_NEXT = "SELECT id FROM {claims} FORCE INDEX (claims_ready) WHERE status = 'ready'"

_DIGITS = """(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
    UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"""


class MeasuringInnoDB(Locking):
    strategies = LOCKING
    words: ClassVar[dict[str, str]] = {
        "next": f"{_NEXT} ORDER BY place LIMIT 1",
        "next_batch": f"{_NEXT} ORDER BY place LIMIT 10",
    }

    VERSION: ClassVar[str] = "SELECT VERSION()"

    def version(self) -> Op[str]:
        rows = yield from fetch(self.VERSION, alone=True)
        return f"{self.dialect.name} {rows[0][0]}"

    DURABILITY: ClassVar[str] = """
        SHOW VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin')
    """

    def durability(self) -> Op[tuple[bool, str]]:
        settings: dict[str, str] = dict((yield from fetch(self.DURABILITY, alone=True)))
        durable = settings["innodb_flush_log_at_trx_commit"] == "1"
        durable = durable and (settings["log_bin"] != "ON" or settings["sync_binlog"] == "1")
        return durable, ", ".join(f"{name} = {value}" for name, value in sorted(settings.items()))

    HOLD: ClassVar[str] = "SELECT GET_LOCK(:name, 0)"

    def hold(self, name: str) -> Op[bool]:
        # The name is one for the whole server, and at most 64 characters long: the token in it is enough.
        rows = yield from fetch(self.HOLD, alone=True, name=name)
        return bool(rows[0][0])

    RAW_ROW: ClassVar[str] = "('bench', 'noop', :payload, {now}, {now})"

    RAW_LOCK: ClassVar[str] = """
        SELECT id, payload FROM dibs_jobs
        WHERE status = 'ready' AND queue = 'bench' AND priority = 0 AND run_at <= {now}
        ORDER BY run_at, id LIMIT :limit FOR UPDATE SKIP LOCKED
    """
    RAW_MARK: ClassVar[str] = """
        UPDATE dibs_jobs SET status = 'running', attempts = attempts + 1 WHERE id {in_ids} AND status = 'ready'
    """

    def raw_claim(self, limit: int) -> Op[list[int]]:
        rows = yield from fetch(self.RAW_LOCK, limit=limit)
        ids = [row[0] for row in rows]
        if ids:
            yield from execute(self.RAW_MARK, ids=self.dialect.ids(ids))
        return ids

    MAKE_CLAIMS: ClassVar[str] = """
        CREATE TABLE {claims} (
            id BIGINT NOT NULL PRIMARY KEY, place BIGINT NOT NULL, status VARCHAR(10) NOT NULL, times INT NOT NULL,
            INDEX claims_ready (status, place)
        ) ENGINE = InnoDB
    """
    # By digits, the highest first, since neither server counts further than 1,000 in a recursion unless it is set to.
    FILL_CLAIMS: ClassVar[str] = f"""
        INSERT INTO {{claims}} (id, place, status, times)
        SELECT number, number, 'ready', 0 FROM (
            SELECT 1 + 100000 * f.n + 10000 * e.n + 1000 * d.n + 100 * c.n + 10 * b.n + a.n AS number
            FROM {_DIGITS} AS f
            STRAIGHT_JOIN {_DIGITS} AS e ON 100000 * f.n + 10000 * e.n < :rows
            STRAIGHT_JOIN {_DIGITS} AS d ON 100000 * f.n + 10000 * e.n + 1000 * d.n < :rows
            STRAIGHT_JOIN {_DIGITS} AS c ON 100000 * f.n + 10000 * e.n + 1000 * d.n + 100 * c.n < :rows
            STRAIGHT_JOIN {_DIGITS} AS b STRAIGHT_JOIN {_DIGITS} AS a
        ) AS numbers
        WHERE number <= :rows
    """

    # The lock is asked for row by row on the way through the index. It is the session's, not the transaction's.
    ADVISE: ClassVar[str] = f"{_NEXT} AND GET_LOCK(CONCAT(:table, id), 0) = 1 ORDER BY place LIMIT 1"
    LET_GO: ClassVar[str] = "SELECT RELEASE_ALL_LOCKS()"

    def let_go(self) -> Op[None]:
        yield from fetch(self.LET_GO, alone=True)
