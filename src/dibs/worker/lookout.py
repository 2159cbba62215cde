"""The lookout: which lanes there are, as the database says now and then, and from where to claim in each.

Each kind of slots has cursors of its own, since what one kind takes leaves the other's jobs behind the cursor.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dibs.jobs import Lane, Position
from dibs.store import Store
from dibs.worker.lanes import DEAR, LONGEST_UNSEEN, LOOK_BACK, Horizon, Lanes, rest_after
from dibs.worker.scout import LONG, Scout
from dibs.worker.slots import Slots

#: How often (seconds) the lanes are looked for anew while there is work.
LANES_EVERY = 1.0

#: How often (seconds) what is known is looked at too, where that is dear: a lane that has been empty is known until then.
ANEW_EVERY = 120.0


class Lookout:
    """Used by the fetcher's thread alone, but for `told`."""

    def __init__(
        self,
        store: Store,
        slots: Sequence[Slots],
        queues: Sequence[str] | None,
        weights: Mapping[str, int] | None = None,
        *,
        scouts: Store | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """`scouts` is for looking at what would keep the fetcher waiting; `wake` lets it claim what was found so."""
        self._scout = Scout(scouts, wake) if scouts is not None and wake is not None else None
        self._store = store
        self._dialect = store.dialect
        self._queues = queues
        self._lanes = {each: Lanes(queues, weights=weights, claimers=len(slots)) for each in slots}
        self._horizon = Horizon()
        self._told: deque[tuple[str, Any | None]] = deque()
        self._next_look = 0.0
        self._next_anew = 0.0
        self._anew = 0.0  # when it was last looked at what is known too
        self._costs = (0.0, 0.0)  # seconds that the last two looks took
        self._costs_anew = (0.0, 0.0)  # those at what is known too
        self._costs_beside = (0.0, 0.0)  # the others
        self._connections = 0

    def told(self, queue: str, moment: Any | None = None) -> None:
        """There is something due in a queue, since this moment of the database's. Called by any thread."""
        self._told.append((queue, moment))

    def close(self) -> None:
        """Wait a moment for the scout."""
        if self._scout is not None:
            self._scout.close()

    def look_now(self) -> None:
        """Ask the database anew at the next look: nothing is certain any more."""
        self._next_look = self._next_anew = 0.0

    def look(self, now: float) -> None:
        """Take note of what was told and seen, and ask the database which lanes there are, if it is time for that."""
        while self._told:
            queue, moment = self._told.popleft()
            for lanes in self._lanes.values():
                if not lanes.told(queue, moment, now=now):
                    self._next_look = 0.0
        if self._scout is not None:
            self._scout.hear()
        if now < self._next_look:
            return
        anew = now >= self._next_anew
        if self._scout is None or min(self._costs) <= LONG or not self.lanes():
            self.learn(anew=anew)
        elif not self._have_learnt(self._scout, now, anew=anew):
            if now - self._next_look < LOOK_BACK:
                return  # it is asked when it has seen what it looks at
            self.learn(anew=anew)
        self._next_look = now + max(LANES_EVERY, self._rest())

    def _have_learnt(self, scout: Scout, now: float, *, anew: bool) -> bool:
        """Have the scout ask which lanes there are; False if it can't now."""
        lanes = set(self.lanes())
        known = [] if anew else list(lanes)
        return scout.ask(
            lambda store: store.run(lambda: self._dialect.lanes(self._queues, known=known), persistent=False),
            lambda found, took: self._learnt(found, took, anew=anew, asked=now),
            wakes=lambda found: not lanes.issuperset(found),
        )

    def found_nothing(self, now: float) -> None:
        """Ask soon: there may be lanes that are not known."""
        self._next_look = min(self._next_look, now + self._rest())

    def learn(self, *, anew: bool = True) -> None:
        """Ask the database which lanes there are; unless `anew`, those that are known may be taken for granted."""
        known = [] if anew else self.lanes()
        start = time.monotonic()
        found = self._store.run(lambda: self._dialect.lanes(self._queues, known=known))
        self._learnt(found, time.monotonic() - start, anew=anew)

    def _learnt(self, found: Iterable[Lane], took: float, *, anew: bool, asked: float = math.inf) -> None:
        self._note(took, time.monotonic(), anew=anew)
        if self._store.connections != self._connections:  # it may be another server, with another clock
            self._connections = self._store.connections
            self._horizon.forget()
            for lanes in self._lanes.values():
                lanes.forget_positions()
        for lanes in self._lanes.values():
            lanes.learn(found, asked=asked)

    def _note(self, took: float, end: float, *, anew: bool) -> None:
        """Take note of what a look took, and when next to look at what is known too: every other time, unless it is that
        what makes a look dear. (Not the number of lanes: then both are.)"""
        self._costs = (self._costs[1], took)
        if anew:
            self._anew, self._costs_anew = end, (self._costs_anew[1], took)
            self._next_anew = end + LANES_EVERY / 2 if min(self._costs_anew) > DEAR else 0.0
        else:
            self._costs_beside = (self._costs_beside[1], took)
            dear = min(self._costs_anew) > DEAR + 4 * min(self._costs_beside)
            self._next_anew = self._anew + ANEW_EVERY if dear else 0.0

    def _rest(self) -> float:
        """Return for how long (seconds) not to ask, so that asking keeps to its share as full scans do: it walks over
        the dead rows of each lane, which a held snapshot makes many. A single slow answer says nothing."""
        cost = min(self._costs)
        return rest_after(cost, longest=LONGEST_UNSEEN) if cost > DEAR else 0.0

    def lanes(self) -> list[Lane]:
        """Return the lanes, in no order that means anything."""
        return next(iter(self._lanes.values())).all()

    def in_order(self, slots: Slots, *, now: float) -> Iterator[Lane]:
        """Yield the lanes where there may be something for these slots, in the order in which to claim from them."""
        lanes = self._lanes[slots]
        return (lane for lane in lanes.in_order() if not lanes.rests(lane, now=now))

    def since(self, slots: Slots, lane: Lane) -> Position | None:
        """Return from where to claim: None for a full scan."""
        lanes = self._lanes[slots]
        if lanes.in_vain(lane) and self._horizon.wanted(asked := time.monotonic()):
            self._horizon.note(asked, self._store.run(self._dialect.time))
        now = time.monotonic()
        since = lanes.since(lane, now=now)
        if since is None and self._scout is not None and lanes.is_long(lane):
            tasks = self._dialect.names(slots.tasks)
            scouted = self._scout.ask(
                lambda store: store.run(lambda: self._dialect.first_due(lane, tasks=tasks), persistent=False),
                lambda first, took: lanes.scouted(lane, first, took=took, now=time.monotonic()),
                wakes=lambda first: first is not None,
            )
            since = lanes.put_off(lane, now=now, scouted=scouted)
        return since

    def claimed(
        self, slots: Slots, lane: Lane, first: Position | None, *, full: bool, sent: float, received: float
    ) -> None:
        """Take note of a claim's answer; `first` is the earliest position it got."""
        behind = self._horizon.behind(sent) if first is None else None
        self._lanes[slots].claimed(lane, first, full=full, took=received - sent, now=received, behind=behind)
