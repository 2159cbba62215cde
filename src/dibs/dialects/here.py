"""Ops for jobs that are run where they were enqueued: inline, and in tests. Alike on every database.

They may go over a connection of the user's, whose driver may turn JSON into objects: so what is JSON is read as text.
One job at a time, by its id: a lane's claim takes what is due by the clock at which the transaction began.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

from dibs.dialects.claims import CLAIM_COLUMNS, Claims
from dibs.dialects.reports import Reports
from dibs.jobs import Claim, Position
from dibs.ops import Op, execute, fetch
from dibs.states import State

#: What a claim reads, with what is JSON as text.
_CLAIM_AS_TEXT = re.sub(r"\b(payload|errors|meta|checkpoint)\b", r"\1{as_text}", CLAIM_COLUMNS)


class Seen(NamedTuple):
    """A job's row: what a claim of it would read, and what has become of it."""

    claim: Claim
    status: State
    result: str | None
    error: str | None
    cancelling: bool


class Here(Reports, Claims):
    """Ops of whoever runs jobs without a worker."""

    SEE: ClassVar[str] = f"""
        SELECT {_CLAIM_AS_TEXT}, status, result{{as_text}}, error, cancel_requested_at
        FROM dibs_jobs WHERE id = :id
    """

    def see(self, job_id: int) -> Op[Seen | None]:
        """Return one job with all that a claim reads of it, or None where there is no such row."""
        rows = yield from fetch(self.SEE, alone=True, id=job_id)
        if not rows:
            return None
        (row,) = rows
        claim = self.claim_from(row)
        claim.position = Position(self.moment(claim.position.run_at), claim.id)
        return Seen(claim, State(row[20]), row[21], row[22], row[23] is not None)

    BEGIN_ONE: ClassVar[str] = """
        UPDATE dibs_jobs SET status = 'running', claims = claims + 1, attempts = attempts + 1, lease_owner = :worker,
            lease = :delay, lease_until = {soon}, started_at = {now}
        WHERE id = :id AND status = 'ready'
    """

    def begin_one(self, job_id: int, *, worker: str, lease: float) -> Op[Claim | None]:
        """Claim one ready job, due or not, and start it; return None if it is not ready."""
        changed = yield from execute(self.BEGIN_ONE, id=job_id, worker=worker, delay=lease)
        seen = (yield from self.see(job_id)) if changed else None
        return None if seen is None else seen.claim

    LOCK_ONE: ClassVar[str] = "SELECT id FROM dibs_jobs WHERE id = :id AND status = 'ready' {for_update} {nowait}"

    def take_one(self, job_id: int, *, worker: str, lease: float) -> Op[Claim | None]:
        """Claim one ready job, due or not, and start it; None if it is not ready. Fails where somebody's transaction
        holds the row: that is not waited for."""
        if not (yield from fetch(self.LOCK_ONE, id=job_id)):
            return None
        return (yield from self.begin_one(job_id, worker=worker, lease=lease))

    FIND_DUE: ClassVar[str] = """
        SELECT id FROM dibs_jobs
        WHERE id {in_ids} AND status = 'ready' AND run_at <= {now} AND task {in_tasks}
          AND queue NOT IN (SELECT queue FROM dibs_queues WHERE paused_at IS NOT NULL)
        ORDER BY priority DESC, run_at, id
    """

    def due_of(self, job_ids: Iterable[int], *, tasks: Sequence[str]) -> Op[list[int]]:
        """Return which of these jobs are due for these tasks, in the order in which to run them."""
        rows = yield from fetch(self.FIND_DUE, alone=True, ids=self.ids(job_ids), tasks=self.names(tasks))
        return [row[0] for row in rows]

    SOONER: ClassVar[str] = """
        UPDATE dibs_jobs SET run_at = {sooner} WHERE id {in_ids} AND status = 'ready'
    """

    def sooner(self, job_ids: Iterable[int], *, by: float) -> Op[int]:
        """Let these ready jobs be due so many seconds earlier: time seems to have passed for them."""
        return (yield from execute(self.SOONER, ids=self.ids(job_ids), seconds=by))

    MOMENT: ClassVar[str] = "SELECT {now}"

    def clock(self) -> Op[object]:
        """Return the database's time, as it gives it; `moment` reads it."""
        rows = yield from fetch(self.MOMENT, alone=True)
        moment: object = rows[0][0]
        return moment
