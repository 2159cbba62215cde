"""What measures SQLite, which has one writer at a time and no row locks."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import ClassVar

from dibs.dialects.bench.measuring import BATCH, Measuring, Strategy
from dibs.ops import Op, fetch

#: In the order in which they are measured.
STRATEGIES = (
    Strategy("begin immediate", "the file's write lock, then SELECT and UPDATE, one row", "take_next", waits=True),
    Strategy(
        "begin immediate × 10",
        "the file's write lock, then SELECT and UPDATE, ten rows a claim",
        "take_batch",
        rows=BATCH,
        waits=True,
    ),
    Strategy(
        "optimistic",
        "SELECT without a lock, then UPDATE … WHERE status = 'ready'; changed nothing, it tries again",
        "take_seen",
        look="look",
        marks=True,
        waits=True,
    ),
)


class MeasuringSQLite(Measuring):
    strategies = STRATEGIES
    note = (
        "SQLite has no row locks: a claim takes the write lock of the whole file (BEGIN IMMEDIATE), so a claim that "
        "works while it holds its row holds up every other"
    )

    VERSION: ClassVar[str] = "SELECT sqlite_version()"

    def version(self) -> Op[str]:
        yield from ()
        return f"SQLite {sqlite3.sqlite_version}"

    DURABILITY: ClassVar[str] = "SELECT synchronous FROM pragma_synchronous"

    def durability(self) -> Op[tuple[bool, str]]:
        ((synchronous,),) = yield from fetch(self.DURABILITY, alone=True)
        return synchronous >= 2, f"synchronous = {('off', 'normal', 'full', 'extra')[synchronous]}"

    EMPTY: ClassVar[str] = "DELETE FROM dibs_jobs"

    RAW_ROW: ClassVar[str] = "('bench', 'noop', :payload, {now}, {now})"
    RAW_CLAIM: ClassVar[str] = """
        UPDATE dibs_jobs SET status = 'running', attempts = attempts + 1 WHERE id IN (
            SELECT id FROM dibs_jobs WHERE status = 'ready' AND queue = 'bench' AND priority = 0 AND run_at <= {now}
            ORDER BY run_at, id LIMIT :limit
        ) RETURNING id, payload
    """

    def raw_claim(self, limit: int) -> Op[list[int]]:
        rows = yield from fetch(self.RAW_CLAIM, alone=True, limit=limit)
        return [row[0] for row in rows]

    MAKE_CLAIMS: ClassVar[str] = """
        CREATE TABLE {claims} (
            id INTEGER PRIMARY KEY, place INTEGER NOT NULL, status TEXT NOT NULL, times INTEGER NOT NULL
        )
    """
    INDEX_CLAIMS: ClassVar[str] = "CREATE INDEX claims_ready ON claims (place) WHERE status = 'ready'"
    EMPTY_CLAIMS: ClassVar[str] = "DELETE FROM {claims}"
    FILL_CLAIMS: ClassVar[str] = """
        INSERT INTO {claims} WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :rows)
        SELECT n, n, 'ready', 0 FROM number
    """

    LOOK: ClassVar[str] = "SELECT id FROM {claims} WHERE status = 'ready' ORDER BY place LIMIT 1"
    LOOK_BATCH: ClassVar[str] = "SELECT id FROM {claims} WHERE status = 'ready' ORDER BY place LIMIT 10"

    def take_next(self, seen: Sequence[int]) -> Op[list[int]]:
        """Take the next row; nobody else writes meanwhile."""
        rows = yield from fetch(self.LOOK)
        return [row[0] for row in rows]

    def take_batch(self, seen: Sequence[int]) -> Op[list[int]]:
        """Take the next ten rows; nobody else writes meanwhile."""
        rows = yield from fetch(self.LOOK_BATCH)
        return [row[0] for row in rows]

    def take_seen(self, seen: Sequence[int]) -> Op[list[int]]:
        """Take the row that was seen, if it is still ready."""
        return self.mark_if_ready(seen)
