"""What a running job says about itself: how far it is, and from where its next attempt may go on. Alike on every database.

With the fence, and on dibs' own connections only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from dibs.dialects.upkeep import Upkeep
from dibs.jobs import Settled
from dibs.ops import Op, execute, fetch


class Reports(Upkeep):
    """Ops for tasks that run for hours."""

    # Locked first, so that a row that somebody's transaction holds is passed over and not waited for.
    LOCK_REPORTING: ClassVar[str] = """
        SELECT id, claims FROM dibs_jobs
        WHERE id {in_ids} AND status = 'running' AND lease_owner = :worker ORDER BY id {for_update} {skip_locked}
    """
    WRITE_PROGRESS: ClassVar[str] = """
        UPDATE dibs_jobs SET progress = :progress
        WHERE id = :id AND status = 'running' AND claims = :claims AND lease_owner = :worker
    """

    def write_progress(self, reports: Mapping[tuple[int, int], str], *, worker: str) -> Op[set[int]]:
        """Write the progress (JSON) of claims `(id, claims)`; return the ids for which that was done.

        The others are locked for the moment, or not ours any more.
        """
        rows = yield from fetch(self.LOCK_REPORTING, ids=self.ids(job_id for job_id, _ in reports), worker=worker)
        written: set[int] = set()
        for job_id, claims in rows:
            if (progress := reports.get((job_id, claims))) is not None:
                yield from execute(self.WRITE_PROGRESS, id=job_id, claims=claims, worker=worker, progress=progress)
                written.add(job_id)
        return written

    WRITE_CHECKPOINT: ClassVar[str] = """
        UPDATE dibs_jobs SET checkpoint = :checkpoint
        WHERE id = :id AND status = 'running' AND claims = :claims AND lease_owner = :worker
    """

    def write_checkpoint(self, job_id: int, *, claims: int, worker: str, checkpoint: str | None) -> Op[bool]:
        """Write a job's checkpoint (JSON; None: it has none any more); return False when the claim is not ours."""
        changed = yield from execute(
            self.WRITE_CHECKPOINT, alone=True, id=job_id, claims=claims, worker=worker, checkpoint=checkpoint
        )
        if changed:
            return True
        # A database may not count a row that is as it was. The statement waited for locks, so it can't be that.
        looked = yield from self.look({job_id: claims}, worker=worker)
        return looked[job_id] is Settled.LOCKED
