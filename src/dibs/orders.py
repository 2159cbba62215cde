"""What people and programs ask of a queue and tell it: look at jobs, count, cancel, requeue, pause, prune.

Each in a transaction of dibs' own. The `a` in front: the same for async code, in a thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from dibs.connections import Connections
from dibs.errors import InvalidArgument, JobNotFound, KeyTaken
from dibs.jobs import JobRecord
from dibs.limits import check_text
from dibs.registry import Registry
from dibs.secrets import masked
from dibs.settings import LONGEST_QUEUE, integer, name
from dibs.states import State

#: Ids in one statement, at most: beyond some thousands optimizers give up the index.
ID_BATCH = 1_000


class Orders(Registry, Connections):
    """The part of an app that answers questions and takes orders. Its tasks say which arguments are secret."""

    def job(self, job_id: int) -> JobRecord:
        """Look one job up. Raises JobNotFound."""
        _ids(job_id)
        found = self.store.run(lambda: self.dialect.find(job_id))
        if found is None:
            raise JobNotFound(job_id)
        return self._masked(found)

    def jobs(
        self, *, status: str | None = None, queue: str | None = None, limit: int = 100, before: int = 2**62
    ) -> list[JobRecord]:
        """Look the newest jobs up, newest first; `before` an id, to go on from the last page."""
        if status is not None and status not in list(State):
            raise InvalidArgument("status", f"is one of {', '.join(State)}, not {status!r:.40}")
        _ids(before)
        integer(limit, "limit", low=0, high=1_000_000)
        found = self.store.run(
            lambda: self.dialect.list_jobs(status=status and str(status), queue=queue, before=before, limit=limit)
        )
        return [self._masked(job) for job in found]

    def _masked(self, job: JobRecord) -> JobRecord:
        """Mask what is secret by the task's code as it is now, too: an older row does not say so itself."""
        task = self.task_named(job.task)
        if task is None or not task.signature.has_secrets or not isinstance(job.payload, dict):
            return job
        return replace(job, payload=masked(job.payload, task.signature.secrets_in(job.payload)))

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how many jobs each queue has in each status. Reads every row of the queue's table."""
        return self.store.run(self.dialect.counts)

    def cancel(self, job_ids: int | Iterable[int], *, reason: str | None = None) -> list[int]:
        """Cancel jobs; return the ids for which that holds from now on.

        A ready job is cancelled at once. A running one is asked to end: an async task is cancelled, other code is
        told through `current_job().cancel_requested`; whatever it then does, it ends cancelled and is not retried.
        Ids that are missing from the answer had ended already, or never were.
        """
        check_text(reason or "", "reason")
        cancelled: list[int] = []
        for ids in _batches(job_ids):
            cancelled += self.store.run(partial(self.dialect.cancel, ids, reason=reason))
        return cancelled

    def requeue(self, job_ids: int | Iterable[int], *, force: bool = False) -> list[int]:
        """Send failed or cancelled jobs (with `force` done ones, too) round again, due now; return their ids.

        Their attempts start from 0. Failed and cancelled ones keep their checkpoint, done ones begin anew. Ids that
        are missing from the answer were in another status. Raises KeyTaken when another job holds the key of some by now; the others have been requeued then.
        """
        moved: list[int] = []
        refused: dict[int, int] = {}
        for ids in _batches(job_ids):
            now_moved, now_refused = self.store.run(partial(self.dialect.requeue, ids, force=force))
            moved += now_moved
            refused |= now_refused
        if refused:
            raise KeyTaken(refused, moved)
        return moved

    def pause(self, queue: str, *, by: str = "") -> bool:
        """Let nothing of a queue start any more, on any worker; return False if it was paused already.

        What runs goes on. Workers learn of it within one poll.
        """
        queue = name(queue, "queue", longest=LONGEST_QUEUE)
        by = name(by or _whoami(), "by", longest=255)
        return self.store.run(lambda: self.dialect.pause(queue, by=by))

    def resume(self, queue: str) -> bool:
        """Let a paused queue go on; return False if it was not paused."""
        queue = name(queue, "queue", longest=LONGEST_QUEUE)
        return self.store.run(lambda: self.dialect.resume(queue))

    def prune(self) -> int:
        """Delete the finished rows whose retention is over, in small batches; return how many. Workers do it, too."""
        from dibs.worker.upkeep import prune

        return prune(self.store)

    async def ajob(self, job_id: int) -> JobRecord:
        """`job` for async code."""
        return await asyncio.to_thread(self.job, job_id)

    async def ajobs(
        self, *, status: str | None = None, queue: str | None = None, limit: int = 100, before: int = 2**62
    ) -> list[JobRecord]:
        """`jobs` for async code."""
        return await asyncio.to_thread(lambda: self.jobs(status=status, queue=queue, limit=limit, before=before))

    async def acounts(self) -> dict[str, dict[str, int]]:
        """`counts` for async code."""
        return await asyncio.to_thread(self.counts)

    async def acancel(self, job_ids: int | Iterable[int], *, reason: str | None = None) -> list[int]:
        """`cancel` for async code."""
        return await asyncio.to_thread(lambda: self.cancel(job_ids, reason=reason))

    async def arequeue(self, job_ids: int | Iterable[int], *, force: bool = False) -> list[int]:
        """`requeue` for async code."""
        return await asyncio.to_thread(lambda: self.requeue(job_ids, force=force))

    async def apause(self, queue: str, *, by: str = "") -> bool:
        """`pause` for async code."""
        return await asyncio.to_thread(lambda: self.pause(queue, by=by))

    async def aresume(self, queue: str) -> bool:
        """`resume` for async code."""
        return await asyncio.to_thread(self.resume, queue)

    async def aprune(self) -> int:
        """`prune` for async code."""
        return await asyncio.to_thread(self.prune)


def _batches(job_ids: int | Iterable[int]) -> list[list[int]]:
    """Return ids in order, each once, in lists fit for one statement."""
    ids = _ids(job_ids)
    return [ids[start : start + ID_BATCH] for start in range(0, len(ids), ID_BATCH)]


def _ids(job_ids: int | Iterable[int]) -> list[int]:
    ids = [job_ids] if isinstance(job_ids, int) else list(job_ids)
    for job_id in ids:
        integer(job_id, "job id", low=0, high=2**63 - 1)
    return sorted(set(ids))


def _whoami() -> str:
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no such user here, as in many containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
