"""Where to look for the next jobs: which lanes there are, in which order, and from where in each. Pure: no I/O.

A claim that starts at the beginning of its lane walks over all that was claimed before and could not be cleaned
away yet (measured under a held snapshot: 147 claims/s fall to 34 in half a minute). So each lane has a cursor:
the earliest position of the batch claimed last. Rows can stand before it: committed late, skipped because they
were locked, or claimed in a transaction that was rolled back. A full scan of the lane finds them. What full
scans cost beyond claims from the cursor is held to a share of the time, so they are nearly every claim while they
are cheap, and rare when dead rows make them dear.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dibs.jobs import Lane, Position
from dibs.worker.scout import LONG

#: The share of a claimer's time that full scans may cost beyond claims from the cursor.
SHARE = 0.05

#: A full scan counts as costing at least this much (seconds): a round trip is never free.
LEAST_COST = 0.0002

#: A lane is scanned in full at least this often (seconds), whatever it costs: the longest that a row before the
#: cursor is not seen.
LONGEST_UNSEEN = 10.0

#: A claim that finds nothing and takes longer than this (seconds) has walked over others' jobs.
DEAR = 0.002

#: Cursors of so many lanes that had no ready jobs left are kept: told of a new one there, a worker need not look for it.
MOST_PAST = 1_000

#: They are passed by up to a moment so long (seconds) ago: nearly all commits come sooner than that.
LOOK_BACK = 1.0


def rest_after(cost: float, *, longest: float) -> float:
    """Return for how long (seconds) not to do again what took `cost`, so that it keeps to its share."""
    return min(cost / SHARE, longest)


@dataclass(slots=True)
class _Cursor:
    position: Position | None = None
    next_full_scan: float = 0.0
    last_cost: float = 0.0  # seconds that the last full scan cost
    usual: float | None = None  # seconds that a claim from the cursor takes
    in_vain: bool = False  # the last claim found nothing, and took long
    rests_until: float = 0.0  # then it was: it keeps to its share too
    told: bool = False  # somebody said since then that there is something due
    touched: float = 0.0  # when somebody said so, or it was claimed from, last


class Horizon:
    """The database's time as it was a little ago. Both clocks only go into it side by side: no difference is taken."""

    def __init__(self) -> None:
        self._moments: deque[tuple[float, Any]] = deque()

    def wanted(self, now: float) -> bool:
        """Is it time to ask the database again?"""
        return not self._moments or now - self._moments[-1][0] >= LOOK_BACK / 4

    def note(self, now: float, moment: Any) -> None:
        """Take note of the database's time, asked for at `now` (monotonic)."""
        self._moments.append((now, moment))
        while len(self._moments) > 1 and now - self._moments[1][0] >= LOOK_BACK:
            self._moments.popleft()

    def behind(self, now: float) -> Any | None:
        """Return the latest time known that lies at least `LOOK_BACK` behind `now`, if there is one."""
        return next((moment for at, moment in reversed(self._moments) if now - at >= LOOK_BACK), None)

    def forget(self) -> None:
        """It may be another server, with another clock."""
        self._moments.clear()


class Lanes:
    """The lanes of one claimer. Times are this process's monotonic seconds, handed in."""

    def __init__(
        self, queues: Sequence[str] | None, *, weights: Mapping[str, int] | None = None, claimers: int = 1
    ) -> None:
        """`claimers`: how many share this worker's time for full scans."""
        self.queues = list(queues) if queues is not None else None
        self._weights = weights
        self._due = dict.fromkeys(weights or (), 0)  # how much each queue with a weight is owed
        self._share = SHARE / claimers
        self._cursors: dict[Lane, _Cursor] = {}
        self._past: dict[Lane, _Cursor] = {}  # of lanes that had no ready jobs when they were last looked for
        self._turn = 0

    def learn(self, lanes: Iterable[Lane], *, asked: float = math.inf) -> None:
        """Take note of the lanes that have ready jobs, or had when that was `asked`. The others are past, unless something
        was due there since; their cursors are good for later."""
        known = self._past | self._cursors
        later = [lane for lane, cursor in self._cursors.items() if cursor.touched >= asked]
        self._cursors = {lane: known.get(lane) or _Cursor() for lane in [*lanes, *later]}
        past = [(lane, cursor) for lane, cursor in known.items() if lane not in self._cursors]
        self._past = dict(past[-MOST_PAST:])

    def forget_positions(self) -> None:
        """Start from the beginnings again: after a reconnection it may be another server with another clock."""
        self._cursors = {lane: _Cursor() for lane in self._cursors}
        self._past = {}

    def all(self) -> list[Lane]:
        """Return the lanes, in no order that means anything."""
        return list(self._cursors)

    def in_order(self) -> list[Lane]:
        """Return the lanes in the order in which to claim from them.

        Queues as they were listed, or, where none were, in turns: another one first each time; with weights each is the
        first as often as its weight says. Within a queue strictly by priority.
        """
        by_queue: dict[str, list[Lane]] = {}
        for lane in self._cursors:
            by_queue.setdefault(lane.queue, []).append(lane)
        if self._weights is not None:
            names = self._by_weight([queue for queue in self._weights if queue in by_queue])
        elif self.queues is not None:
            names = [queue for queue in self.queues if queue in by_queue]
        else:
            names = sorted(by_queue)
            if names:
                self._turn = (self._turn + 1) % len(names)
                names = names[self._turn :] + names[: self._turn]
        return [lane for queue in names for lane in sorted(by_queue[queue], key=lambda lane: -lane.priority)]

    def _by_weight(self, names: list[str]) -> list[str]:
        """Return queues by what they are owed. Smooth weighted round-robin, as in nginx: all gain their weight, the first
        pays the sum, so that 3 : 1 comes as a a b a and not as a a a b."""
        weights = self._weights or {}
        for name in names:
            self._due[name] += weights[name]
        names = sorted(names, key=lambda name: -self._due[name])
        if names:
            self._due[names[0]] -= sum(weights[name] for name in names)
        return names

    def since(self, lane: Lane, *, now: float) -> Position | None:
        """Return from where to claim: the cursor, or None for a full scan, when it is time for one."""
        cursor = self._cursors[lane]
        return None if now >= cursor.next_full_scan else cursor.position

    def is_long(self, lane: Lane) -> bool:
        """Would a full scan of this lane keep waiting what could be claimed from its cursor?"""
        cursor = self._cursors[lane]
        return cursor.position is not None and cursor.last_cost > LONG

    def put_off(self, lane: Lane, *, now: float, scouted: bool) -> Position | None:
        """Return the cursor to claim from, while the scout looks at the lane or, if it is not `scouted`, at another one;
        None if the lane has been waiting for it so long that it has to be scanned in full."""
        cursor = self._cursors[lane]
        if scouted:
            cursor.next_full_scan = now + LONGEST_UNSEEN
        return cursor.position if now - cursor.next_full_scan < LOOK_BACK else None

    def scouted(self, lane: Lane, first: Position | None, *, took: float, now: float) -> None:
        """Take note of what such a look has found: the cursor goes back to what stands before it."""
        cursor = self._cursors.get(lane)
        if cursor is None or cursor.position is None:
            return
        if first is not None and first < cursor.position:
            cursor.position, cursor.told = first, True
        self._scanned(cursor, took, now=now)

    def rests(self, lane: Lane, *, now: float) -> bool:
        """Is it too early to look again, after a claim that found nothing and took long?"""
        cursor = self._cursors[lane]
        return cursor.in_vain and not cursor.told and now < min(cursor.rests_until, cursor.next_full_scan)

    def in_vain(self, lane: Lane) -> bool:
        """Did the last claim find nothing and take long?"""
        return self._cursors[lane].in_vain

    def claimed(
        self, lane: Lane, first: Position | None, *, full: bool, took: float, now: float, behind: Any | None = None
    ) -> None:
        """Take note of a claim that took `took` seconds; `first` is the earliest position it got, if any. `behind` is
        the database's time a little before it, if that is known.

        The cursor goes to the earliest position of the batch also when that is further back: from there it goes
        on over the late rows. (Kept ahead, it starves them: 14,295 of 75,636 jobs were left behind in 20 s.)
        """
        cursor = self._cursors.get(lane)
        if cursor is None:
            return
        cursor.in_vain, cursor.told = first is None and took > DEAR, False
        if first is not None:
            cursor.position, cursor.touched = first, now
        elif cursor.in_vain and behind is not None:
            passed = Position(behind, 0)
            cursor.position = passed if cursor.position is None else max(cursor.position, passed)
        # After a full scan there is nothing to rest from: the next claim is from the cursor, and the next full scan keeps to
        # its own share. (Resting here, too, had jobs wait for a second under a held snapshot, where nobody tells of them.)
        from_cursor = full and cursor.position is not None
        cursor.rests_until = now if from_cursor else now + min(took * len(self._cursors) / self._share, LOOK_BACK)
        if not full:
            cursor.usual = took if cursor.usual is None else 0.8 * cursor.usual + 0.2 * took
            return
        self._scanned(cursor, took, now=now)

    def _scanned(self, cursor: _Cursor, took: float, *, now: float) -> None:
        cost = max(took - (cursor.usual or 0.0), LEAST_COST)
        # The lesser of two: a single slow answer says nothing about the scan. (A pause of 2 s hid rows for 40.)
        lesser, cursor.last_cost = min(cost, cursor.last_cost or LEAST_COST), cost
        cursor.next_full_scan = now + min(lesser * len(self._cursors) / self._share, LONGEST_UNSEEN)

    def told(self, queue: str, moment: Any | None = None, *, now: float) -> bool:
        """Somebody said that there is something due in a queue: look at its lanes from this moment on, or, where that is
        not known, from their beginnings. Return False where no lane of the queue was ever seen."""
        past = [lane for lane in self._past if lane.queue == queue]
        self._cursors |= {lane: self._past.pop(lane) for lane in past}
        cursors = [cursor for lane, cursor in self._cursors.items() if lane.queue == queue]
        for cursor in cursors:
            cursor.told, cursor.touched = True, now
            if moment is not None and (cursor.position is not None or cursor.in_vain):
                # Where nothing was ever claimed, and a full scan found nothing and took long, that is where it begins.
                told = Position(moment, 0)
                cursor.position = min(cursor.position or told, told)
            else:
                cursor.next_full_scan = 0.0
        return bool(cursors)
