"""How deep the queues are, for metrics: asked every few seconds for ever, so each statement has a bound on what it reads.

What is due or scheduled is counted lane by lane, in the ready index alone, up to a limit. What runs is as much as all
slots there are. What has ended is in no index that would help on every database: whoever asks for it asks seldom.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, NamedTuple

from dibs.dialects.spelling import Spelling
from dibs.jobs import Lane
from dibs.ops import Op, fetch


class LaneDepth(NamedTuple):
    """What waits in a lane: how many jobs are due, how many are not yet, and since how many seconds the oldest is due."""

    due: int
    scheduled: int
    oldest: float | None


class Running(NamedTuple):
    """What runs of a queue, and how many leases of these are past."""

    queue: str
    running: int
    past: int


class Depths(Spelling):
    """Ops that count."""

    COUNT_DUE: ClassVar[str] = """
        SELECT count(*) FROM (
            SELECT run_at FROM dibs_jobs
            WHERE status = 'ready' AND queue = :queue AND priority = :priority AND run_at <= {now}
            ORDER BY run_at, id LIMIT :limit) AS due
    """
    COUNT_SCHEDULED: ClassVar[str] = """
        SELECT count(*) FROM (
            SELECT run_at FROM dibs_jobs
            WHERE status = 'ready' AND queue = :queue AND priority = :priority AND run_at > {now}
            ORDER BY run_at, id LIMIT :limit) AS scheduled
    """
    OLDEST_DUE: ClassVar[str] = """
        SELECT run_at, {now} FROM dibs_jobs
        WHERE status = 'ready' AND queue = :queue AND priority = :priority AND run_at <= {now}
        ORDER BY run_at, id LIMIT 1
    """

    def lane_depth(self, lane: Lane, *, limit: int) -> Op[LaneDepth]:
        """Count what waits in a lane, up to `limit` each."""
        values = lane._asdict()
        oldest = yield from fetch(self.OLDEST_DUE, alone=True, **values)
        ((due,),) = (yield from fetch(self.COUNT_DUE, alone=True, limit=limit, **values)) if oldest else [(0,)]
        ((scheduled,),) = yield from fetch(self.COUNT_SCHEDULED, alone=True, limit=limit, **values)
        return LaneDepth(due, scheduled, self._since(*oldest[0]) if oldest else None)

    def _since(self, then: object, now: object) -> float:
        moments: tuple[datetime, datetime] = self.moment(now), self.moment(then)
        return max((moments[0] - moments[1]).total_seconds(), 0.0)

    RUNNING: ClassVar[str] = """
        SELECT queue, count(*), sum(CASE WHEN lease_until < {now} THEN 1 ELSE 0 END) FROM dibs_jobs
        WHERE status = 'running' GROUP BY queue
    """

    def running(self) -> Op[list[Running]]:
        """Count what runs, by queue."""
        rows = yield from fetch(self.RUNNING, alone=True)
        return [Running(queue, number, int(past)) for queue, number, past in sorted(rows)]

    ENDED: ClassVar[str] = """
        SELECT queue, status, count(*) FROM dibs_jobs
        WHERE status IN ('done', 'failed', 'cancelled') GROUP BY queue, status
    """
    ALL_DUPLICATES: ClassVar[str] = "SELECT coalesce(sum(times), 0) FROM dibs_duplicates"

    def ended(self) -> Op[tuple[dict[tuple[str, str], int], int]]:
        """Count what has ended and is kept, by queue and status, and the duplicates of all jobs. Reads every row."""
        rows = yield from fetch(self.ENDED, alone=True)
        ((duplicates,),) = yield from fetch(self.ALL_DUPLICATES, alone=True)
        return {(queue, status): number for queue, status, number in rows}, int(duplicates)
