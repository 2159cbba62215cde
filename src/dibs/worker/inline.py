"""`Dibs(inline=True)`: a job is run as soon as it is written, by whoever enqueued it. Not for production.

The row is real, and so are its arguments in it, its key, its meta and its end; only the worker is missing. Each job
runs once, whenever it is due. An exception of the task's fails the job and is logged, as a worker's would be: `enqueue`
returns, and `join` raises.
"""

from __future__ import annotations

import logging
import secrets
from typing import Any, TypeVar

from dibs.app import Dibs
from dibs.errors import JobCancelled, JobFailed
from dibs.places import OnConnection, OnStore, Place
from dibs.states import State
from dibs.tasks import Job
from dibs.worker.here import Ran, awalk, run_one, walk

R = TypeVar("R")

logger = logging.getLogger("dibs")


class RanJob(Job[R]):
    """A job that has been run already; to join it asks nobody: its row may be in a transaction that is open yet."""

    __slots__ = ("_ran",)

    def __init__(self, job: Job[R], ran: Ran) -> None:
        super().__init__(job._task, job.id, job.created)
        self._ran = ran

    def _look(self) -> tuple[bool, Any, State]:
        if self._ran.status is State.FAILED:
            raise JobFailed(self.id, self._ran.reason)
        if self._ran.status is State.CANCELLED:
            raise JobCancelled(self.id, self._ran.reason)
        return True, self._ran.result, self._ran.status


def run_inline(app: Dibs, connection: Any, jobs: list[Job[R]]) -> list[Job[R]]:
    """Run jobs that have just been written over this connection (None: one of dibs' own); duplicates are not run."""
    place, worker = _place(app, connection), _name()
    return [
        _ended(job, walk(run_one(app, job.id, worker=worker, place=place, once=True), app, place))
        if job.created
        else job
        for job in jobs
    ]


async def arun_inline(app: Dibs, connection: Any, jobs: list[Job[R]]) -> list[Job[R]]:
    """`run_inline` for async code: async tasks run on this loop."""
    place, worker = _place(app, connection), _name()
    return [
        _ended(job, await awalk(run_one(app, job.id, worker=worker, place=place, once=True), app, place))
        if job.created
        else job
        for job in jobs
    ]


def _place(app: Dibs, connection: Any) -> Place:
    app.warn_once("inline", "Dibs(inline=True) runs jobs inside of enqueue: this is not for production")
    return OnStore(app.store) if connection is None else OnConnection(connection)


def _name() -> str:
    return f"inline:{secrets.token_hex(6)}"


def _ended(job: Job[R], ran: Ran | None) -> Job[R]:
    if ran is None:  # a worker was quicker
        return job
    if ran.status is State.FAILED:
        logger.error("job %d: %s failed: %s", ran.id, ran.task, ran.reason)
    return RanJob(job, ran)
