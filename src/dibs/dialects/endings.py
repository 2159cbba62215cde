"""What goes with a job that ends or is deleted: its key, and the record of its duplicates."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from dibs.dialects.spelling import Spelling
from dibs.ops import Op, execute


class Endings(Spelling):
    """Statements that other ops end jobs with. Where a key's row may be locked, a dialect does it in its own way."""

    FREE_KEYS: ClassVar[str] = "DELETE FROM dibs_keys WHERE job_id {in_ids}"

    def free_keys(self, job_ids: Collection[int]) -> Op[None]:
        """Let go of the keys of these jobs, whose rows are locked."""
        yield from execute(self.FREE_KEYS, ids=self.ids(job_ids))

    FORGET_DUPLICATES_OF: ClassVar[str] = "DELETE FROM dibs_duplicates WHERE job_id {in_ids}"

    def forget_duplicates(self, job_ids: Collection[int]) -> Op[None]:
        """Delete the records of these jobs' duplicates."""
        yield from execute(self.FORGET_DUPLICATES_OF, ids=self.ids(job_ids))
