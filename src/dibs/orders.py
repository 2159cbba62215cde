"""What people and programs ask of a queue and tell it: look at jobs, count, cancel, requeue, pause, prune.

Each in a transaction of dibs' own. The `a` in front: the same for async code, in a thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Unpack

from dibs.connections import Connections
from dibs.diagnosis import why
from dibs.dialects.selecting import Edge
from dibs.errors import InvalidArgument, JobNotFound, KeyTaken
from dibs.events import Events
from dibs.filters import Filter, Filters, cancellable, filter_of, requeuable
from dibs.findings import Report
from dibs.holders import LockReport
from dibs.jobs import Cancelled, JobRecord
from dibs.looking import end, look
from dibs.register import WorkerRecord
from dibs.registry import Registry
from dibs.secrets import concealed
from dibs.selections import ID_BATCH, Selection
from dibs.settings import LONGEST_QUEUE, integer, name, reason_of
from dibs.why import Why


class Orders(Registry, Connections):
    """The part of an app that answers questions and takes orders. Its tasks say which arguments are secret."""

    events: Events

    def job(self, job_id: int) -> JobRecord:
        """Look one job up. Raises JobNotFound."""
        integer(job_id, "job id", low=0, high=2**63 - 1)
        found = self.store.run(lambda: self.dialect.find(job_id))
        if found is None:
            raise JobNotFound(job_id)
        return self.shown(found)

    def jobs(self, *, limit: int = 100, before: int = 2**62, **which: Unpack[Filters]) -> list[JobRecord]:
        """Look the newest jobs up that fit all filters, newest first; `before` an id, to go on from the last page."""
        chosen = filter_of(**which)
        _ids(before)
        integer(limit, "limit", low=0, high=1_000_000)
        edge = self.store.run(lambda: self.dialect.edge(chosen)) if chosen.has_since else Edge(0)
        found = self.store.run(lambda: self.dialect.list_jobs(chosen, edge, before=before, limit=limit))
        return [self.shown(job) for job in found]

    def shown(self, job: JobRecord) -> JobRecord:
        """Mask what is secret by the task's code as it is now, too: an older row does not say so itself."""
        task = self.task_named(job.task)
        if task is None or not task.signature.has_secrets:
            return job
        values = {name: getattr(job, name) for name in JobRecord.__struct_fields__}
        return JobRecord(**concealed(values, task.signature.secrets_in(job.payload or ())))

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how many jobs each queue has in each status. Reads every row of the queue's table."""
        return self.store.run(self.dialect.counts)

    def workers(self) -> list[WorkerRecord]:
        """Return the workers that are registered, those included that have been quiet for less than ten minutes.

        For information: whoever works on the queue need not be in it (see `WorkerRecord`). Raises SchemaError where the
        tables are older than the register.
        """
        return self.store.run(self.dialect.workers)

    def why(self, queue: str) -> Why:
        """Return why nothing of a queue is being claimed, as far as can be known from here; see `Why`.

        Reads some thousands of rows at most, and tries to lock those that are due for a moment, as a claim does. Raises
        DatabaseUnavailable, SchemaError or DatabaseError; a replica is an answer (`misdirected`) and no error.
        """
        queue = name(queue, "queue", longest=LONGEST_QUEUE)
        return why(self, queue)

    def locks(self, queue: str | None = None) -> LockReport:
        """Return who holds rows of jobs (of one queue, if you name it) or blocks dibs' statements, and what would end it.

        A claim passes rows that are held, waits for nobody and finds nothing: this tells whose they are. Whoever waits
        is not among them, unless others wait for it. On some databases a few of the held rows are waited for, for a second
        at most; see docs/locks.md. What this user may not see is said in `notes`, with the privilege that is missing.
        """
        if queue is not None:
            queue = name(queue, "queue", longest=LONGEST_QUEUE)
        return look(self, queue)

    def end_holder(self, session: int) -> bool:
        """End a session, or process, that `locks` names as a holder; return False if it is gone, or holds nothing any more.

        Its transaction is rolled back, whatever it was about. Raises InvalidArgument for one that has to be ended by hand.
        """
        return end(self, session)

    def doctor(self) -> Report:
        """Check the tables, the server and how the queue is served, as `dibs doctor` does; see `Report` and `Finding`.

        It only looks. Takes a moment, on a server that answers slowly some seconds a check. What can't be asked is a
        finding, too. Raises DatabaseUnavailable where there is no connection.
        """
        from dibs.doctor.examination import examine

        return examine(self)

    def select(self, **which: Unpack[Filters]) -> Selection:
        """Return the jobs that fit all filters, to be counted and gone through; see `Selection`."""
        return Selection(self.store, filter_of(**which))

    def to_cancel(self, **which: Unpack[Filters]) -> Selection:
        """Return the jobs that `cancel` would take by these filters."""
        return Selection(self.store, cancellable(_filter(which)))

    def to_requeue(self, *, force: bool = False, **which: Unpack[Filters]) -> Selection:
        """Return the jobs that `requeue` would take by these filters."""
        return Selection(self.store, requeuable(_filter(which), force=force))

    def cancel(
        self,
        job_ids: int | Iterable[int] | None = None,
        *,
        reason: str | None = None,
        by: str = "",
        **which: Unpack[Filters],
    ) -> list[int]:
        """Cancel jobs, by their ids or by filters; return the ids for which that holds from now on.

        A ready job is cancelled at once. A running one is asked to end: an async task is cancelled, other code is
        told through `current_job().cancel_requested`; whatever it then does, it ends cancelled and is not retried.
        Ids that are missing from the answer had ended already, or never were. `reason` becomes the job's error, and
        is kept with `by` (whom this process runs as, if not said) from now on.

        By filters (see `Filters`) those that fit all of them, ready and running ones unless `status` says less; in
        transactions of 1,000. What somebody's transaction holds just then is left as it is.
        Raises InvalidArgument where neither ids nor a filter are given, or both, and for a reason of more than 16,384
        characters.
        """
        reason = reason_of(reason)
        by = name(by or whoami(), "by", longest=255)
        cancelled: list[int] = []
        if job_ids is None:
            for _, done in self.to_cancel(**which).cancel(reason=reason, by=by):
                cancelled += self.took_cancelled(done, reason)
            return cancelled
        _only_ids(which)
        for ids in _batches(job_ids):
            done = self.store.run(partial(self.dialect.cancel, ids, reason=reason, by=by))
            cancelled += self.took_cancelled(done, reason)
        return cancelled

    def took_cancelled(self, done: Sequence[Cancelled], reason: str | None) -> list[int]:
        """Tell of the jobs that waited and have ended; return the ids of all. Of running ones their worker tells."""
        if "cancelled" in self.events.handlers:
            for job in done:
                if job.waited:
                    self.events.tell_cancelled(job, reason)
        return [job.id for job in done]

    def requeue(
        self, job_ids: int | Iterable[int] | None = None, *, force: bool = False, **which: Unpack[Filters]
    ) -> list[int]:
        """Send failed or cancelled jobs (with `force` done ones, too) round again, due now; return their ids.

        Their attempts start from 0. Failed and cancelled ones keep their checkpoint, done ones begin anew. Ids that
        are missing from the answer were in another status. Raises KeyTaken when another job holds the key of some by
        now; the others have been requeued then.

        By filters (see `Filters`) those that fit all of them: failed ones alone, unless `status` says otherwise, since
        what a person cancelled should not come back by the way. In transactions of 1,000. What somebody's transaction
        holds just then is left as it is.
        Raises InvalidArgument where neither ids nor a filter are given, or both.
        """
        moved: list[int] = []
        refused: dict[int, int] = {}
        if job_ids is None:
            for _, now_moved, now_refused in self.to_requeue(force=force, **which).requeue(force=force):
                moved += now_moved
                refused |= now_refused
        else:
            _only_ids(which)
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
        by = name(by or whoami(), "by", longest=255)
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

    async def ajobs(self, *, limit: int = 100, before: int = 2**62, **which: Unpack[Filters]) -> list[JobRecord]:
        """`jobs` for async code."""
        return await asyncio.to_thread(lambda: self.jobs(limit=limit, before=before, **which))

    async def acounts(self) -> dict[str, dict[str, int]]:
        """`counts` for async code."""
        return await asyncio.to_thread(self.counts)

    async def aworkers(self) -> list[WorkerRecord]:
        """`workers` for async code."""
        return await asyncio.to_thread(self.workers)

    async def awhy(self, queue: str) -> Why:
        """`why` for async code."""
        return await asyncio.to_thread(lambda: self.why(queue))

    async def alocks(self, queue: str | None = None) -> LockReport:
        """`locks` for async code."""
        return await asyncio.to_thread(self.locks, queue)

    async def aend_holder(self, session: int) -> bool:
        """`end_holder` for async code."""
        return await asyncio.to_thread(self.end_holder, session)

    async def adoctor(self) -> Report:
        """`doctor` for async code."""
        return await asyncio.to_thread(self.doctor)

    async def acancel(
        self,
        job_ids: int | Iterable[int] | None = None,
        *,
        reason: str | None = None,
        by: str = "",
        **which: Unpack[Filters],
    ) -> list[int]:
        """`cancel` for async code."""
        return await asyncio.to_thread(lambda: self.cancel(job_ids, reason=reason, by=by, **which))

    async def arequeue(
        self, job_ids: int | Iterable[int] | None = None, *, force: bool = False, **which: Unpack[Filters]
    ) -> list[int]:
        """`requeue` for async code."""
        return await asyncio.to_thread(lambda: self.requeue(job_ids, force=force, **which))

    async def apause(self, queue: str, *, by: str = "") -> bool:
        """`pause` for async code."""
        return await asyncio.to_thread(lambda: self.pause(queue, by=by))

    async def aresume(self, queue: str) -> bool:
        """`resume` for async code."""
        return await asyncio.to_thread(self.resume, queue)

    async def aprune(self) -> int:
        """`prune` for async code."""
        return await asyncio.to_thread(self.prune)


def _filter(which: Filters) -> Filter:
    """Return the filters of an order; raise InvalidArgument where there are none: nobody means all jobs by saying nothing."""
    if all(value is None for value in which.values()):
        raise InvalidArgument(
            "job_ids", f"is missing: name jobs by their ids, or by {', '.join(Filters.__annotations__)}"
        )
    return filter_of(**which)


def _only_ids(which: Filters) -> None:
    if any(value is not None for value in which.values()):
        raise InvalidArgument("job_ids", "goes without filters: name jobs by their ids or by filters, not by both")


def _batches(job_ids: int | Iterable[int]) -> list[list[int]]:
    """Return ids in order, each once, in lists fit for one statement."""
    ids = _ids(job_ids)
    return [ids[start : start + ID_BATCH] for start in range(0, len(ids), ID_BATCH)]


def _ids(job_ids: int | Iterable[int]) -> list[int]:
    ids = [job_ids] if isinstance(job_ids, int) else list(job_ids)
    for job_id in ids:
        integer(job_id, "job id", low=0, high=2**63 - 1)
    return sorted(set(ids))


def whoami() -> str:
    """Return who runs this process, and where: what is written down of whoever pauses or cancels."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no such user here, as in many containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
