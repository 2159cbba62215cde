"""Upkeep: chores that one worker does for all, without a leader. Each is a row in `dibs_chores`; whoever moves its
next time forward, in a commit of its own, does it. And what each looks after for itself: whether it still knows the
tables.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from dibs import migrations
from dibs.errors import CodeTooOld, DatabaseError, DatabaseUnavailable, MissingPrivilege
from dibs.jobs import Expired
from dibs.store import Store
from dibs.worker.health import Beat
from dibs.worker.lanes import rest_after
from dibs.worker.outage import Outage

logger = logging.getLogger("dibs")

LOOK_BATCH = 10_000
EXPIRE_BATCH = 500
PRUNE_BATCH = 500
FOLD_BATCH = 1_000

PRUNE_EVERY = 60.0
FOLD_EVERY = 30.0

#: So many expired rows that others hold are passed over; more mean that it is better to come back later.
MOST_PASSED = 10_000

#: A row that can't be deleted because something of the user's refers to it is tried again after this (seconds).
POSTPONE = 3_600.0

#: How soon (seconds) past leases are looked at again, to see whether their rows stay free.
SOON = 1.0

#: Looking for past leases keeps to its share as full scans do, resting so long (seconds) at most: under a held snapshot a look
#: walks over the dead entries of all that ever ran.
LONGEST_REST = 30.0

#: One chore goes on for this long (seconds) at most, then the others have their turn.
LONGEST_TURN = 10.0


class Upkeep:
    """Takes back claims whose lease ran out, prunes finished rows, folds duplicates."""

    def __init__(
        self,
        store: Store,
        outage: Outage,
        *,
        lease: float,
        woke: Callable[[], None],
        tick: float | None = None,
        tell: Callable[[Expired], None] = lambda _: None,
        refused: Callable[[CodeTooOld], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._dialect = store.dialect
        self._outage = outage
        self._woke = woke
        self._rest = 0.0  # for how long not to look for past leases, so that this keeps to its share
        self._past: dict[tuple[int, int], float] = {}  # claims whose lease ran out → since when their rows are free
        self._tell = tell
        self._refused = refused
        self.tick = tick if tick is not None else tick_for(lease)
        self.beat = Beat(store)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="dibs-upkeep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=5)

    def _loop(self) -> None:
        chores = [
            ("expire", self.tick, self._expire),
            ("prune", PRUNE_EVERY, lambda: prune(self._store, until=time.monotonic() + LONGEST_TURN)),
            ("fold", FOLD_EVERY, self._fold),
        ]
        next_look = {name: 0.0 for name, _, _ in chores}
        look_at_schema = 0.0
        while not self._closing.wait(min(self.tick, SOON) if self._past else self.tick):
            if time.monotonic() >= look_at_schema:
                self._look_at_schema()
                look_at_schema = time.monotonic() + 2 * self.tick
            for name, every, work in chores:
                self.beat()
                if time.monotonic() < next_look[name]:
                    continue
                try:
                    ours = self._store.run(partial(self._dialect.chore, name, every=every * 0.9))
                    if ours or (name == "expire" and self._past):
                        work()
                    self._outage.over(self._store.contact)
                    next_look[name] = time.monotonic() + (self._rest if name == "expire" else every / 2)
                except DatabaseError as error:
                    self._outage.failed(error)
                    break
                except Exception:
                    logger.exception("the chore %s met an error of its own; upkeep goes on", name)

    def _look_at_schema(self) -> None:
        """Say so if the tables have been migrated meanwhile to what this code can't work on."""
        try:
            schema, oldest_code = self._store.run(partial(migrations.recorded, self._dialect))
            migrations.refuse(self._dialect, schema, oldest_code)
        except CodeTooOld as error:
            self._refused(error)
        except DatabaseError:
            pass  # the chores find the same, and say it

    def _expire(self) -> None:
        """Take back claims whose lease ran out.

        Nothing that is alive may be run again: after an outage every lease is past while the work goes on. So a
        lease is only taken back when its owner had all of its length, of a database that we could reach, in which
        to renew it; and only once its row has been seen free for a while: a user's transaction may have held it
        until this moment, so that its owner could neither renew nor settle it.
        """
        find = partial(self._dialect.find_past, reachable=self._store.reachable(), limit=LOOK_BATCH)
        start = time.monotonic()
        past = self._store.run(find)
        self._rest = rest_after(time.monotonic() - start, longest=LONGEST_REST)
        found = self._store.run(partial(self._dialect.past_leases, past)) if past else {}
        now = time.monotonic()
        self._past = {claim: self._past.get(claim, now) for claim in found}
        ripe = [claim for claim, since in self._past.items() if now - since >= patience(found[claim])]
        for start in range(0, len(ripe), EXPIRE_BATCH):
            only = ripe[start : start + EXPIRE_BATCH]
            expired = self._store.run(partial(self._dialect.expire, reachable=0.0, limit=EXPIRE_BATCH, only=only))
            for job in expired:
                logger.warning(
                    "job %d: the lease of %s ran out in %s; it is %s now", job.id, job.task, job.owner, job.status
                )
                self._tell(job)
            if expired:
                self._woke()

    def _fold(self) -> None:
        end = time.monotonic() + LONGEST_TURN
        while time.monotonic() < end:
            if self._store.run(lambda: self._dialect.fold(limit=FOLD_BATCH)) < FOLD_BATCH:
                return


def patience(lease: float) -> float:
    """Return for how many seconds a row must be seen free: in that time its owner looks at it again, see `Leases`."""
    return min(max(lease / 2, 0.5), 2.5)


def tick_for(lease: float) -> float:
    """Return how often (seconds) a worker with this lease looks after expired ones: well within a lease."""
    return min(max(lease / 4, 0.2), 10.0)


def prune(store: Store, *, until: float | None = None) -> int:
    """Delete the finished rows whose retention is over, batch by batch, each in a transaction of its own.

    A row to which something of the user's refers (a foreign key) stays and is tried again later; one that somebody's
    transaction holds, such as another worker's that prunes, is passed over. Return how many were deleted.
    """
    deleted = 0
    passed: set[int] = set()
    while (until is None or time.monotonic() < until) and len(passed) < MOST_PASSED:
        limit = PRUNE_BATCH + len(passed)
        found = store.run(partial(store.dialect.prunable, limit=limit))
        ids = [job_id for job_id in found if job_id not in passed]
        if not ids:
            break
        try:
            number = store.run(partial(store.dialect.prune, ids))
        except (DatabaseUnavailable, MissingPrivilege):
            raise
        except DatabaseError:
            number = sum(_prune_one(store, job_id) for job_id in ids)
        deleted += number
        if len(found) < limit:
            break
        passed.intersection_update(found)
        if number < len(ids):
            passed.update(ids)
    return deleted


def _prune_one(store: Store, job_id: int) -> int:
    try:
        return store.run(lambda: store.dialect.prune([job_id]))
    except (DatabaseUnavailable, MissingPrivilege):
        raise
    except DatabaseError as error:
        logger.info("job %d can't be pruned yet: %s", job_id, error)
        store.run(lambda: store.dialect.postpone([job_id], delay=POSTPONE))
        return 0
