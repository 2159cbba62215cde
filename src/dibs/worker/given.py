"""A worker for one given job: `dibs run`. It is a worker in all but what it claims, and that it does not register.

Its own connections, the lease renewed, the time limit, the fence, the verdict, retries and events: as in any other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from dibs.app import Dibs
from dibs.errors import DatabaseError, OutcomeUnknown
from dibs.jobs import JobRecord
from dibs.store import RowLocked, Store
from dibs.worker.fetcher import Fetcher
from dibs.worker.register import Registration
from dibs.worker.runs import Holdings
from dibs.worker.slots import Slots
from dibs.worker.worker import Worker


class GivenFetcher(Fetcher):
    """Claims one job, by its id, once."""

    def __init__(self, app: Dibs, store: Store, *, job_id: int, **settings: Any) -> None:
        super().__init__(app, store, **settings)
        self._job_id = job_id
        self._asked = False
        self.taken = False
        self.locked = False  # did somebody's transaction hold the row?
        self.error: DatabaseError | None = None

    def _left(self) -> int:
        return 0 if self._asked else 1

    def _give_back_held(self) -> None:
        """Give nothing back: the job has its slot, and whoever asked for it was told if its queue is paused."""

    def _claim(self) -> bool:
        if self._asked:
            return False
        self._asked = True
        sent = time.monotonic()
        take = partial(self._dialect.take_one, self._job_id, worker=self._worker, lease=self._lease)
        try:
            claim = self._store.run(take, once=True, haste=True)
        except RowLocked:
            self.locked = True
            return False
        except OutcomeUnknown:
            self._unclear = sent
            self.taken = bool(self._adopt(sent))
            return self.taken
        except DatabaseError as error:  # nothing is held: whoever asked for it may try again
            self.error = error
            return False
        if claim is not None:
            self.taken = True
            self._start([claim], received=time.monotonic(), good_until=sent + self._lease)
        return self.taken


class GivenWorker(Worker):
    """Runs one job. After `run`: was it `taken`, or was its row `locked`? `ended` says how its run ended, if it began."""

    def __init__(self, app: Dibs, job: JobRecord, **settings: Any) -> None:
        super().__init__(app, queues=[job.queue], concurrency=1, ahead=0, max_jobs=1, **settings)
        self._job = job
        self._make_fetcher = self._make
        self._given: GivenFetcher | None = None

    @property
    def taken(self) -> bool:
        return self._given is not None and self._given.taken

    @property
    def locked(self) -> bool:
        return self._given is not None and self._given.locked

    @property
    def stopped(self) -> bool:
        """Was it told to stop before its job had ended?"""
        return self._stopping.is_set()

    @property
    def ended(self) -> str | None:
        ends = {} if self._given is None else self._given.tally.by_end()
        return next((end for end, number in ends.items() if number), None)

    def run(self, *, signals: bool = False) -> None:
        """Run the job, if it is to be had. Raises DatabaseError where the database refused it to be taken."""
        super().run(signals=signals)
        if self._given is not None and self._given.error is not None:
            raise self._given.error

    def _make(self, app: Dibs, store: Store, **settings: Any) -> Fetcher:
        self._given = GivenFetcher(app, store, job_id=self._job.id, **settings)
        return self._given

    def _slots(self, fetcher: Fetcher) -> list[Slots]:
        return [slots for slots in super()._slots(fetcher) if self._job.task in slots.tasks]

    def _registration(
        self, store: Store, fetcher: Fetcher, holdings: Holdings, stores: Sequence[Store]
    ) -> Registration | None:
        """It serves no queue, so it is not among those who do."""
        return None
