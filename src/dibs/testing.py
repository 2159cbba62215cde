"""Jobs in tests: look at what a test enqueued, and run what is due, in the test's own transaction and thread.

The pytest plugin makes a fixture of it, `dibs_jobs`; in other frameworks it is a context manager:

    with dibs.testing.Jobs(app, connection=session) as jobs:
        buy(order)
        assert jobs.enqueued(send_receipt)[0].arguments == {"order_id": 7}
        jobs.run()

Rows, statements, serialisation and rules are the real ones. Nothing is committed or rolled back by it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from dibs import written
from dibs.ambient import named_here
from dibs.app import Dibs
from dibs.bindings.surroundings import around_of, has_begun
from dibs.dialects.here import Seen
from dibs.errors import DibsError, InvalidArgument, Signal
from dibs.events import meta_from
from dibs.ops import Op
from dibs.places import OnConnection, OnStore, Place
from dibs.states import State
from dibs.store import Store
from dibs.tasks import Task
from dibs.worker.here import Do, Ran, Steps, arguments, awalk, no_loop, run_one, walk

T = TypeVar("T")

__all__ = ["Clock", "Jobs", "Ran", "SeenJob"]

#: Runs in one call of `run`, at most: a task that enqueues itself anew has no end.
MOST_RUNS = 1_000


@dataclass(frozen=True, kw_only=True)
class SeenJob:
    """A job that a test enqueued, as its row is now.

    `arguments` are by name, decoded as the task gets them. `run_at` is by the test's clock (see `Clock`). `result` is
    None until the job is done, `error` the text of what went wrong last.
    """

    id: int
    task: str
    arguments: dict[str, Any]
    key: str | None
    queue: str
    priority: int
    run_at: datetime
    status: State
    attempts: int
    max_attempts: int
    meta: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    error: str | None = None


class Jobs:
    """The jobs that a test has enqueued with one app, from when it is entered."""

    def __init__(self, app: Dibs, *, connection: Any = None, already: Iterable[int] = ()) -> None:
        """Nothing is opened or asked yet.

        - `connection`: the connection or session of the test's transaction, which is rolled back at its end. Without
          one it is what the app names itself: `Dibs(connection=…)`, Django's connection. Where there is none either,
          dibs uses connections of its own, and commits.
        - `already`: ids of jobs that were enqueued before this is entered and count, too.
        """
        self.app = app
        self.clock = Clock(self)
        self._connection = connection
        self._ids = dict.fromkeys(already)  # in the order in which they were enqueued
        self._worker = f"test:{secrets.token_hex(6)}"
        self._last: Any = None  # the connection that the app named last
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store: Store = app.store
        self._before: tuple[Any, Any] = (None, None)

    def __enter__(self) -> Self:
        app = self.app
        self._before = (app.stand_in, app.__dict__.get("store"))
        app.stand_in = self._over
        if not isinstance(type(app).store, property):  # a project's store joins its framework's transactions by itself
            app.__dict__["store"] = cast("Store", _Joined(self, self._store))
        written.recorders.append(self._record)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        written.recorders.remove(self._record)
        self.app.states.pop(self._worker, None)
        self.app.stand_in, store = self._before
        if store is not None:
            self.app.__dict__["store"] = store

    # -- what a test asks --------------------------------------------------------------------------

    def enqueued(self, task: Task[Any, Any] | str | None = None) -> list[SeenJob]:
        """Return the jobs of this task (None: of all) that were enqueued in this test, in order, whatever they are now.

        What a rollback took away, a retention of 0 deleted, or another process enqueued, is not among them. A duplicate
        of a key is no job.
        """
        return self._seen(self._place().run(self._look), task)

    async def aenqueued(self, task: Task[Any, Any] | str | None = None) -> list[SeenJob]:
        """`enqueued` for async code."""
        return self._seen(await self._place().arun(self._look), task)

    def run(self, *tasks: Task[Any, Any] | str, raise_errors: bool = True) -> list[Ran]:
        """Run what is due of this test's jobs, and what becomes due by that; return what was run, in order.

        In this thread, by priority and due time; only jobs of these `tasks`, if any are given. As in a worker, each
        gets its arguments decoded from its row, runs in an empty context, and is settled by its outcome: done, to be
        retried later, released, failed, cancelled. An async task runs on an event loop of its own.

        An exception of a task's is raised as soon as its job is settled, unless `raise_errors=False`: then it is in
        what is returned. Signals (`Retry`, `Release`, `Fail`, `Cancel`) are not raised. Raises DibsError after 1,000
        runs, and where an event loop runs in this thread: `await arun()` there.
        """
        __tracebackhide__ = True  # in pytest, which shows the task's frames then; so below
        no_loop("await arun() of the jobs instead")
        try:
            return walk(self._steps(tasks, raise_errors), self.app, _Places(self))
        finally:
            self.app.events.flush()

    async def arun(self, *tasks: Task[Any, Any] | str, raise_errors: bool = True) -> list[Ran]:
        """`run` for async code: async tasks run on this loop, sync ones in a thread."""
        __tracebackhide__ = True
        if isinstance(type(self.app).store, property):
            return await self.app.in_thread(lambda: self.run(*tasks, raise_errors=raise_errors))
        try:
            return await awalk(self._steps(tasks, raise_errors), self.app, _Places(self))
        finally:
            await asyncio.to_thread(self.app.events.flush)

    @property
    def state(self) -> Any:
        """What `current_job().state` is while jobs are run. Set it: the app's lifespan is not entered here."""
        return self.app.state_of(self._worker)

    @state.setter
    def state(self, state: Any) -> None:
        self.app.states[self._worker] = state

    # -- how ---------------------------------------------------------------------------------------

    def _steps(self, tasks: tuple[Task[Any, Any] | str, ...], raise_errors: bool) -> Steps[list[Ran]]:
        __tracebackhide__ = True
        app = self.app
        app.load()
        wanted = [self._task(task) for task in tasks] or list(app.tasks.values())
        names = [name for task in wanted for name in (task.name, *task.aliases)]
        ran: list[Ran] = []
        while self._ids and names:
            due = yield Do(partial(app.dialect.due_of, list(self._ids), tasks=names))
            if not due:
                break
            one = yield from run_one(app, due[0], worker=self._worker, place=_Places(self))
            if one is None:
                raise DibsError(f"job {due[0]} is due and can't be begun: is a worker running on this database?")
            ran.append(one)
            if raise_errors and one.error is not None and not isinstance(one.error, Signal):
                one.error.add_note(
                    f"raised by job {one.id}: {one.task}, attempt {one.attempt}; it is {one.status} now. "
                    "run(raise_errors=False) goes on instead"
                )
                raise one.error
            if len(ran) >= MOST_RUNS:
                raise DibsError(f"{MOST_RUNS:,} jobs were run and more are due: does {one.task} enqueue itself?")
        return ran

    def _task(self, task: Task[Any, Any] | str) -> Task[Any, Any]:
        # The tasks of a framework's own interface are registered under the path of their function.
        name = task if isinstance(task, str) else str(getattr(task, "module_path", None) or task.name)
        found = self.app.task_named(name)
        if found is None:
            raise InvalidArgument("task", f"{task!r:.60} is no task of {self.app!r}")
        return found

    def _record(self, app: Any, job_id: int, task: str) -> None:
        if app is self.app:
            self._ids[job_id] = None

    def _look(self) -> Op[list[Seen]]:
        found = []
        for job_id in list(self._ids):
            seen = yield from self.app.dialect.see(job_id)
            if seen is not None:
                found.append(seen)
        return found

    def _seen(self, found: list[Seen], task: Task[Any, Any] | str | None) -> list[SeenJob]:
        wanted = None if task is None else self._task(task)
        return [
            self._seen_job(seen) for seen in found if wanted is None or self.app.task_named(seen.claim.task) is wanted
        ]

    def _seen_job(self, seen: Seen) -> SeenJob:
        claim, task = seen.claim, self.app.task_named(seen.claim.task)
        returns = Any if task is None else task.signature.returns
        return SeenJob(
            id=claim.id,
            task=claim.task,
            arguments=arguments(self.app, claim),
            key=claim.task_key,
            queue=claim.queue,
            priority=claim.priority,
            run_at=claim.position.run_at + self.clock.moved,
            status=seen.status,
            attempts=claim.attempts,
            max_attempts=claim.max_attempts,
            meta=meta_from(claim.meta),
            result=None if seen.result is None else self.app.codec.load(seen.result, returns),
            error=seen.error,
        )

    def _over(self) -> Any:
        """Return the connection of the test's transaction, outside of what its sessions begin and end: what stands
        for a connection of dibs' own. None where there is no such transaction."""
        with suppress(RuntimeError):  # no loop runs here
            self._loop = asyncio.get_running_loop()
        if self._connection is not None:
            around = around_of(self._connection)
            return self._connection if around is None else around
        try:
            named = named_here(self.app, self.app._ambient)
            around = None if named is None else around_of(named)
        except Exception:
            if self._last is None:
                raise
            named = None
        if named is None:  # in a task, which runs in an empty context, the callable may know no session, or raise
            return self._last if self._last is not None and has_begun(self._last) else None
        self._last = around if around is not None or not has_begun(named) else named
        return self._last

    def _place(self) -> Place:
        connection = self._over()
        return OnStore(self._store) if connection is None else OnConnection(connection, self._loop)


class Clock:
    """The clock of a test: the database's, moved.

    Moving it lets time pass for the jobs that the test has enqueued so far, and nothing else: `datetime.now()` in your
    code stays what it is.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        #: By how much it was moved, in all.
        self.moved = timedelta(0)

    def move(self, by: timedelta | None = None, /, **units: float) -> None:
        """Move it forward, by a timedelta or by `hours=1`, `minutes=…`, `seconds=…`, `days=…`. Then `run` what is due.

        Raises InvalidArgument for what is not forward.
        """
        step = _forward(by, units)
        self._jobs._place().run(lambda: self._op(step))
        self.moved += step

    async def amove(self, by: timedelta | None = None, /, **units: float) -> None:
        """`move` for async code."""
        step = _forward(by, units)
        await self._jobs._place().arun(lambda: self._op(step))
        self.moved += step

    def now(self) -> datetime:
        """Return the time by this clock, aware UTC."""
        dialect = self._jobs.app.dialect
        return dialect.moment(self._jobs._place().run(dialect.clock)) + self.moved

    async def anow(self) -> datetime:
        """`now` for async code."""
        dialect = self._jobs.app.dialect
        return dialect.moment(await self._jobs._place().arun(dialect.clock)) + self.moved

    def _op(self, step: timedelta) -> Op[None]:
        if self._jobs._ids:
            yield from self._jobs.app.dialect.sooner(list(self._jobs._ids), by=step.total_seconds())


def _forward(by: timedelta | None, units: dict[str, float]) -> timedelta:
    step = timedelta(**units) if by is None else by
    if not isinstance(step, timedelta) or step < timedelta(0):
        raise InvalidArgument("by", f"moves the clock forward by a timedelta or by hours=1, not {step!r:.60}")
    return step


class _Places:
    """Where ops go, asked anew for each: sessions begin and end in between."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def run(self, make: Callable[[], Op[T]]) -> T:
        return self._jobs._place().run(make)

    async def arun(self, make: Callable[[], Op[T]]) -> T:
        return await self._jobs._place().arun(make)


class _Joined:
    """The app's store while the test runs: what it is asked (`app.job(…)`, `join`) sees what the test wrote."""

    def __init__(self, jobs: Jobs, store: Store) -> None:
        self._jobs = jobs
        self._store = store

    def run(self, make: Callable[[], Op[T]], *, once: bool = False, persistent: bool = True, haste: bool = False) -> T:
        connection = self._jobs._over()
        if connection is None:
            return self._store.run(make, once=once, persistent=persistent, haste=haste)
        return OnConnection(connection, self._jobs._loop).run(make)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
