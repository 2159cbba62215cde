"""The job that is running now, as the task's own code sees it."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dibs.errors import Cancel, DatabaseUnavailable, DibsError, InvalidArgument, LostClaim, Release
from dibs.events import meta_from
from dibs.jobs import Settled
from dibs.results import leave_out, problem_with_length
from dibs.retries import frees_key, keep
from dibs.settings import MOST_CHECKPOINT
from dibs.states import State

if TYPE_CHECKING:
    from dibs.app import Dibs
    from dibs.jobs import Claim


#: The pause (seconds) before a checkpoint is tried again while the database is away.
CHECKPOINT_AGAIN = 0.5


class Progress(NamedTuple):
    """How far a job said it was: a share of 1, in words, and when (monotonic)."""

    done: float
    note: str | None
    at: float


class Circumstances(Protocol):
    """What the worker knows of a run while it goes on, and what the run has told it."""

    cancelling: bool
    stopping: bool
    finished: bool
    progress: Progress | None
    heard: bool  # its code has been told, by what a call of its own raised, that it is cancelled or lost

    @property
    def lost(self) -> bool: ...

    @property
    def over(self) -> bool: ...


class CurrentJob:
    """The job whose task is running here. Good only inside that task."""

    __slots__ = ("_app", "_claim", "_run", "_worker")

    def __init__(self, app: Dibs, claim: Claim, worker: str, run: Circumstances) -> None:
        self._app = app
        self._claim = claim
        self._worker = worker
        self._run = run

    @property
    def id(self) -> int:
        return self._claim.id

    @property
    def task(self) -> str:
        return self._claim.task

    @property
    def queue(self) -> str:
        return self._claim.queue

    @property
    def key(self) -> str | None:
        return self._claim.task_key

    @property
    def attempts(self) -> int:
        """Which run of this job this is, the first being 1."""
        return self._claim.attempts

    @property
    def max_attempts(self) -> int:
        return self._claim.max_attempts

    @property
    def meta(self) -> dict[str, Any]:
        """What the hooks of `@app.on_enqueue` put beside its arguments."""
        return meta_from(self._claim.meta)

    @property
    def state(self) -> Any:
        """What the lifespan of this worker yielded; see `Dibs(lifespan=…)`."""
        return self._app.state_of(self._worker)

    @property
    def claims(self) -> int:
        """The fence: higher than in every earlier run of this job. Write it beside your effects to guard them."""
        return self._claim.claims

    @property
    def lost(self) -> bool:
        """Is the claim lost, or may it be (the lease could not be renewed)? Then another worker may run the job."""
        return self._run.lost

    @property
    def cancel_requested(self) -> bool:
        """Does a person want this job cancelled? Learnt within about a second; whatever you do, it ends cancelled."""
        return self._run.cancelling

    @property
    def stopping(self) -> bool:
        """Does the worker want to stop? Then there is its time of grace left: end, or make a checkpoint and release."""
        return self._run.stopping

    def check(self) -> None:
        """Raise what fits if this job should not go on; a long loop just calls it. Costs next to nothing.

        - LostClaim when the claim is lost for certain, or the job ran out of time: it is run elsewhere, or will be.
          (Not while it only may be lost, as `lost` says then: in an outage the work goes on, and usually counts.)
        - Cancel when a person wants it cancelled.
        - Release when the worker stops: another one takes the job at once, and no attempt is counted.

        Let it out: it steers the job.
        """
        if self._run.over:
            self._run.heard = True
            raise LostClaim(self.id, self._worker)
        if self._run.cancelling:
            self._run.heard = True
            raise Cancel("cancelled while it ran")
        if self._run.stopping:
            raise Release("its worker stops", delay=0.0)

    def progress(self, done: float, note: str | None = None) -> None:
        """Say how far this job is: a share of 1, and a few words if you like.

        No I/O, so a tight loop may call it: the worker writes the latest one to the job's row about once a second,
        and the last one when the job ends. What is below 0 or above 1 counts as that. Raises InvalidArgument for
        what is no number.
        """
        if isinstance(done, bool) or not isinstance(done, int | float) or done != done:
            raise InvalidArgument("done", f"takes a number from 0 to 1, not {done!r:.40}")
        if note is not None and not isinstance(note, str):
            raise InvalidArgument("note", f"takes a string, not {type(note).__name__}")
        self._run.progress = Progress(0.0 if done < 0 else 1.0 if done > 1 else done, note, time.monotonic())

    @property
    def last_checkpoint(self) -> Any:
        """What `checkpoint` stored last, in this attempt or an earlier one, as plain JSON values; None if nothing."""
        return None if self._claim.checkpoint is None else self._app.codec.load(self._claim.checkpoint, Any)

    def checkpoint(self, data: Any) -> None:
        """Store from where the next attempt may go on; it finds that in `last_checkpoint`. None: from the beginning.

        Stored when this returns, for which it waits: also for a database that is away. It survives retries, crashes
        and releases. Raises LostClaim when the claim is no longer ours: let it out. Raises InvalidArgument for data
        that is no JSON or takes more than 64 KB of it: keep that elsewhere, and here where it is.
        """
        self._store(self._checkpoint_text(data))

    async def acheckpoint(self, data: Any) -> None:
        """`checkpoint` for async code."""
        text = self._checkpoint_text(data)
        await asyncio.to_thread(self._store, text)

    def _checkpoint_text(self, data: Any) -> str | None:
        if self._run.finished:
            raise DibsError("finish() has settled this job: there is no next attempt that a checkpoint could be for")
        text = None if data is None else self._app.codec.dump(data, path="checkpoint")
        if text is not None and (size := len(text.encode())) > MOST_CHECKPOINT:
            raise InvalidArgument(
                "checkpoint",
                f"is {size:,} bytes of JSON, the most is {MOST_CHECKPOINT:,}: keep the data elsewhere, and here where it is",
            )
        return text

    def _store(self, text: str | None) -> None:
        while not self._run.over:
            try:
                stored = self._write(text)
            except DatabaseUnavailable:
                time.sleep(CHECKPOINT_AGAIN)
                continue
            if stored:
                self._claim.checkpoint = text
                return
            break
        self._run.heard = True
        raise LostClaim(self.id, self._worker)

    def _write(self, text: str | None) -> bool:
        """Write a checkpoint; return False when the claim is no longer ours."""
        claim, dialect = self._claim, self._app.dialect
        return self._app.store.run(
            lambda: dialect.write_checkpoint(claim.id, claims=claim.claims, worker=self._worker, checkpoint=text)
        )

    def finish(self, result: Any = None, *, connection: Any) -> None:
        """Settle this job as done inside your own transaction, so that it commits together with your writes.

        Call it first in that transaction: after a read, a database at REPEATABLE READ may refuse with an error that
        asks you to begin anew. Raises LostClaim when the claim is no longer ours: let it out, so that your writes
        roll back with it. Raises InvalidArgument for a result that is no JSON; of more than 64 KB it is left out, with a
        warning. Raises DibsError where it has settled the job already. Raises AutocommitConnection on a connection that
        would commit it alone, and the signal `Cancel` when a person wants the job cancelled. dibs neither commits nor
        rolls back.
        """
        if not self._app.run_on(connection, lambda: self._op(result), together="finish()"):
            raise self._refusal()
        self._run.finished = True

    async def afinish(self, result: Any = None, *, connection: Any) -> None:
        """`finish` on an async connection."""
        if not await self._app.arun_on(connection, lambda: self._op(result), together="finish()"):
            raise await asyncio.to_thread(self._refusal)
        self._run.finished = True

    def _op(self, result: Any) -> Any:
        claim = self._claim
        return self._app.dialect.finish(
            claim.id,
            claims=claim.claims,
            worker=self._worker,
            attempts=claim.attempts,
            result=self._result_text(result),
            keep=keep(State.DONE, retention=claim.retention, keyed=claim.task_key is not None),
            frees_key=frees_key(State.DONE, key_until=claim.key_until),
        )

    def _result_text(self, result: Any) -> str | None:
        if result is None:
            return None
        text = self._app.codec.dump(result, path="result")
        if problem := problem_with_length(text):
            leave_out(self._app, self.task, problem)
            return None
        return text

    def _refusal(self) -> Exception:
        """Return what to raise when nothing could be finished: a claim that is ours still is to be cancelled."""
        claim, dialect, store = self._claim, self._app.dialect, self._app.store
        # The worker asks about once a second: it may not know yet.
        if self._run.cancelling or store.run(lambda: dialect.cancelling([claim.id])):
            return Cancel("cancelled while it ran")
        look = store.run(lambda: dialect.look({claim.id: claim.claims}, worker=self._worker))
        if self._run.finished and look[claim.id] is not Settled.LOST:
            return DibsError("finish() has settled this job already: call it once")
        return LostClaim(self.id, self._worker)


_current: ContextVar[CurrentJob] = ContextVar("dibs_current_job")


def current_job() -> CurrentJob:
    """Return the job that is running here; raise DibsError outside of a task that a worker runs."""
    try:
        return _current.get()
    except LookupError:
        raise DibsError("no job is running here: current_job() is for code that a worker runs") from None
