"""What a worker process has counted since it began, for its row in the register, the summary in the log, and metrics.

Each number has one thread that counts it; whoever reads takes a copy. Nothing here costs more than a few dictionary
look-ups for a batch, or one for a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from dibs.jobs import Claim
from dibs.metrics import Histogram
from dibs.worker.runs import Run

#: Queues, and pairs of a queue and a task, that are counted apart, at most. More (a queue for each tenant) are one.
MOST_APART = 1_000

#: What stands for all others.
OTHER = "(other)"


class Erred(NamedTuple):
    """A run that failed: what went wrong, in a line, and when, by the database's clock."""

    text: str
    at: datetime


class Tally:
    """The numbers of one worker. Each only grows."""

    def __init__(self, moment: Callable[[Any], datetime]) -> None:
        """`moment` reads a time as the database gave it."""
        self._moment = moment
        #: Are the histograms wanted? They cost a microsecond for each run, and only whoever shows them wants them.
        self.timed = False
        self._last_due: tuple[Any, datetime] = (None, datetime.min)
        self.waited: dict[str, Histogram] = {}  # by queue: from when a job was due until its run began
        self.ran: dict[str, Histogram] = {}  # by task
        self.polls: dict[str, dict[str, int]] = {}  # empty ones, by queue and reason
        self.skipped: dict[str, int] = {}  # rows that others held, by queue
        self.reasons: dict[str, str] = {}  # by queue: why polls come back empty, as of the last look
        self.expired: dict[str, int] = {}  # leases that this worker's upkeep took back, by queue
        self.claims: dict[str, int] = {}  # by queue
        self.ends: dict[tuple[str, str, str], int] = {}  # by queue, task and how runs ended
        self.last_claim: Claim | None = None
        self.last_error: Erred | None = None

    def claimed(self, claims: Sequence[Claim]) -> None:
        """Count a batch of claims."""
        if claims:
            self.last_claim = claims[-1]
            for queue, number in Counter(claim.queue for claim in claims).items():
                _add(self.claims, queue, number)

    def ended(self, run: Run, end: str) -> None:
        """Count the end of a run that had begun."""
        if self.timed:
            self._time(run)
        key = run.claim.queue, run.claim.task, end
        try:
            self.ends[key] += 1
        except KeyError:
            if len(self.ends) >= MOST_APART:
                key = OTHER, OTHER, end
            self.ends[key] = self.ends.get(key, 0) + 1

    def _time(self, run: Run) -> None:
        claim, begun = run.claim, run.begun
        if begun is None:
            return
        due = claim.position.run_at
        if due != self._last_due[0]:  # what was enqueued together is due together
            self._last_due = due, self._moment(due)
        since = (claim.claimed_at - self._last_due[1]).total_seconds() + begun - run.received
        _histogram(self.waited, claim.queue).observe(max(since, 0.0))
        _histogram(self.ran, claim.task).observe(run.ran() or 0.0)

    def polled_empty(self, queue: str, reason: str, times: int = 1) -> None:
        """Count polls that found nothing, with why that was."""
        reasons = self.polls.setdefault(_apart(self.polls, queue), {})
        reasons[reason] = reasons.get(reason, 0) + times

    def took_back(self, queue: str) -> None:
        """Count a claim whose lease was over and that upkeep took back."""
        _add(self.expired, queue, 1)

    def skipped_rows(self, queue: str, number: int) -> None:
        """Count ready rows that were passed over, since others held them."""
        _add(self.skipped, queue, number)

    def erred(self, run: Run, text: str) -> None:
        """Take note of a run that failed."""
        self.last_error = Erred(
            f"job {run.claim.id}: {run.claim.task}: {text}", datetime.fromisoformat(run.database_now(run.ended))
        )

    def by_end(self) -> Counter[str]:
        """Return how many runs ended in which way."""
        counts: Counter[str] = Counter()
        for (_, _, end), number in self.ends.copy().items():
            counts[end] += number
        return counts


def _apart(counted: Mapping[str, object], name: str) -> str:
    """Return what a name is counted under: itself, while there is room for it."""
    return name if name in counted or len(counted) < MOST_APART else OTHER


def _add(numbers: dict[str, int], name: str, number: int) -> None:
    key = _apart(numbers, name)
    numbers[key] = numbers.get(key, 0) + number


def _histogram(histograms: dict[str, Histogram], name: str) -> Histogram:
    found = histograms.get(name)
    if found is None:
        found = histograms.setdefault(_apart(histograms, name), Histogram())
    return found
