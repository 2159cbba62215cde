"""Why a worker's polls come back empty: counted for each, looked up now and then, said once per change.

An idle worker asks its database next to nothing, so the reason is not looked up with each poll: once they have stayed
empty for a second, then ever more seldom while nothing changes, and never while there is work.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial

from dibs.errors import DatabaseError, DatabaseUnavailable
from dibs.jobs import Claim, Lane
from dibs.store import Store
from dibs.why import Figures, Reason, holding
from dibs.worker.scout import Looks
from dibs.worker.tally import Tally

logger = logging.getLogger("dibs")

#: So long (seconds) polls have been empty when the reason is looked up, and so long it is good at least. While it stays
#: the same it is good for twice as long each time.
FIRST_LOOK = 1.0
LOOK_EVERY = 5.0
LONGEST_UNLOOKED = 60.0

#: Lanes that are looked at in one look, the others in the next; and jobs of each.
MOST_LANES = 20
MOST_JOBS = 100

#: What stands for the queue where a worker of all queues has never seen one.
ALL = "(all)"

#: The figures that the log has.
_SHOWN = ("due", "locked", "running", "expired", "scheduled", "retrying")


class EmptyPolls:
    """Used by the fetcher's thread alone, but for what a scout looks up."""

    def __init__(
        self, store: Store, tally: Tally, worker: str, queues: Sequence[str] | None, scouts: Store | None = None
    ) -> None:
        self._dialect = store.dialect
        self.looks = Looks(store, scouts)
        self._tally = tally
        self._worker = worker
        self._queues = queues
        self._reasons: dict[str, Reason] = {}  # by queue, since the last look of this spell
        self._said: dict[str, Reason] = {}
        self._pending = 0  # polls whose reason is not known yet
        self._since: float | None = None  # since when (monotonic) polls are empty
        self._look_at = 0.0
        self._soonest = 0.0
        self._pause = LOOK_EVERY
        self._lanes: frozenset[Lane] = frozenset()
        self._turn = 0

    def found(self, claims: Sequence[Claim]) -> None:
        """These were claimed. Polls that came back empty a moment before it were those of a worker at work."""
        if self._since is None or not claims:
            return
        for queue in {claim.queue for claim in claims}:
            self._count(queue, Reason.WORKING, self._pending)
            self._tally.reasons.pop(queue, None)
        self._pending, self._since = 0, None
        self._reasons = {}

    def found_nothing(self, lanes: Collection[Lane], tasks: Collection[str], now: float) -> None:
        """A poll came back empty, of these lanes, which have ready jobs, and for these tasks."""
        if self._since is None:
            self._since, self._pause = now, LOOK_EVERY
            self._look_at = self._soonest = now + FIRST_LOOK
        self.looks.hear()
        known = frozenset(lanes)
        if known != self._lanes:  # something has come, or gone: the reason may be another one
            self._lanes = known
            self._look_at, self._pause = self._soonest, LOOK_EVERY
        if now < self._look_at:
            if self._reasons:
                self._count_all(1)
            else:
                self._pending += 1
            return
        self._pending += 1
        self._look_at = self._soonest = now + LOOK_EVERY
        try:
            self.looks.take(partial(self._figures, sorted(known), tasks), partial(self._seen, now, self._since))
        except DatabaseUnavailable:
            raise
        except DatabaseError as error:
            logger.debug("why polls come back empty can't be looked up: %s", error)

    def _seen(self, asked: float, spell: float, figures: dict[str, Figures]) -> None:
        if self._since != spell:
            return  # there was work again meanwhile
        before = self._reasons
        self._report(figures)
        self._count_all(self._pending)
        self._pending = 0
        self._pause = min(self._pause * 2, LONGEST_UNLOOKED) if self._reasons == before else LOOK_EVERY
        self._look_at = asked + self._pause

    def _count(self, queue: str, reason: Reason, times: int) -> None:
        if times:
            self._tally.polled_empty(queue, str(reason), times)

    def _count_all(self, times: int) -> None:
        for queue, reason in self._reasons.items():
            self._count(queue, reason, times)

    # -- the look ----------------------------------------------------------------------------------

    def _report(self, figures: dict[str, Figures]) -> None:
        reasons = {queue: holding(each)[0] for queue, each in figures.items()}
        self._reasons = {**self._reasons, **reasons}  # another dict: what it was before is compared with it
        for queue, reason in reasons.items():
            each = figures[queue]
            if each.locked:
                self._tally.skipped_rows(queue, each.locked)
            self._tally.reasons[queue] = str(reason)
            if self._said.get(queue) is not reason:
                self._said[queue] = reason
                numbers = ", ".join(f"{getattr(each, name)} {name}" for name in _SHOWN if getattr(each, name))
                logger.info(
                    "worker %s: polls of %s come back empty: %s%s",
                    self._worker,
                    "all queues" if queue == ALL else f"queue {queue!r}",
                    reason,
                    f" ({numbers})" if numbers else "",
                )

    def _figures(self, lanes: Sequence[Lane], tasks: Collection[str], store: Store) -> dict[str, Figures]:
        dialect = self._dialect
        paused: dict[str, datetime] = {queue: at for queue, at, _ in store.run(dialect.paused)}
        running = {each.queue: each for each in store.run(dialect.running)}
        if self._queues is not None:
            queues: set[str] = {*self._queues}
        else:
            queues = {lane.queue for lane in lanes} | running.keys() | self._said.keys() - {ALL}
        figures = {queue: Figures(serving=[self._worker]) for queue in sorted(queues) or [ALL]}
        for queue, each in figures.items():
            each.paused_at = paused.get(queue)
            if queue in running:
                each.expired = running[queue].past
                each.running = running[queue].running - each.expired
        some = self._some(lanes)
        for lane in some:
            if lane.queue in figures:
                self._read_lane(store, figures[lane.queue], lane, tasks)
        unread = {lane.queue for lane in lanes} - {lane.queue for lane in some}
        return {queue: each for queue, each in figures.items() if queue not in unread}

    def _some(self, lanes: Sequence[Lane]) -> Sequence[Lane]:
        if len(lanes) <= MOST_LANES:
            return lanes
        self._turn = (self._turn + MOST_LANES) % len(lanes)
        return [*lanes, *lanes][self._turn : self._turn + MOST_LANES]

    def _read_lane(self, store: Store, figures: Figures, lane: Lane, tasks: Collection[str]) -> None:
        dialect = self._dialect
        due = store.run(partial(dialect.due_now, lane, limit=MOST_JOBS))
        later = store.run(partial(dialect.later, lane, limit=MOST_JOBS))
        figures.due += len(due)
        figures.scheduled += later.scheduled
        figures.retrying += later.retrying
        figures.unknown_tasks += sorted({job.task for job in due if job.task not in tasks})
        if due and not dialect.one_writer:
            figures.locked += len(store.run(lambda: dialect.held([job.id for job in due])))
