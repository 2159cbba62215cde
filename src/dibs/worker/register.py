"""A worker's row in the register: written soon after something has changed, and else every ten seconds, with the
upkeep's connection. No job depends on it, so nothing that goes wrong with it is tried hard, or said twice.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

import dibs
from dibs.errors import DatabaseError, DatabaseUnavailable
from dibs.ops import Op
from dibs.register import Entry, Seen, SlotsInUse
from dibs.store import Store
from dibs.worker.runs import Holdings
from dibs.worker.slots import Slots
from dibs.worker.tally import Tally

logger = logging.getLogger("dibs")

#: How often (seconds) it is looked at whether something has changed, and how often the row is written if nothing has.
LOOK_EVERY = 2.0
WRITE_EVERY = 10.0

#: Queues of which the row says why polls come back empty, at most.
MOST_SHOWN = 50

#: Over so many seconds the rates are.
RATES_OVER = 60.0

#: The first pause (seconds) after the row could not be written; it doubles. Meanwhile a privilege may be granted.
FIRST_REST = 5.0
LONGEST_REST = 60.0

#: The rows of workers that have not been seen for so long (seconds) are removed, and how often a worker looks for them.
GONE_AFTER = 600.0
TIDY_EVERY = 300.0


class View:
    """Looks at a worker from outside: what its row is to say."""

    def __init__(
        self,
        *,
        state: Callable[[], str],
        slots: Sequence[Slots],
        holdings: Holdings,
        tally: Tally,
        detail: dict[str, Any],
        sessions: Callable[[], list[int]] = list,
    ) -> None:
        """`detail` is what does not change; `sessions` answers what the server calls its connections."""
        self._state = state
        self._slots = slots
        self._holdings = holdings
        self._tally = tally
        self._detail = detail
        self._sessions = sessions
        self._past: deque[tuple[float, int, int]] = deque()  # moments (monotonic), with what had ended by then
        self._counts(time.monotonic())

    def __call__(self) -> Seen:
        """Return what is to be seen now."""
        now = time.monotonic()
        counts = self._counts(now)
        first, last = self._past[0], self._past[-1]
        passed = max(last[0] - first[0], LOOK_EVERY)
        claim, erred = self._tally.last_claim, self._tally.last_error
        return Seen(
            state="stopping" if self._state() == "stopping" else "working",
            slots=[
                SlotsInUse(kind=slots.kind, size=slots.size, busy=len(slots.busy), stuck=slots.stuck)
                for slots in self._slots
            ],
            claims=len(self._holdings),
            done_rate=round((last[1] - first[1]) / passed, 3),
            failed_rate=round((last[2] - first[2]) / passed, 3),
            last_error=None if erred is None else erred.text,
            last_error_at=None if erred is None else erred.at,
            claimed_queue=None if claim is None else claim.queue,
            claimed_at=None if claim is None else claim.claimed_at,
            polls=self._tally.polls or None,
            detail={**self._detail, "ended": counts, "sessions": self._sessions(), **self._empty()},
        )

    def _empty(self) -> dict[str, Any]:
        """Return why polls come back empty now, how many rows were skipped and how many leases taken back, by queue."""
        tally = self._tally
        known: dict[str, Any] = {
            "empty_polls": tally.reasons,
            "rows_skipped": tally.skipped,
            "leases_expired": tally.expired,
        }
        return {name: dict(list(numbers.copy().items())[:MOST_SHOWN]) for name, numbers in known.items() if numbers}

    def _counts(self, now: float) -> dict[str, int]:
        ended = self._tally.by_end()
        self._past.append((now, ended["done"], ended["failed"] + ended["retried"]))
        while now - self._past[0][0] > RATES_OVER and len(self._past) > 2:
            self._past.popleft()
        return dict(ended)


class Registration:
    """One worker's row: `beat` is called every two seconds or so, `leave` once."""

    def __init__(self, store: Store, entry: Entry, view: View) -> None:
        self._store = store
        self._dialect = store.dialect
        self._entry = entry
        self._view = view
        self._began = time.monotonic()
        self._entered = False
        self._written: Seen | None = None
        self._write_at = 0.0
        self._try_at = 0.0
        self._tidy_at = 0.0
        self._rest = FIRST_REST
        self._said = False

    def beat(self) -> None:
        """Write the row, if it is time for that. Never raises what the database says, and waits for no lock twice."""
        now = time.monotonic()
        if now < self._try_at:
            return
        seen = self._view()
        if now < self._write_at and _lasting(seen) == self._written:
            return
        try:
            if not self._entered or not self._store.run(
                partial(self._dialect.note_worker, self._entry.worker, seen), persistent=False
            ):
                self._store.run(partial(self._enter, seen), persistent=False)
                self._entered = True
        except DatabaseError as error:
            self._try_at = time.monotonic() + self._rest
            self._rest = min(self._rest * 2, LONGEST_REST)
            if not self._said and not isinstance(error, DatabaseUnavailable):
                self._said = True
                logger.warning(
                    "this worker's row in dibs_workers can't be written, so `dibs workers` does not show it; "
                    "nothing else depends on it: %s",
                    error,
                )
            return
        self._rest = FIRST_REST
        self._written, self._write_at = _lasting(seen), now + WRITE_EVERY

    def _enter(self, seen: Seen) -> Op[None]:
        # As old as it is once there is a connection: one that is made now takes its time.
        return self._dialect.enter_worker(self._entry, seen, age=time.monotonic() - self._began)

    def leave(self) -> None:
        """Remove the row: the worker has ended."""
        if self._entered:
            try:
                self._store.run(partial(self._dialect.leave_worker, self._entry.worker), persistent=False)
            except DatabaseError as error:
                logger.debug("this worker's row in dibs_workers stays for a while: %s", error)

    def tidy(self) -> None:
        """Remove the rows of workers that have not been seen for a while, if it is time for that; one does it for all."""
        now = time.monotonic()
        if not self._entered or now < self._tidy_at:
            return
        self._tidy_at = now + TIDY_EVERY
        try:
            for worker in self._store.run(partial(self._dialect.find_gone, after=GONE_AFTER), persistent=False):
                if self._store.run(partial(self._dialect.remove_gone, worker, after=GONE_AFTER), persistent=False):
                    logger.info("worker %s has not been seen for %.0f min", worker, GONE_AFTER / 60)
        except DatabaseError as error:
            logger.debug("rows of workers that are gone stay in dibs_workers for a while: %s", error)


def _lasting(seen: Seen) -> Seen:
    """Return what is worth being written soon: the rates are so once they have something to say."""
    return msgspec.structs.replace(seen, done_rate=0.0, failed_rate=0.0, polls=None)


def entry_of(worker: str, queues: Sequence[str] | None, tasks: Sequence[str]) -> Entry:
    """Return what the worker of this name in this process says of itself once."""
    return Entry(
        worker=worker,
        host=socket.gethostname()[:255],
        pid=os.getpid(),
        version=dibs.__version__,
        queues=None if queues is None else tuple(queues),
        tasks=tuple(sorted(tasks)),
    )


def detail_of(*, lease: float, burst: bool) -> dict[str, Any]:
    """Return what else is worth knowing of a worker, and does not change."""
    return {"lease": lease, "burst": burst, "python": ".".join(map(str, sys.version_info[:3]))}
