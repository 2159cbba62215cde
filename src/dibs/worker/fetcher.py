"""The fetcher: one thread that claims what the slots will start next, and gives back what they can't.

It alone claims. Where the database takes one writer at a time it settles too: first what is done is written down
(`settling`), then more is taken. Elsewhere that goes on beside it: claiming and settling one after the other left the
database waiting for Python and Python for the database (24,000 no-op jobs/s on PostgreSQL; side by side 36,000).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dibs.app import Dibs
from dibs.errors import DatabaseError, LostClaim, OutcomeUnknown
from dibs.jobs import Claim, Lane, Wanted
from dibs.ops import Value
from dibs.store import Store
from dibs.tasks import Task
from dibs.worker.claimer import Claimer
from dibs.worker.health import Beat
from dibs.worker.leases import renew_late
from dibs.worker.lookout import Lookout
from dibs.worker.losing import lose
from dibs.worker.outage import Outage
from dibs.worker.pauses import Pause
from dibs.worker.polls import EmptyPolls
from dibs.worker.progress import EVERY, write_progress
from dibs.worker.runs import Holdings, Run
from dibs.worker.settling import Settler, Settling
from dibs.worker.slots import Report, Slots, stuck_slots
from dibs.worker.summary import Summary
from dibs.worker.tally import Tally
from dibs.worker.unclaimed import Unclaimed
from dibs.worker.verdicts import Stopped, TimedOut

logger = logging.getLogger("dibs")

#: Rows in one claim, at most.
BATCH = 500

#: Where a claim brings so few and none waits, commits are what a job costs: what has ended is settled with the next
#: claim, in one transaction. Where it brings more, claims and settling go on side by side.
FEW = 16

#: A held job that has waited this long (seconds) for a slot is given back: another worker may have one free.
LONGEST_HELD = 1.0

#: A held job that began this long (seconds) ago is reported as started, unless it has ended by then.
MARK_AFTER = 0.05

#: Nothing more is claimed while so many outcomes wait to be written down.
MOST_UNSETTLED = 1_000

#: How often (seconds) the pauses are read while jobs are held.
PAUSES_EVERY = 0.2

#: How often (seconds) claiming ahead stops until a slot is free. What once crashed is claimed into a free slot only, and
#: would wait until the last of a backlog is done where there is never one free.
FREE_EVERY = 1.0


class Fetcher:
    """Claims and settles for all slots of one worker process."""

    def __init__(
        self,
        app: Dibs,
        store: Store,
        *,
        worker: str,
        lease: float,
        queues: Sequence[str] | None,
        weights: Mapping[str, int] | None = None,
        holdings: Holdings,
        outage: Outage,
        burst: bool,
        idle_poll: float,
        settles: Store | None = None,
        scouts: Store | None = None,
        most_jobs: int | None = None,
    ) -> None:
        """`settles` is for settling in a thread of its own; without it the fetcher settles between two claims. `scouts` is
        for looking at lanes beside it. `most_jobs` is how many runs it may begin; then it ends by itself, when they have.
        """
        self._app = app
        self._store, self._dialect = store, app.dialect
        self._worker = worker
        self._lease = lease
        self._holdings = holdings
        self._outage = outage
        self._burst, self._idle_poll = burst, idle_poll
        self._pauses: dict[Slots, Pause] = {}
        self._queues, self._weights, self._scouts = queues, weights, scouts
        self.slots: list[Slots] = []
        self._by_task: dict[str, Slots] = {}
        self._lookout = Lookout(store, [], queues)
        self._bell = threading.Event()
        self._most_jobs = most_jobs
        self._last_claim = 0  # how many the last claim that brought any did
        self._taken = 0  # jobs that were claimed, of which some were given back without having begun
        self.tally = Tally(app.dialect.moment)
        self.summary = Summary(worker, self._under_way, self.tally.by_end)
        self._settling = Settling(
            app, settles or store, worker=worker, holdings=holdings, ring=self.ring, tally=self.tally
        )
        self._settler: Settler | None = None
        if settles is not None:
            self._settler = Settler(self._settling, settles, outage, gather=self._gathers, settled=self._settled)
        self.beat, self.claiming = Beat(store), Beat(store)
        self._stop_at: float | None = None
        self._next_pauses = self._next_progress = 0.0  # monotonic
        self._next_free: dict[Slots, float] = {}
        self._unclaimed = Unclaimed(app.dialect, store, scouts)
        self._claimer = Claimer(store, self._settling, holdings)
        self._polls = EmptyPolls(store, self.tally, worker, queues, scouts)

    @property
    def beats(self) -> dict[str, Beat]:
        """What tells that its threads come round."""
        return {"fetcher": self.beat} | ({"settler": self._settler.beat} if self._settler is not None else {})

    def serve(self, slots: Sequence[Slots]) -> None:
        """Say, before the loop begins, for which slots to claim."""
        self.slots = list(slots)
        self._pauses = {each: Pause(self._idle_poll) for each in slots}
        for each in slots:
            each.ring = self.ring
        self._by_task = {task: each for each in slots for task in each.tasks}
        self._lookout = Lookout(self._store, slots, self._queues, self._weights, scouts=self._scouts, wake=self.wake)

    # -- called from other threads -----------------------------------------------------------------

    @property
    def report(self) -> Report:
        """What takes the outcome of a run."""
        return self._settling.report

    def ring(self) -> None:
        """Let the fetcher look now at what there is to do."""
        if not self._bell.is_set():
            self._bell.set()

    def wake(self, queue: str | None = None, moment: Any | None = None) -> None:
        """Claim now: somebody said that there is something due (in this queue, since this moment of the database's)."""
        if queue is not None:
            if self._queues is not None and queue not in self._queues:
                return  # somebody else's: to look for its lanes anew would be a statement for each job of theirs
            self._lookout.told(queue, moment)
        for pause in self._pauses.values():
            pause.end()
        self.ring()

    def poll_at_least_every(self, longest: float) -> None:
        """Poll more often than usual: nothing else wakes this worker."""
        for pause in self._pauses.values():
            pause.longest = min(pause.longest, longest)
        self.ring()

    def stop(self, *, grace: float) -> None:
        """Claim no more; give back what has not begun, let run what runs for `grace` seconds, settle and end."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + grace
        self.ring()

    # -- the loop ----------------------------------------------------------------------------------

    def loop(self) -> None:
        """Work until stopped (or, in a burst, until there is nothing left to do)."""
        if self._settler is not None:
            self._settler.start()
        try:
            self._loop()
        finally:
            for each in (self._lookout, self._unclaimed.looks, self._polls.looks):
                each.close()
            if self._settler is not None:
                self._settler.close()

    def _loop(self) -> None:
        while True:
            self._bell.clear()
            self.beat()
            try:
                if self._step():
                    return
                wait = self._wait()
            except (DatabaseError, LostClaim) as error:
                self._carry(False)
                if self._gave_up():
                    return
                wait = self._outage.failed(error)
                self._lookout.look_now()
            except Exception:
                logger.exception("the fetcher met an error of its own; it goes on")
                wait = 1.0
            if wait > 0:
                self._bell.wait(wait)

    def _step(self) -> bool:
        """Settle, then claim; return whether this was the last step."""
        self._check_timeouts()
        if not self._carry(self._last_claim <= FEW and not self._waiting() and not self._claimer.settles_apart):
            self._settle()
        self._mark()
        if (sent := self._claimer.unclear) is not None:
            self._adopt(sent)
        self._write_progress()
        if self._stop_at is not None:
            self._hand_back()
            return not self._holdings or self._gave_up()
        self._give_back_held()
        found = self._claim()
        if self._claimer.carries and not found:
            self._settle()
        self._outage.over(self._store.contact)
        self.claiming()
        if self._left() <= 0 and not self._holdings:
            logger.info("worker %s has run as many jobs as it may, %d, and ends", self._worker, self._most_jobs)
            return True
        return self._burst and found is False and not self._holdings and self._nothing_left()

    def _wait(self) -> float:
        """Return for how many seconds to sleep unless something happens."""
        if self._stop_at is not None:
            return 0.05
        # Where nothing is wanted, the end of a job rings.
        for slots in self.slots:
            free, ahead = slots.room()
            slots.ring_at = slots.size + slots.most_ahead if free else (slots.waiting + ahead) // 2
        now = time.monotonic()
        moments = [self._pauses[slots].until for slots in self.slots if self._wants(slots, now)] or [now + 1.0]
        if self._settler is None:
            moments += self._settling.next_looks()
        if any(not run.claim.started for slots in self.slots for run in slots.busy):
            moments.append(now + MARK_AFTER)
        if self._waiting():
            moments.append(now + PAUSES_EVERY)
        if any(run.task.options.timeout for slots in self.slots for run in slots.busy):
            moments.append(now + 0.25)
        if any(slots.busy for slots in self.slots):
            moments.append(self._next_progress)
        return min(moments) - now

    def _settle(self) -> None:
        """Have written down what is done."""
        if self._settler is None:
            self._settling.settle(gather=self._gathers())
        elif self._claimer.carries and self._settling:  # each look of its own rings back
            self._settler.ring()

    def _carry(self, carry: bool) -> bool:
        """Settle what is simply done together with the next claim, or not; return which."""
        most = (FEW if self._settler is not None else BATCH) if carry else 0
        if self._settler is not None and most != self._claimer.carries:
            self._settling.ring = self.ring if carry else self._settler.ring
            self._settler.ring()
        self._claimer.carries = most
        return carry

    def _gathers(self) -> bool:
        """Are more outcomes to come soon, so that a few need not be written down at once?"""
        return self._stop_at is None and self._waiting()

    def _settled(self) -> None:
        """Look at once where something had to wait until that was written down."""
        if not self._holdings or len(self._settling) > MOST_UNSETTLED // 2:
            self.ring()

    def _left(self) -> int:
        """Return how many more jobs may be claimed."""
        return BATCH if self._most_jobs is None else self._most_jobs - self._taken + self._settling.given_back

    def _under_way(self) -> tuple[int, int, int]:
        """Return how many jobs run, how many are held, and how many slots are stuck."""
        stuck = stuck_slots(self.slots)
        return sum(len(slots.busy) for slots in self.slots) - stuck, sum(slots.waiting for slots in self.slots), stuck

    def _waiting(self) -> bool:
        """Do held jobs wait for a slot?"""
        return any(slots.waiting for slots in self.slots)

    def _gave_up(self) -> bool:
        """Is the time of grace over by so much that what is left must be left to the leases?"""
        return self._stop_at is not None and time.monotonic() > self._stop_at + 2.0

    # -- what runs and what is held --------------------------------------------------------------------

    def _check_timeouts(self) -> None:
        for slots in self.slots:
            for run in slots.overdue():
                logger.warning(
                    "job %d: %s ran out of time; its code can't be stopped and keeps its slot",
                    run.claim.id,
                    run.task.name,
                )
                self._settling.report(run, TimedOut(run.task.options.timeout or 0.0))

    def _mark(self) -> None:
        """Report held jobs that have begun a while ago as started, so that a crash charges them."""
        begun = [
            run
            for slots in self.slots
            for run in slots.busy
            if not run.claim.started and run.ended is None and (run.ran() or 0.0) > MARK_AFTER
        ]
        if begun:
            claims = {run.claim.id: run.claim.claims for run in begun}
            self._store.run(lambda: self._dialect.mark_started(claims, worker=self._worker))
            for run in begun:
                run.claim.started = True

    def _write_progress(self) -> None:
        """Write how far the running jobs are, about once a second."""
        now = time.monotonic()
        if now >= self._next_progress:
            self._next_progress = now + EVERY
            runs = [run for slots in self.slots for run in slots.busy if run.ended is None]
            write_progress(self._store, runs, worker=self._worker)

    def _give_back_held(self) -> None:
        """Give back held jobs that wait too long or whose queue is paused."""
        now = time.monotonic()
        waiting = self._waiting()
        paused: set[str] = set()
        if waiting and now >= self._next_pauses:
            self._next_pauses = now + PAUSES_EVERY
            paused = {row[0] for row in self._store.run(self._dialect.paused)}
        for slots in self.slots:
            if slots.waiting:
                for run in slots.take_back(lambda run: now - run.received > LONGEST_HELD or run.claim.queue in paused):
                    self._settling.report(run, Stopped())
        if waiting:
            self._settle()

    def _hand_back(self) -> None:
        """While stopping: give back what has not begun, and when the time of grace is over, what runs."""
        for slots in self.slots:
            for run in slots.take_back(lambda _: True):
                self._settling.report(run, Stopped())
        for slots in self.slots:
            for run in slots.busy:
                run.stopping = True
        assert self._stop_at is not None
        if time.monotonic() >= self._stop_at:
            for slots in self.slots:
                for run in slots.busy:
                    if run.ended is None:
                        logger.warning(
                            "job %d: %s did not end within the time of grace; it is released",
                            run.claim.id,
                            run.task.name,
                        )
                        self._settling.report(run, Stopped())
                        slots.interrupt(run)
        self._settle()

    # -- claim -------------------------------------------------------------------------------------------

    def _claim(self) -> bool | None:
        """Claim what the slots have room for; return whether anything was found, None if it was not looked."""
        now = time.monotonic()
        wanting = [slots for slots in self.slots if self._wants(slots, now)]
        if not any(self._pauses[slots].is_over(now) for slots in wanting):
            return None
        wanting = [slots for slots in wanting if self._pauses[slots].nearly_over(now)]
        for slots in wanting:
            self._pauses[slots].claims()
        self._lookout.look(now)
        found = False
        for slots in wanting:
            before = self._taken
            free, ahead = slots.room()
            limit = min(free + ahead, BATCH, self._left())
            if free:
                self._next_free[slots] = now + FREE_EVERY
            for lane in self._lookout.in_order(slots, now=now):
                if limit <= 0:
                    break
                claims = self._claim_lane(lane, slots, start=free, limit=limit)
                limit -= len(claims)
                free = max(free - len(claims), 0)
            if self._taken > before:
                found = True
                self._pauses[slots].end()
            else:
                self._pauses[slots].found_nothing(time.monotonic())
        if not found:
            self._lookout.found_nothing(now)
            self._unclaimed.report_unknown(self._lookout.lanes(), self._known_tasks())
            self._polls.found_nothing(self._lookout.lanes(), self._by_task, now)
        return found

    def _wants(self, slots: Slots, now: float) -> bool:
        """Should we claim for these slots now? With work waiting, only when a good batch fits."""
        if len(self._settling) > MOST_UNSETTLED or self._left() <= 0:
            return False
        free, ahead = slots.room()
        return free > 0 or (ahead > slots.waiting and now < self._next_free.get(slots, 0.0))

    def _claim_lane(self, lane: Lane, slots: Slots, *, start: int, limit: int) -> list[Claim]:
        since = self._lookout.since(slots, lane)
        sent = time.monotonic()
        wanted = Wanted(lane, since, self._dialect.names(slots.tasks), self._worker, self._lease, start, limit)
        try:
            claims = self._claimer.claim(wanted)
        except OutcomeUnknown:
            return self._adopt(sent)
        received = time.monotonic()
        first = claims[0].position if claims else None
        self._lookout.claimed(slots, lane, first, full=since is None, sent=sent, received=received)
        self._start(claims, received=received, good_until=sent + self._lease)
        return claims

    def _adopt(self, sent: float) -> list[Claim]:
        claims = self._claimer.adopt(self._worker)
        self._start(claims, received=time.monotonic(), good_until=sent + self._lease)
        return claims

    def _start(self, claims: Sequence[Claim], *, received: float, good_until: float) -> None:
        by_task: dict[str, tuple[Task[Any, Any], list[Run]]] = {}
        self._taken += len(claims)
        self._last_claim = len(claims) or self._last_claim
        self.tally.claimed(claims)
        self._polls.found(claims)
        late = claims and time.monotonic() > good_until - self._lease / 2
        anew = renew_late(self._store, claims, worker=self._worker, lease=self._lease) if late else {}
        by_slots: dict[Slots, list[Run]] = {slots: [] for slots in self.slots}
        for claim in claims:
            if claim.task not in by_task:
                task = self._app.task_named(claim.task)
                assert task is not None, f"claimed {claim.task}, which none of the slots asked for"
                by_task[claim.task] = task, by_slots[self._by_task[claim.task]]
            task, runs = by_task[claim.task]
            runs.append(Run(claim, task, received=received, good_until=anew.get(claim.id, good_until)))
        for slots, runs in by_slots.items():
            if runs:
                # What has been taken back from a worker that stood still it may be the first to claim again.
                lose(self._store, self._holdings.add(runs), worker=self._worker)
                slots.start(runs)

    def _nothing_left(self) -> bool:
        """Is the burst over: nothing due, and no lease past?"""
        self._lookout.learn()
        return self._unclaimed.nothing_left(self._lookout.lanes(), self._known_tasks(), queues=self._queues)

    def _known_tasks(self) -> Value:
        return self._dialect.names(self._by_task)
