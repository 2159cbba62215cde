"""What measures PostgreSQL."""

from __future__ import annotations

from typing import ClassVar

from dibs.dialects.bench.locking import LOCKING, Locking
from dibs.ops import Op, execute, fetch


class MeasuringPostgres(Locking):
    strategies = LOCKING
    words: ClassVar[dict[str, str]] = {
        # `place` and not `id`, although they are equal: by the primary key a planner that was told that all rows are
        # ready would go over all that are done.
        "next": "SELECT id FROM {claims} WHERE status = 'ready' ORDER BY place LIMIT 1",
        "next_batch": "SELECT id FROM {claims} WHERE status = 'ready' ORDER BY place LIMIT 10",
    }

    VERSION: ClassVar[str] = "SELECT current_setting('server_version')"

    def version(self) -> Op[str]:
        rows = yield from fetch(self.VERSION, alone=True)
        return f"PostgreSQL {rows[0][0]}"

    DURABILITY: ClassVar[str] = "SELECT current_setting('fsync'), current_setting('synchronous_commit')"

    def durability(self) -> Op[tuple[bool, str]]:
        ((fsync, synchronous),) = yield from fetch(self.DURABILITY, alone=True)
        durable = fsync == "on" and synchronous != "off"
        return durable, f"fsync = {fsync}, synchronous_commit = {synchronous}"

    HOLD: ClassVar[str] = "SELECT pg_try_advisory_xact_lock(hashtextextended(CAST(:name AS text), 0))"

    def hold(self, name: str) -> Op[bool]:
        rows = yield from fetch(self.HOLD, alone=True, name=f"{self.dialect.schema} {name}")
        return bool(rows[0][0])

    RAW_ROW: ClassVar[str] = """
        ('bench', 'noop', CAST(CAST(:payload AS text) AS json), {now}, {now})
    """

    STATISTICS: ClassVar[str] = "ANALYZE dibs_jobs"

    def take_statistics(self) -> Op[None]:
        yield from execute(self.STATISTICS, alone=True)

    RAW_CLAIM: ClassVar[str] = """
        WITH picked AS MATERIALIZED (
            SELECT id FROM dibs_jobs WHERE status = 'ready' AND queue = 'bench' AND priority = 0 AND run_at <= now()
            ORDER BY run_at, id LIMIT CAST(:limit AS integer) FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE dibs_jobs SET status = 'running', attempts = attempts + 1
        WHERE id = ANY(ARRAY(SELECT id FROM picked)) RETURNING id, payload
    """

    def raw_claim(self, limit: int) -> Op[list[int]]:
        rows = yield from fetch(self.RAW_CLAIM, alone=True, limit=limit)
        return [row[0] for row in rows]

    # No room is left on the pages: as in a queue that is full of jobs, no update stays on its page.
    MAKE_CLAIMS: ClassVar[str] = """
        CREATE TABLE {claims} (
            id bigint PRIMARY KEY, place bigint NOT NULL, status text COLLATE "C" NOT NULL, times integer NOT NULL
        )
    """
    INDEX_CLAIMS: ClassVar[str] = "CREATE INDEX ON {claims} (place) WHERE status = 'ready'"
    FILL_CLAIMS: ClassVar[str] = """
        INSERT INTO {claims} SELECT n, n, 'ready', 0 FROM generate_series(1, CAST(:rows AS bigint)) AS n
    """
    CLAIMS_STATISTICS: ClassVar[str] = "ANALYZE {claims}"

    def take_claims_statistics(self) -> Op[None]:
        yield from execute(self.CLAIMS_STATISTICS, alone=True)

    # Asked row by row on the way through the index, so it locks the number of no row but the one that it takes. Two
    # numbers: the first is this table's, so that a user's own advisory locks are not met.
    ADVISE: ClassVar[str] = """
        SELECT id FROM {claims}
        WHERE status = 'ready' AND pg_try_advisory_xact_lock(hashtext(CAST(:table AS text)), CAST(id AS integer))
        ORDER BY place LIMIT 1
    """
