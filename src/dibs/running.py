"""The job that is running now, as the task's own code sees it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from dibs.errors import Cancel, DibsError, LostClaim
from dibs.events import meta_from
from dibs.retries import frees_key, keep
from dibs.states import State

if TYPE_CHECKING:
    from dibs.app import Dibs
    from dibs.jobs import Claim


class Circumstances(Protocol):
    """What the worker knows of a run while it goes on."""

    cancelling: bool
    finished: bool

    @property
    def lost(self) -> bool: ...


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
        return self._app._state_of(self._worker)

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

    def finish(self, result: Any = None, *, connection: Any) -> None:
        """Settle this job as done inside your own transaction, so that it commits together with your writes.

        Call it first in that transaction: after a read, a database at REPEATABLE READ may refuse with an error that
        asks you to begin anew. Raises LostClaim when the claim is no longer ours: let it out, so that your writes
        roll back with it. Raises AutocommitConnection on a connection that would commit it alone, and the signal
        `Cancel` when a person wants the job cancelled. dibs neither commits nor rolls back.
        """
        self._ours(self._app.run_on(connection, lambda: self._op(result), together="finish()"))

    async def afinish(self, result: Any = None, *, connection: Any) -> None:
        """`finish` on an async connection."""
        self._ours(await self._app.arun_on(connection, lambda: self._op(result), together="finish()"))

    def _op(self, result: Any) -> Any:
        claim = self._claim
        return self._app.dialect.finish(
            claim.id,
            claims=claim.claims,
            worker=self._worker,
            attempts=claim.attempts,
            result=None if result is None else self._app.codec.dump(result, path="result"),
            keep=keep(State.DONE, retention=claim.retention, keyed=claim.task_key is not None),
            frees_key=frees_key(State.DONE, key_until=claim.key_until),
        )

    def _ours(self, changed: bool) -> None:
        if changed:
            self._run.finished = True
        elif self._run.cancelling:
            raise Cancel("cancelled while it ran")
        else:
            raise LostClaim(self.id, self._worker)


_current: ContextVar[CurrentJob] = ContextVar("dibs_current_job")


def current_job() -> CurrentJob:
    """Return the job that is running here; raise DibsError outside of a task that a worker runs."""
    try:
        return _current.get()
    except LookupError:
        raise DibsError("no job is running here: current_job() is for code that a worker runs") from None
