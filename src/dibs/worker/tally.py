"""What a worker process has counted since it began, for its row in the register, the summary in the log, and metrics.

Each number has one thread that counts it; whoever reads takes a copy. Nothing here costs more than a few dictionary
look-ups for a batch, or one for a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dibs.jobs import Claim
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

    def __init__(self) -> None:
        self.claims: dict[str, int] = {}  # by queue
        self.ends: dict[tuple[str, str, str], int] = {}  # by queue, task and how runs ended
        self.last_claim: Claim | None = None
        self.last_error: Erred | None = None

    def claimed(self, claims: Sequence[Claim]) -> None:
        """Count a batch of claims."""
        if claims:
            self.last_claim = claims[-1]
            for queue, number in Counter(claim.queue for claim in claims).items():
                key = queue if queue in self.claims or len(self.claims) < MOST_APART else OTHER
                self.claims[key] = self.claims.get(key, 0) + number

    def ended(self, claim: Claim, end: str) -> None:
        """Count the end of a run that had begun."""
        key = claim.queue, claim.task, end
        try:
            self.ends[key] += 1
        except KeyError:
            if len(self.ends) >= MOST_APART:
                key = OTHER, OTHER, end
            self.ends[key] = self.ends.get(key, 0) + 1

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
