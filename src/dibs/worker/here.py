"""Runs one job here and now, in the caller's own thread or loop: what `Dibs(inline=True)` and `dibs.testing` do.

By the rules and with the statements of a worker, over a connection that may be the user's. Other than there, nothing
renews the lease, no thread and no process is started, and a sync task is not timed.

The steps are described once, as a generator; `walk` and `awalk` take them, blocking or async.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec

from dibs.app import Dibs
from dibs.dialects.here import Seen
from dibs.errors import Cancel, DibsError, LostClaim
from dibs.jobs import Claim, Settled, Verdict
from dibs.loop import loop_runs_here
from dibs.ops import Op
from dibs.places import Place
from dibs.running import CurrentJob, _current
from dibs.settings import LONGEST_LEASE
from dibs.states import State
from dibs.stored import value_of
from dibs.worker import arounds
from dibs.worker.progress import progress_text
from dibs.worker.runs import Run
from dibs.worker.settling import verdict_of
from dibs.worker.slots import decode, encode
from dibs.worker.telling import tell, tell_ends
from dibs.worker.verdicts import Outcome, Raised, Returned, Stopped, TimedOut

T = TypeVar("T")


@dataclass(frozen=True)
class Do:
    """A step: run the op that this makes."""

    make: Callable[[], Op[Any]]


@dataclass(frozen=True)
class Call:
    """A step: call the task of this run; answered with the outcome."""

    run: Run
    job: CurrentJob


Steps: TypeAlias = Generator["Do | Call", Any, T]


@dataclass(frozen=True)
class Ran:
    """One run of one job, and what became of it.

    `status` is the job's after it: `done`, `failed`, `cancelled`, or `ready` where it will be run again. `result` is
    as stored and read back; `error` what the task raised, signals too, and `reason` what of it is on the row.
    `attempt` counts from 1.
    """

    id: int
    task: str
    arguments: dict[str, Any]
    attempt: int
    status: State
    result: Any = None
    error: BaseException | None = field(default=None, compare=False)
    reason: str | None = field(default=None, repr=False)


def run_one(app: Dibs, job_id: int, *, worker: str, place: Place, once: bool = False) -> Steps[Ran | None]:
    """Run one ready job, due or not, and settle it; None if it is not ready. With `once` it ends, come what may."""
    __tracebackhide__ = True
    claim: Claim | None = yield Do(lambda: app.dialect.begin_one(job_id, worker=worker, lease=LONGEST_LEASE))
    if claim is None:
        return None
    attempt = claim.attempts
    if once:
        claim.max_attempts = attempt
    task = app.task_named(claim.task)
    if task is None:
        raise DibsError(f"job {job_id} is of {claim.task}, which {app!r} has no task of: import the module that has")
    run = Run(claim, task, received=time.monotonic(), good_until=float("inf"))
    run.begin()
    tell(app, "started", run, worker=worker)
    error: BaseException | None = None
    try:
        outcome: Outcome = yield Call(run, JobHere(app, claim, worker, run, place))
    except GeneratorExit:
        raise
    except BaseException as interrupt:  # noqa: BLE001 - Ctrl-C, or whoever awaits this was cancelled: raised below
        outcome, error = Stopped(), interrupt
    run.report_once()
    raised = outcome.error if isinstance(outcome, Raised) else None
    verdict = verdict_of(app, run, outcome, dice=_dice, max_releases=0 if once else None)
    try:
        if run.progress is not None:
            text = progress_text(run)
            yield Do(lambda: app.dialect.write_progress({(job_id, claim.claims): text}, worker=worker))
        answer = yield from _settle(app, run, verdict, worker=worker)
    except Exception as problem:  # noqa: BLE001 - raised again, or what led to it
        why = _unusable(raised, problem)
        raise why from why.__cause__
    yield from _tell(app, run, verdict, answer, worker=worker)
    if error is not None:
        raise error
    seen: Seen | None = yield Do(lambda: app.dialect.see(job_id))
    if answer is Settled.ALREADY and seen is None:
        raise _gone(job_id, worker)
    # With a retention of 0 there is no row any more.
    stored = seen.result if seen is not None else outcome.result if isinstance(outcome, Returned) else None
    return Ran(
        id=job_id,
        task=task.name,
        arguments=arguments(app, claim),
        attempt=attempt,
        status=verdict.status if seen is None else seen.status,
        result=None if stored is None else app.codec.load(stored, task.signature.returns),
        error=raised if raised is not None or answer is Settled.ALREADY else _told(outcome, verdict),
        reason=verdict.error if seen is None else seen.error,
    )


def arguments(app: Dibs, claim: Claim) -> dict[str, Any]:
    """Return a job's arguments by name, decoded as its task gets them; as plain JSON where they don't fit it."""
    task = app.task_named(claim.task)
    prepared = None if task is None else decode(task, claim.payload)
    if task is None or not isinstance(prepared, tuple):
        named = value_of(claim.payload)
        return named if isinstance(named, dict) else {}
    return task.signature.bind(*prepared)


def _settle(app: Dibs, run: Run, verdict: Verdict, *, worker: str) -> Steps[Settled]:
    claim = run.claim
    answers: dict[int, Settled] = yield Do(lambda: app.dialect.settle([verdict], worker=worker))
    if answers[claim.id] is not Settled.LOST:
        return answers[claim.id]
    # A rollback in the task's code took our claim away: it was made in the transaction that was rolled back.
    again: Claim | None = yield Do(lambda: app.dialect.begin_one(claim.id, worker=worker, lease=LONGEST_LEASE))
    if again is None:
        raise _gone(claim.id, worker)
    verdict = msgspec.structs.replace(verdict, claims=again.claims)
    answers = yield Do(lambda: app.dialect.settle([verdict], worker=worker))
    return answers[claim.id]


def _tell(app: Dibs, run: Run, verdict: Verdict, answer: Settled, *, worker: str) -> Steps[None]:
    if app.events.handlers:
        cancelled: dict[int, str | None] = yield Do(lambda: app.dialect.cancelled([verdict.id]))
        tell_ends(app, cancelled, [(run, verdict, answer)], worker=worker)


def _told(outcome: Outcome, verdict: Verdict) -> BaseException | None:
    """Return an exception for what went wrong although the task raised nothing."""
    return None if isinstance(outcome, Stopped) or verdict.error is None else DibsError(verdict.error)


def _gone(job_id: int, worker: str) -> LostClaim:
    error = LostClaim(job_id, worker)
    error.add_note(
        "a rollback in its task took the job itself away, which was enqueued in the same transaction: commit before the "
        "jobs are run (in a test's outer transaction that ends a savepoint)"
    )
    return error


def _unusable(raised: BaseException | None, problem: Exception) -> BaseException:
    """Return what to raise where a job could not be settled: the task's own error, if that is why."""
    if raised is None or isinstance(problem, LostClaim):
        return problem
    raised.add_note(
        f"its job could not be settled after that: {type(problem).__name__}. After an error of the database the "
        "transaction may take nothing more: let the task do in a savepoint what may fail (session.begin_nested(), "
        "atomic()), or roll back what it did"
    )
    return raised


# -- who takes the steps ---------------------------------------------------------------------------


def walk(steps: Steps[T], app: Dibs, place: Place) -> T:
    """Take the steps in this thread, where no event loop runs."""
    __tracebackhide__ = True  # in pytest, which shows the user's frames then; so below
    take: Callable[[], Any] = lambda: steps.send(None)  # noqa: E731 - what is done next, an answer or an error
    try:
        while True:
            step = take()
            try:
                answer = place.run(step.make) if isinstance(step, Do) else call(app, step)
            except BaseException as error:  # noqa: BLE001 - for the steps to judge
                take = _throwing(steps, error)
            else:
                take = _sending(steps, answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


async def awalk(steps: Steps[T], app: Dibs, place: Place) -> T:
    """Take the steps on this loop: async tasks run on it, sync ones in a thread meanwhile."""
    __tracebackhide__ = True
    take: Callable[[], Any] = lambda: steps.send(None)  # noqa: E731
    try:
        while True:
            step = take()
            try:
                if isinstance(step, Do):
                    answer = await place.arun(step.make)
                elif step.run.task.is_async:
                    answer = await acall(step)
                else:
                    answer = await app.in_thread(partial(call, app, step))
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - for the steps to judge
                take = _throwing(steps, error)
            else:
                take = _sending(steps, answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


def _sending(steps: Steps[Any], answer: Any) -> Callable[[], Any]:
    def take() -> Any:
        __tracebackhide__ = True
        return steps.send(answer)

    return take


def _throwing(steps: Steps[Any], error: BaseException) -> Callable[[], Any]:
    def take() -> Any:
        __tracebackhide__ = True
        return steps.throw(error)

    return take


# -- calling tasks ---------------------------------------------------------------------------------


def call(app: Dibs, step: Call) -> Outcome:
    """Call a task in this thread, in an empty context as in a worker; an async one on a loop of its own."""
    __tracebackhide__ = True
    run = step.run
    try:
        if run.task.is_async:
            outcome: Outcome = app.task_context().run(app.run_coroutine, acall(step))
            return outcome
        prepared = decode(run.task, run.claim.payload)
        if not isinstance(prepared, tuple):
            return prepared
        return encode(run.task, app.task_context().run(_called, step, *prepared))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit too, and what assertions in a test raise
        return Raised(error)


def _called(step: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    __tracebackhide__ = True
    _current.set(step.job)
    return arounds.call(step.run.task, step.run.claim, step.job, args, kwargs)


async def acall(step: Call) -> Outcome:
    """Await an async task, in an empty context; when its time is up it is cancelled."""
    __tracebackhide__ = True
    run = step.run
    prepared = decode(run.task, run.claim.payload)
    if not isinstance(prepared, tuple):
        return prepared
    context = run.task.app.task_context()
    context.run(_current.set, step.job)
    code = _contained(context.run(arounds.acall, run.task, run.claim, step.job, *prepared))
    task = asyncio.get_running_loop().create_task(code, context=context)
    timeout = run.task.options.timeout
    outcome: Outcome
    try:
        async with asyncio.timeout(timeout) as limit:
            result = await task
        outcome = result if isinstance(result, Raised) else encode(run.task, result)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        mine = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and mine is not None and mine.cancelling():
            raise
        outcome = Raised(error)
    return TimedOut(timeout or 0.0) if limit.expired() else outcome


class JobHere(CurrentJob):
    """The running job, whose row may be seen by one connection alone: what it writes goes there."""

    __slots__ = ("_place",)

    def __init__(self, app: Dibs, claim: Claim, worker: str, run: Run, place: Place) -> None:
        super().__init__(app, claim, worker, run)
        self._place = place

    def _write(self, text: str | None) -> bool:
        claim, dialect = self._claim, self._app.dialect
        return self._place.run(
            lambda: dialect.write_checkpoint(claim.id, claims=claim.claims, worker=self._worker, checkpoint=text)
        )

    async def acheckpoint(self, data: Any) -> None:
        text, claim, dialect = self._checkpoint_text(data), self._claim, self._app.dialect
        stored = await self._app.ask(
            self._place,
            lambda: dialect.write_checkpoint(claim.id, claims=claim.claims, worker=self._worker, checkpoint=text),
        )
        if not stored:
            raise LostClaim(self.id, self._worker)
        claim.checkpoint = text

    def _refusal(self) -> Exception:
        seen = self._place.run(lambda: self._app.dialect.see(self.id))
        if seen is None or seen.claim.claims != self._claim.claims:
            return LostClaim(self.id, self._worker)
        if seen.cancelling:
            return Cancel("cancelled while it ran")
        return DibsError(
            f"finish() found no job {self.id} over this connection, which does not see the transaction that the job is "
            "run in: pass the session of that transaction"
        )


_dice = random.Random()


def no_loop(instead: str) -> None:
    """Raise DibsError where an event loop runs in this thread: blocking it would hang what it should do."""
    if loop_runs_here():
        raise DibsError(f"an event loop runs in this thread: {instead}")


async def _contained(code: Coroutine[Any, Any, Any]) -> Any:
    """Await a task's code. What asyncio does not pass on like other exceptions comes back as the outcome: the first
    two would end the loop, the third would close whoever waits."""
    try:
        return await code
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        return Raised(error)
