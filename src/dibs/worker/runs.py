"""One run of one job in this process, and all that the process holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from dibs.jobs import Claim
from dibs.running import Progress
from dibs.tasks import Task


class Run:
    """A claim from the moment it is held until it is settled. Shared by the threads that run, renew and settle it."""

    __slots__ = (
        "_lost",
        "_unreported",
        "asked",
        "begun",
        "cancelling",
        "claim",
        "ended",
        "exception",
        "finished",
        "good_until",
        "heard",
        "interrupt",
        "lost_to",
        "misfit",
        "progress",
        "received",
        "stopping",
        "task",
        "written",
    )

    def __init__(self, claim: Claim, task: Task[Any, Any], *, received: float, good_until: float) -> None:
        self.claim = claim
        self.task = task
        self.received = received  # monotonic: when the claim's answer came
        self.good_until = good_until  # monotonic: until when the lease holds for certain
        self.begun: float | None = None  # monotonic: when its code was called
        self.ended: float | None = None
        self.cancelling = False
        self.stopping = False  # the worker wants to stop
        self.progress: Progress | None = None  # the last thing that its code said
        self.written: Progress | None = None  # the last of those that is in the database
        self.finished = False  # its task has settled it in a transaction of its own
        self.heard = False  # what a call of its code's own raised has told it that it is cancelled or lost
        self.interrupt: Callable[[bool], None] | None = None  # ends its code; also code that has `heard`?
        self.misfit = False  # its payload does not fit the code here
        self.asked = False  # the database has been asked to settle it, whatever came of that
        self.lost_to = "who has it now is not known"  # in words, once the claim is lost
        self.exception: BaseException | None = None  # what its task raised, kept only where events tell of it
        self._lost = False
        self._unreported = [None]

    @property
    def lost(self) -> bool:
        """Is the claim lost or given up, or may it be lost, since the lease could not be renewed in time?"""
        return self._lost or self.ended is not None or time.monotonic() > self.good_until

    @property
    def over(self) -> bool:
        """Is the claim lost or given up for certain? Nothing that this run still has to say will be taken."""
        return self._lost or self.ended is not None

    @property
    def known_lost(self) -> bool:
        """Was it told already that the claim is lost?"""
        return self._lost

    def lose(self) -> None:
        self._lost = True
        self._stop_code()

    def ask_to_cancel(self) -> None:
        if not self.cancelling:
            self.cancelling = True
            self._stop_code()

    def _stop_code(self) -> None:
        if (interrupt := self.interrupt) is not None:
            interrupt(False)

    def begin(self) -> None:
        self.begun = time.monotonic()
        if not self.claim.started:
            self.claim.attempts += 1  # the database learns it by and by; see Fetcher.mark

    def report_once(self) -> bool:
        """Is this the first outcome reported for this run? A later one comes too late and is dropped."""
        try:
            self._unreported.pop()  # atomic: of two threads one gets it
        except IndexError:
            return False
        self.ended = time.monotonic()
        return True

    def ran(self) -> float | None:
        """Return for how many seconds its code ran, or has been running; None if it never began."""
        return None if self.begun is None else (self.ended or time.monotonic()) - self.begun

    def database_now(self, at: float | None = None) -> str:
        """Return the database's time now (or `at`, monotonic), as text: its time at the claim plus what passed since."""
        since = (time.monotonic() if at is None else at) - self.received
        return (self.claim.claimed_at + timedelta(seconds=since)).isoformat()


class Holdings:
    """All runs that are not settled yet: what the leases are renewed for."""

    def __init__(self) -> None:
        self._runs: dict[int, Run] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._runs

    def add(self, runs: Iterable[Run]) -> list[Run]:
        """Hold these; return those whose jobs are among them, in a later claim: they are lost, to ourselves."""
        with self._lock:
            earlier = []
            for run in runs:
                if (other := self._runs.get(run.claim.id)) is not None:
                    earlier.append(other)
                self._runs[run.claim.id] = run
            return earlier

    def drop(self, runs: Iterable[Run]) -> None:
        with self._lock:
            for run in runs:
                if self._runs.get(run.claim.id) is run:
                    del self._runs[run.claim.id]

    def all(self) -> list[Run]:
        with self._lock:
            return list(self._runs.values())
