"""Where to look for the next jobs: which lanes there are, in which order, and from where in each. Pure: no I/O.

A claim that starts at the beginning of its lane walks over all that was claimed before and could not be cleaned
away yet (measured under a held snapshot: 147 claims/s fall to 34 in half a minute). So each lane has a cursor:
the earliest position of the batch claimed last. Rows can stand before it: committed late, skipped because they
were locked, or claimed in a transaction that was rolled back. A full scan of the lane finds them. What full
scans cost beyond claims from the cursor is held to a share of the time, so they are nearly every claim while they
are cheap, and rare when dead rows make them dear.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dibs.jobs import Lane, Position

#: The share of a claimer's time that full scans may cost beyond claims from the cursor.
SHARE = 0.05

#: A full scan counts as costing at least this much (seconds): a round trip is never free.
LEAST_COST = 0.0002


@dataclass(slots=True)
class _Cursor:
    position: Position | None = None
    next_full_scan: float = 0.0
    usual: float | None = None  # seconds that a claim from the cursor takes


class Lanes:
    """The lanes of one claimer. Times are this process's monotonic seconds, handed in."""

    def __init__(self, queues: Sequence[str] | None) -> None:
        self.queues = list(queues) if queues is not None else None
        self._cursors: dict[Lane, _Cursor] = {}
        self._turn = 0

    def learn(self, lanes: Iterable[Lane]) -> None:
        """Take note of the lanes that have ready jobs now; the others are forgotten with their cursors."""
        self._cursors = {lane: self._cursors.get(lane) or _Cursor() for lane in lanes}

    def forget_positions(self) -> None:
        """Start from the beginnings again: after a reconnection it may be another server with another clock."""
        self._cursors = {lane: _Cursor() for lane in self._cursors}

    def in_order(self) -> list[Lane]:
        """Return the lanes in the order in which to claim from them.

        Queues as they were listed, or, where none were, in turns: another one first each time. Within a queue
        strictly by priority.
        """
        by_queue: dict[str, list[Lane]] = {}
        for lane in self._cursors:
            by_queue.setdefault(lane.queue, []).append(lane)
        if self.queues is not None:
            names = [queue for queue in self.queues if queue in by_queue]
        else:
            names = sorted(by_queue)
            if names:
                self._turn = (self._turn + 1) % len(names)
                names = names[self._turn :] + names[: self._turn]
        return [lane for queue in names for lane in sorted(by_queue[queue], key=lambda lane: -lane.priority)]

    def since(self, lane: Lane, *, now: float) -> Position | None:
        """Return from where to claim: the cursor, or None for a full scan, when it is time for one."""
        cursor = self._cursors[lane]
        return None if now >= cursor.next_full_scan else cursor.position

    def claimed(self, lane: Lane, first: Position | None, *, full: bool, took: float, now: float) -> None:
        """Take note of a claim that took `took` seconds; `first` is the earliest position it got, if any.

        The cursor goes to the earliest position of the batch also when that is further back: from there it goes
        on over the late rows. (Kept ahead, it starves them: 14,295 of 75,636 jobs were left behind in 20 s.)
        """
        cursor = self._cursors.get(lane)
        if cursor is None:
            return
        if first is not None:
            cursor.position = first
        if not full:
            cursor.usual = took if cursor.usual is None else 0.8 * cursor.usual + 0.2 * took
            return
        cost = max(took - (cursor.usual or 0.0), LEAST_COST)
        cursor.next_full_scan = now + cost * len(self._cursors) / SHARE

    def lower(self, queue: str) -> None:
        """Look at a queue's lanes from their beginnings next: somebody said that there is something due."""
        for lane, cursor in self._cursors.items():
            if lane.queue == queue:
                cursor.next_full_scan = 0.0

    def knows(self, queue: str) -> bool:
        """Is there a lane of this queue?"""
        return any(lane.queue == queue for lane in self._cursors)
