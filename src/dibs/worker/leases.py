"""Leases: a thread with a connection of its own that renews all that this worker holds, and learns what is lost
and what a person wants cancelled.

Nothing that a task does can stop it, short of holding the GIL for seconds (some C code does; a process cures it).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from functools import partial

from dibs.errors import DatabaseError
from dibs.jobs import Claim
from dibs.store import Store
from dibs.worker.health import Beat
from dibs.worker.losing import lose
from dibs.worker.outage import Outage
from dibs.worker.runs import Holdings, Run

logger = logging.getLogger("dibs")

#: Claims renewed by one statement, at most.
BATCH = 1_000

#: How often (seconds) it is asked which running jobs a person wants cancelled.
ASK_EVERY = 1.0


def patience_for(lease: float) -> float:
    """Return for how many seconds a worker waits for an answer before it takes the connection for dead: so that a lease can
    be renewed over another one before it is past, where a network has swallowed the question."""
    return min(max(lease / 2, 2.5), 15.0)


class Leases:
    """Renews every third of a lease, so two renewals may fail.

    What somebody's transaction holds just then is tried again at each turn: once let go, it is past its lease.
    """

    def __init__(self, store: Store, holdings: Holdings, outage: Outage, *, worker: str, lease: float) -> None:
        self._store = store
        self._dialect = store.dialect
        self._holdings = holdings
        self._outage = outage
        self._worker = worker
        self._lease = lease
        self._locked: list[Run] = []
        self.beat = Beat(store)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="dibs-leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=5)

    def _loop(self) -> None:
        every = self._lease / 3
        renew_at = time.monotonic() + every
        wait = usual = min(ASK_EVERY, every)
        while not self._closing.wait(wait):
            self.beat()
            wait = usual
            try:
                if time.monotonic() >= renew_at:
                    self._renew(self._holdings.all())
                    renew_at = time.monotonic() + every
                else:
                    self._renew([run for run in self._locked if run.claim.id in self._holdings])
                    self._ask_cancelled()
                self._outage.over(self._store.contact)
                # A third of a lease is seldom a number of seconds: renewed at the next full one, little more than a third of it
                # may be left.
                wait = min(usual, max(renew_at - time.monotonic(), 0.0))
            except DatabaseError as error:
                self._outage.failed(error)
            except Exception:
                logger.exception("renewing the leases met an error of its own; it goes on")

    def _renew(self, runs: Sequence[Run]) -> None:
        self._locked = []
        for start in range(0, len(runs), BATCH):
            batch = {run.claim.id: run for run in runs[start : start + BATCH]}
            held = [(run.claim.id, run.claim.claims) for run in batch.values()]
            sent = time.monotonic()
            renewal = self._store.run(partial(self._dialect.renew, held, worker=self._worker, lease=self._lease))
            lost = [run for job_id, run in batch.items() if job_id in renewal.lost]
            unsettled = [run for run in lost if run.claim.id in self._holdings]
            self._holdings.drop(lost)
            lose(self._store, unsettled, worker=self._worker)
            for job_id, run in batch.items():
                if job_id in renewal.lost:
                    continue
                if job_id in renewal.renewed:
                    run.good_until = sent + self._lease
                else:
                    self._locked.append(run)
                if job_id in renewal.cancelling:
                    run.ask_to_cancel()

    def _ask_cancelled(self) -> None:
        begun = {run.claim.id: run for run in self._holdings.all() if run.begun is not None and not run.cancelling}
        if begun:
            for job_id in self._store.run(lambda: self._dialect.cancelling(begun)):
                begun[job_id].ask_to_cancel()


def renew_late(store: Store, claims: Sequence[Claim], *, worker: str, lease: float) -> dict[int, float]:
    """Renew claims whose answer was so long on its way that little of their leases is left, or nothing; return until when
    (monotonic) each is good now. What is left out may be lost.

    They would be given back as lost without having begun, claimed again and given back again, as long as the answers
    take as long: for ever, where it is the size of a payload that takes the time.
    """
    held = [(claim.id, claim.claims) for claim in claims]
    sent = time.monotonic()
    try:
        renewal = store.run(partial(store.dialect.renew, held, worker=worker, lease=lease))
    except DatabaseError as error:
        logger.debug("%d claims came late and could not be renewed: %s", len(claims), error)
        return {}
    return dict.fromkeys(renewal.renewed, sent + lease)
