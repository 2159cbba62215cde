"""Looking at a lane from its beginning while claims go on from its cursor."""

from __future__ import annotations

import threading
import time

from conformance.hands import Queue
from conftest import wait_for
from dibs.jobs import Lane, Position
from dibs.worker.lookout import Lookout
from dibs.worker.slots import ThreadSlots

LANE = Lane("q", 0)


def test_a_late_row_is_found_beside_the_claims(queue: Queue) -> None:
    """Where a full scan took a second, the next claim is from the cursor all the same; the one after it is from the row
    that was committed late and stands before the cursor."""
    late, other = queue.add(), queue.add()
    first = queue.do(lambda: queue.dialect.first_due(LANE, tasks=queue.dialect.names(["t"])))
    assert first is not None
    assert first.id == late
    (claim,) = queue.claim(since=Position(first.run_at, other), limit=1)
    assert claim.id == other
    slots = ThreadSlots(queue.app, "w", 1, ["t"], lambda *_: None)
    woken = threading.Event()
    lookout = Lookout(queue.store, [slots], None, scouts=queue.store, wake=woken.set)
    lookout.look(time.monotonic())
    assert lookout.since(slots, LANE) is None, "the first claim is a full scan"
    now = time.monotonic()
    lookout.claimed(slots, LANE, claim.position, full=True, sent=now - 1.0, received=now)
    lookout.told("q")
    lookout.look(now)
    assert lookout.since(slots, LANE) == claim.position
    wait_for(woken.is_set, what="the scout to find it")
    lookout.look(time.monotonic())
    since = lookout.since(slots, LANE)
    assert since == first
    assert [each.id for each in queue.claim(since=since)] == [late]
