"""What a claim reads of a job's row, and what it makes of it. Alike on every database."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from dibs.dialects.spelling import Spelling
from dibs.jobs import Claim, Position
from dibs.ops import Row

#: What a claim reads of a job, in the order that `claim_from` wants; `{now}` is the claim's own moment.
CLAIM_COLUMNS = (
    "id, queue, task, payload, priority, attempts, max_attempts, crashes, releases, claims, run_at, task_key, "
    "key_until, retention, errors, meta, checkpoint, created_at, {now}, started_at"
)


class Claims(Spelling):
    """Reads rows that begin with CLAIM_COLUMNS."""

    def claim_from(self, row: Row) -> Claim:
        return self._claim(row, self.moment(row[17]), self.moment(row[18]))

    def claims_from(self, rows: Iterable[Row]) -> list[Claim]:
        """Turn rows of CLAIM_COLUMNS into claims, in the order of the lane (RETURNING has none)."""
        created, claimed = _once(self.moment), _once(self.moment)
        claims = [self._claim(row, created(row[17]), claimed(row[18])) for row in rows]
        claims.sort(key=lambda claim: claim.position)
        return claims

    def _claim(self, row: Row, created_at: datetime, claimed_at: datetime) -> Claim:
        return Claim(
            id=row[0],
            queue=row[1],
            task=row[2],
            payload=row[3],
            priority=row[4],
            attempts=row[5],
            max_attempts=row[6],
            crashes=row[7],
            releases=row[8],
            claims=row[9],
            position=Position(row[10], row[0]),
            task_key=row[11],
            key_until=row[12],
            retention=row[13],
            errors=row[14],
            meta=row[15],
            checkpoint=row[16],
            created_at=created_at,
            claimed_at=claimed_at,
            started=row[19] is not None,
        )


def _once(read: Callable[[Any], datetime]) -> Callable[[Any], datetime]:
    """Return a reader that reads once what comes several times in a row, as the moment of a claim does."""
    last: tuple[Any, datetime] | None = None

    def again(value: Any) -> datetime:
        nonlocal last
        if last is None or value != last[0]:
            last = value, read(value)
        return last[1]

    return again
