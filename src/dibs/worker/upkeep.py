"""Upkeep: chores that one worker does for all, without a leader. Each is a row in `dibs_chores`; whoever moves its
next time forward, in a commit of its own, does it. And what each looks after for itself: whether it still knows the
tables.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from dibs import migrations
from dibs.errors import CodeTooOld, DatabaseError, DatabaseUnavailable, MissingPrivilege
from dibs.jobs import Expired, Past
from dibs.store import Store
from dibs.worker.health import Beat
from dibs.worker.lanes import rest_after
from dibs.worker.outage import Outage
from dibs.worker.register import LOOK_EVERY, Registration

logger = logging.getLogger("dibs")

LOOK_BATCH = 10_000
#: So many past leases are seen to at a time; more than a fleet holds.
MOST_FREE = 50_000
EXPIRE_BATCH = 500
PRUNE_BATCH = 500
#: A batch that took longer than this (seconds), of large rows or on a slow disk, is followed by one half as large, down to so
#: many rows: what a long transaction has locked or keeps from being cleaned away is in the way of others.
PRUNE_WITHIN = 0.5
LEAST_BATCH = 50
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

#: How long (seconds) after an outage another worker may need until it is connected, too: two pauses between its tries.
RECONNECTS = 2.0

#: One chore goes on for this long (seconds) at most, then the others have their turn.
LONGEST_TURN = 10.0


@dataclass(eq=False, slots=True)
class Chore:
    """Something that one worker does for all, every so many seconds; others look half as often whether it is done."""

    name: str
    every: float
    work: Callable[[], None]
    next_look: float = 0.0  # monotonic


class Upkeep:
    """Takes back claims whose lease ran out, prunes finished rows, folds duplicates, keeps the worker's row."""

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
        registration: Registration | None = None,
    ) -> None:
        self._store = store
        self._dialect = store.dialect
        self._outage = outage
        self._woke = woke
        self._rest = 0.0  # for how long not to look for past leases, so that this keeps to its share
        self._past: dict[tuple[int, int], float] = {}  # claims whose lease ran out → since when their rows are free
        self.tick = tick if tick is not None else tick_for(lease)
        self._expiry = Chore("expire", self.tick, self._expire)
        self._chores = [self._expiry, Chore("prune", PRUNE_EVERY, self._prune), Chore("fold", FOLD_EVERY, self._fold)]
        self._tell = tell
        self._refused = refused
        self._registration = registration
        self.beat = Beat(store)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="dibs-upkeep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=5)

    def _loop(self) -> None:
        while self._waited():
            self._look_at_schema()
            try:
                for chore in self._chores:
                    self.beat()
                    self._do(chore)
            except DatabaseError as error:
                self._outage.failed(error)
        if self._registration is not None and self._outage.since is None:
            self._registration.leave()

    def _do(self, chore: Chore) -> None:
        """Do a chore, if it is time for it and no other worker does it."""
        if time.monotonic() < chore.next_look:
            return
        try:
            ours = self._store.run(partial(self._dialect.chore, chore.name, every=chore.every * 0.9))
            if ours or (chore is self._expiry and self._past):
                chore.work()
            self._outage.over(self._store.contact)
            chore.next_look = time.monotonic() + (self._rest if chore is self._expiry else chore.every / 2)
        except DatabaseError:
            raise
        except Exception:
            logger.exception("the chore %s met an error of its own; upkeep goes on", chore.name)

    def _in_turns(self, work: Callable[[float], bool]) -> None:
        """Go on with what may take long until it is over, or its turn is: `work` until a moment (monotonic), again and again
        as long as it returns that there is more. In between past leases are looked after, which can't wait so long."""
        end = time.monotonic() + LONGEST_TURN
        while time.monotonic() < end and not self._closing.is_set():
            if not work(min(time.monotonic() + self.tick, end)):
                return
            self.beat()
            self._do(self._expiry)

    def _prune(self) -> None:
        def prune_until(moment: float) -> bool:
            prune(self._store, until=moment)
            return time.monotonic() >= moment

        self._in_turns(prune_until)
        if self._registration is not None:
            self._registration.tidy()

    def _waited(self) -> bool:
        """Wait until the chores are to be looked at again; return False when closed meanwhile. By the way the worker's
        row is written."""
        turn = time.monotonic() + (min(self.tick, SOON) if self._past else self.tick)
        while True:
            if self._registration is not None and self._outage.since is None:
                self._register(self._registration)
            if (left := turn - time.monotonic()) <= 0:
                return not self._closing.is_set()
            self.beat()
            if self._closing.wait(min(left, LOOK_EVERY)):
                return False

    def _register(self, registration: Registration) -> None:
        try:
            registration.beat()
        except Exception:
            logger.exception("writing the worker's row met an error of its own; upkeep goes on")

    def _look_at_schema(self) -> None:
        """Say so if the tables have been migrated meanwhile to what this code can't work on.

        At each turn, also for the sake of asking: what the store knows of the database's being reachable comes from that.
        """
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
        to renew it, and after an outage some seconds more, in which to connect again; and only once its row has been seen free for a while: a user's transaction may have held it
        until this moment, so that its owner could neither renew nor settle it.
        """
        end = time.monotonic() + LONGEST_TURN
        while self._expire_some() and time.monotonic() < end and not self._closing.is_set():
            self.beat()

    def _expire_some(self) -> bool:
        """Look for past leases and take back what may be taken back, for about a tick, so that what ran out meanwhile is
        seen soon. Return whether some are left."""
        start = time.monotonic()
        found = {(past.id, past.claims): past for past in self._look_for_past()}
        now = time.monotonic()
        end = now + max(self.tick, 2 * (now - start))
        self._past = {claim: self._past.get(claim, now) for claim in found}
        ripe = _in_turns_of_queues(
            past for claim, past in found.items() if now - self._past[claim] >= patience(past.lease)
        )
        for first in range(0, len(ripe), EXPIRE_BATCH):
            if time.monotonic() > end:
                return True
            only = {(past.id, past.claims) for past in ripe[first : first + EXPIRE_BATCH]}
            expired = self._store.run(partial(self._dialect.expire, reachable=0.0, limit=EXPIRE_BATCH, only=only))
            for job in expired:
                logger.warning(
                    "job %d: the lease of %s ran out in %s; it is %s now", job.id, job.task, job.owner, job.status
                )
                self._tell(job)
            if expired:
                self._woke()
        return False

    def _look_for_past(self) -> list[Past]:
        """Return the claims whose leases are past and whose rows are free.

        Page by page: a first one full of rows that somebody's transaction holds must not hide what comes after it.
        """
        free: list[Past] = []
        last, took, end = 0, 0.0, time.monotonic() + LONGEST_TURN
        while len(free) < MOST_FREE and time.monotonic() < end:
            find = partial(self._dialect.find_past, reachable=self._store.reachable(), limit=LOOK_BATCH, after=last)
            start = time.monotonic()
            past = self._store.run(find)
            took = max(took, time.monotonic() - start)
            if past:
                free += self._store.run(partial(self._dialect.past_leases, past))
            if len(past) < LOOK_BATCH:
                break
            last = past[-1]
        # It took long for what it found, or for what is dead; the one is to be taken back soon.
        self._rest = 0.0 if free else rest_after(took, longest=LONGEST_REST)
        return free

    def _fold(self) -> None:
        self._in_turns(lambda _: self._store.run(lambda: self._dialect.fold(limit=FOLD_BATCH)) >= FOLD_BATCH)


def _in_turns_of_queues(found: Iterable[Past]) -> list[Past]:
    """Return these with the first of each queue before the second of any: thousands in one queue, which may be paused, hold
    up no other."""
    by_queue: dict[str, list[Past]] = {}
    for past in found:
        by_queue.setdefault(past.queue, []).append(past)
    rounds = itertools.zip_longest(*by_queue.values())
    return [past for each in rounds for past in each if past is not None]


def patience(lease: float) -> float:
    """Return for how many seconds a row must be seen free: in that time its owner looks at it again, see `Leases`."""
    return min(max(lease / 2, 0.5), 2.5)


def tick_for(lease: float) -> float:
    """Return how often (seconds) a worker with this lease looks after expired ones: well within a lease."""
    return min(max(lease / 4, 0.2), 10.0)


def gap_for(lease: float) -> float:
    """Return after how many seconds without an answer upkeep takes the database for having been away, although nothing
    failed (a network that swallowed all for a while). Less than what an owner needs to notice the same."""
    return 1.5 * tick_for(lease) + 1.0


def prune(store: Store, *, until: float | None = None) -> int:
    """Delete the finished rows whose retention is over, batch by batch, each in a transaction of its own.

    A row to which something of the user's refers (a foreign key) stays and is tried again later; one that somebody's
    transaction holds, such as another worker's that prunes, is passed over. Return how many were deleted.
    """
    deleted = 0
    passed: set[int] = set()
    batch = PRUNE_BATCH
    while (until is None or time.monotonic() < until) and len(passed) < MOST_PASSED:
        limit = batch + len(passed)
        found = store.run(partial(store.dialect.prunable, limit=limit))
        fresh = [job_id for job_id in found if job_id not in passed]
        # Those that were passed over may be gone by now, and all that was found be new: no reason for a long transaction.
        ids = fresh[:batch]
        if not ids:
            break
        began = time.monotonic()
        try:
            number = store.run(partial(store.dialect.prune, ids))
        except (DatabaseUnavailable, MissingPrivilege):
            raise
        except DatabaseError:
            number = sum(_prune_one(store, job_id) for job_id in ids)
        deleted += number
        took = time.monotonic() - began
        if took > PRUNE_WITHIN:
            batch = max(batch // 2, min(LEAST_BATCH, batch))
        elif took < PRUNE_WITHIN / 4:
            batch = min(batch * 2, PRUNE_BATCH)
        if len(found) < limit and len(fresh) == len(ids):
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
