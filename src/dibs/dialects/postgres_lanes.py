"""Looking for lanes on PostgreSQL: from lane to lane through the ready index, and past those that are known.

An entry of the index stays until nobody can see its row any more. While somebody holds a snapshot open the first step into
a lane walks over all that was claimed there since (measured: 50 ms for 600,000 jobs, every second). What is known to be
a lane need not be stepped into to find the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

from dibs.dialects.spelling import Spelling
from dibs.jobs import Lane
from dibs.ops import Op, fetch

#: Beside every priority there is.
_BELOW, _ABOVE = -(2**15) - 1, 2**15


class PostgresLanes(Spelling):
    """The op that finds lanes."""

    # DISTINCT would read every ready row.
    LANES: ClassVar[str] = """
        WITH RECURSIVE lane AS (
            (SELECT queue, priority FROM dibs_jobs WHERE status = 'ready' ORDER BY queue, priority LIMIT 1)
            UNION ALL
            SELECT further.queue, further.priority FROM lane CROSS JOIN LATERAL (
                SELECT queue, priority FROM dibs_jobs
                WHERE status = 'ready' AND (queue, priority) > (lane.queue, lane.priority)
                ORDER BY queue, priority LIMIT 1
            ) AS further
        )
        SELECT queue, priority FROM lane
    """
    LANES_OF: ClassVar[str] = """
        WITH RECURSIVE lane AS (
            SELECT q.queue, first.priority FROM unnest(CAST(:queues AS text[])) AS q(queue) CROSS JOIN LATERAL (
                SELECT priority FROM dibs_jobs WHERE status = 'ready' AND queue = q.queue ORDER BY priority LIMIT 1
            ) AS first
            UNION ALL
            SELECT lane.queue, further.priority FROM lane CROSS JOIN LATERAL (
                SELECT priority FROM dibs_jobs
                WHERE status = 'ready' AND queue = lane.queue AND priority > lane.priority
                ORDER BY priority LIMIT 1
            ) AS further
        )
        SELECT queue, priority FROM lane
    """

    # One step into each gap between two lanes that are known, and into what is before the first and behind the last. Each
    # bound is one of the range: with OR, or with a bound that may be NULL, it would be a filter.
    LANES_BETWEEN: ClassVar[str] = """
        SELECT found.queue, found.priority
        FROM unnest(
            CAST(:queues AS text[]), CAST(:priorities AS integer[]),
            CAST(:next_queues AS text[]), CAST(:next_priorities AS integer[])
        ) AS gap(queue, priority, next_queue, next_priority)
        CROSS JOIN LATERAL (
            SELECT queue, priority FROM dibs_jobs
            WHERE status = 'ready' AND (queue, priority) > (gap.queue, gap.priority)
              AND (queue, priority) < (gap.next_queue, gap.next_priority)
            ORDER BY queue, priority LIMIT 1
        ) AS found
        UNION ALL (
            SELECT queue, priority FROM dibs_jobs
            WHERE status = 'ready' AND (queue, priority) > (CAST(:last AS text), CAST(:last_priority AS integer))
            ORDER BY queue, priority LIMIT 1
        )
    """
    LANES_BETWEEN_OF: ClassVar[str] = """
        SELECT gap.queue, found.priority
        FROM unnest(
            CAST(:queues AS text[]), CAST(:priorities AS integer[]), CAST(:next_priorities AS integer[])
        ) AS gap(queue, priority, next_priority)
        CROSS JOIN LATERAL (
            SELECT priority FROM dibs_jobs
            WHERE status = 'ready' AND queue = gap.queue AND priority > gap.priority AND priority < gap.next_priority
            ORDER BY priority LIMIT 1
        ) AS found
    """

    def lanes(self, queues: Sequence[str] | None, *, known: Sequence[Lane] = ()) -> Op[list[Lane]]:
        if not known:
            if queues is None:
                rows = yield from fetch(self.LANES, alone=True)
            else:
                rows = yield from fetch(self.LANES_OF, alone=True, queues=list(queues))
            return [Lane(*row) for row in rows]
        lanes = set(known)
        while True:
            rows = yield from (self._between(lanes) if queues is None else self._between_of(lanes, queues))
            if not rows:
                return sorted(lanes, key=_place)
            lanes |= {Lane(*row) for row in rows}

    def _between(self, lanes: set[Lane]) -> Op[list[tuple[str, int]]]:
        ends = [Lane("", _BELOW), *sorted(lanes, key=_place)]
        gaps, last = list(pairwise(ends)), ends[-1]
        return (
            yield from fetch(
                self.LANES_BETWEEN,
                alone=True,
                queues=[one.queue for one, _ in gaps],
                priorities=[one.priority for one, _ in gaps],
                next_queues=[other.queue for _, other in gaps],
                next_priorities=[other.priority for _, other in gaps],
                last=last.queue,
                last_priority=last.priority,
            )
        )

    def _between_of(self, lanes: set[Lane], queues: Sequence[str]) -> Op[list[tuple[str, int]]]:
        gaps: list[tuple[str, int, int]] = []
        for queue in queues:
            ends = [_BELOW, *sorted(lane.priority for lane in lanes if lane.queue == queue), _ABOVE]
            gaps += [(queue, low, high) for low, high in pairwise(ends)]
        return (
            yield from fetch(
                self.LANES_BETWEEN_OF,
                alone=True,
                queues=[queue for queue, _, _ in gaps],
                priorities=[low for _, low, _ in gaps],
                next_priorities=[high for _, _, high in gaps],
            )
        )


def _place(lane: Lane) -> tuple[bytes, int]:
    """Return what lanes are sorted by in the index: the collation "C" compares bytes."""
    return lane.queue.encode(), lane.priority
