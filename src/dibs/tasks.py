"""What a user holds: tasks, the jobs made of them, and the job that is running now."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from dibs.errors import ConfigurationError, InvalidArgument, JobCancelled, JobFailed, JobNotFound, StillRunning
from dibs.settings import LONGEST_TASK, KeyUntil, Options, Seconds, name, seconds
from dibs.signatures import Signature
from dibs.states import FINAL, State

if TYPE_CHECKING:
    from dibs.app import Dibs
    from dibs.hooks import Around

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Task(Generic[P, R]):
    """A function that jobs can be made of, under its name. Made by `@app.task`."""

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        task_name: str | None = None,
        aliases: tuple[str, ...] = (),
    ) -> None:
        self.function = function
        self.options = options
        self.name = name(task_name if task_name is not None else name_of(function), "name", longest=LONGEST_TASK)
        self.aliases = tuple(name(alias, "aliases", longest=LONGEST_TASK) for alias in aliases)
        self.arounds: list[Around] = []  # those of the registry that it was registered with
        self._app: Dibs | None = None
        self._signature: Signature | None = None
        self._check_kind()
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", self.name)

    #: Is it an `async def`, run on the worker's event loop?
    is_async = False

    @property
    def app(self) -> Dibs:
        """The app it belongs to; raises ConfigurationError before it has one."""
        if self._app is None:
            raise ConfigurationError(f"{self!r} has no app yet: app.include(…) the Tasks that it was registered with")
        return self._app

    @property
    def signature(self) -> Signature:
        """Its signature, with the app's codec."""
        if self._signature is None:
            self._signature = Signature(self.function, self.app.codec)
        return self._signature

    def belong_to(self, app: Dibs) -> None:
        """Take an app, once; its signature is read now, so that what can't be an argument is told at registration."""
        if self._app is not None:
            raise ConfigurationError(f"{self!r} belongs to {self._app!r} already")
        self._app = app
        try:
            _ = self.signature
        except BaseException:
            self._app = None
            raise

    @property
    def runs_in(self) -> str:
        """Where its code runs: "thread", "loop" or "process"."""
        return self.options.runs_in or ("loop" if self.is_async else "thread")

    def _check_kind(self) -> None:
        if self.is_async != (self.runs_in == "loop") and not (self.is_async and self.runs_in == "process"):
            fits = "'loop' or 'process'" if self.is_async else "'thread' or 'process'"
            raise InvalidArgument("runs_in", f"of {self!r} is {fits}, not {self.runs_in!r}")

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Write a job that calls this task with these arguments; return it.

        Raises InvalidArgument if they don't fit the signature or can't be stored; nothing was sent then.
        """
        return Using(self, self.options).enqueue(*args, **kwargs)

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """`enqueue` for async code; without a connection it runs in a thread."""
        return await Using(self, self.options).aenqueue(*args, **kwargs)

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return this call, for `app.enqueue_many`. Nothing is checked or written yet."""
        return Call(self, self.options, args, kwargs)

    def using(
        self,
        *,
        key: str | None = None,
        key_until: KeyUntil | None = None,
        run_at: datetime | None = None,
        delay: Seconds | None = None,
        priority: int | None = None,
        queue: str | None = None,
        max_attempts: int | None = None,
        retention: Seconds | None = None,
        connection: Any = None,
        own: bool | None = None,
    ) -> Using[P, R]:
        """Change options for one enqueue: `task.using(key="order-7", delay=30).enqueue(…)`.

        - `key`: the idempotency key, unique for this task. A second enqueue with it returns the first job. It is
          held while the job is ready, running or done and its row is kept; a failed or cancelled job lets it go.
        - `key_until="finished"`: lets it go when the job is done, too.
        - `run_at` (an aware datetime) or `delay` (seconds or timedelta): not before then. The past means now.
        - `priority`: higher goes first within a queue. `retention`: how long the finished row is kept.
        - `connection`: write the job in the transaction that is open on your own connection (which kinds: the table
          of connections in the README). dibs neither commits nor rolls back there.
        - `own=True`: write it on a connection of dibs' own, also inside an ambient transaction of yours.

        Raises InvalidArgument for a value that is out of range.
        """
        return Using(
            self,
            self.options.changed(
                key=key,
                key_until=key_until,
                run_at=run_at,
                delay=delay,
                priority=priority,
                queue=queue,
                max_attempts=max_attempts,
                retention=retention,
                connection=connection,
                own=own,
            ),
        )


class SyncTask(Task[P, R]):
    """A task that is a plain function; it runs in a thread."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.function(*args, **kwargs)
        return result


class AsyncTask(Task[P, R]):
    """A task that is a coroutine function; it runs on the worker's event loop."""

    is_async = True

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        coroutine: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
        return coroutine


class Using(Generic[P, R]):
    """A task with options for one enqueue. Made by `task.using(…)`."""

    def __init__(self, task: Task[P, R], options: Options) -> None:
        self._task = task
        self._options = options

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """See `Task.enqueue`."""
        return self._task.app.enqueue_call(self.call(*args, **kwargs))

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """See `Task.aenqueue`."""
        return await self._task.app.aenqueue_call(self.call(*args, **kwargs))

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """See `Task.call`."""
        return Call(self._task, self._options, args, kwargs)


class Call(Generic[R_co]):
    """A call of a task that is to become a job: what `app.enqueue_many` takes."""

    __slots__ = ("args", "kwargs", "options", "task")

    def __init__(self, task: Task[Any, R_co], options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.task = task
        self.options = options
        self.args = args
        self.kwargs = kwargs


#: How long `join` waits between two looks: from the first, doubling up to the last.
FIRST_LOOK = 0.02
LONGEST_LOOK = 1.0


class Job(Generic[R_co]):
    """A job that was enqueued. `created` is False when it is the first job with the same key."""

    __slots__ = ("_task", "created", "id")

    def __init__(self, task: Task[Any, R_co], job_id: int, created: bool) -> None:
        self._task = task
        self.id = job_id
        self.created = created

    @property
    def task(self) -> str:
        """The name of its task."""
        return self._task.name

    def __repr__(self) -> str:
        return f"<job {self.id} {self._task.name}{'' if self.created else ' (duplicate)'}>"

    def join(self, timeout: Seconds | None = None) -> R_co:
        """Wait until the job has ended and return its result, as the task's annotation says.

        By this machine's monotonic clock, for `timeout` seconds at most (None: for ever). Raises JobFailed,
        JobCancelled, StillRunning (also a TimeoutError), or JobNotFound when its row is gone: with a retention of
        0 there is nothing to wait for. A job enqueued in a transaction of yours is not there before its commit.
        """
        for pause in _pauses(timeout):
            ended, result, status = self._look()
            if ended:
                return cast("R_co", result)
            if pause is None:
                raise StillRunning(self.id, status)
            time.sleep(pause)
        raise AssertionError("the pauses end with None")

    async def ajoin(self, timeout: Seconds | None = None) -> R_co:
        """`join` for async code."""
        for pause in _pauses(timeout):
            ended, result, status = await asyncio.to_thread(self._look)
            if ended:
                return cast("R_co", result)
            if pause is None:
                raise StillRunning(self.id, status)
            await asyncio.sleep(pause)
        raise AssertionError("the pauses end with None")

    def _look(self) -> tuple[bool, Any, State]:
        app = self._task.app
        found = app.store.run(lambda: app.dialect.outcome(self.id))
        if found is None:
            raise JobNotFound(self.id)
        status, result, error = found
        if status is State.FAILED:
            raise JobFailed(self.id, error)
        if status is State.CANCELLED:
            raise JobCancelled(self.id, error)
        if status not in FINAL:
            return False, None, status
        return True, None if result is None else app.codec.load(result, self._task.signature.returns), status


def _pauses(timeout: Seconds | None) -> Any:
    """Yield how long to sleep before each next look; None when the time is over."""
    end = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
    pause = FIRST_LOOK
    while True:
        left = pause if end is None else end - time.monotonic()
        if left <= 0:
            yield None
            return
        yield min(pause, left)
        pause = min(pause * 1.5, LONGEST_LOOK)


def name_of(function: Callable[..., Any]) -> str:
    """Return `module.qualname`, the same whether the module was imported or run as a program."""
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None)
    if not module or not qualname:
        raise ConfigurationError(f"{function!r} has no name that a worker could find it by: give one with name=")
    if module in ("__main__", "__mp_main__"):  # the second is the program, imported in a process of its worker's
        program = sys.modules[module]
        spec = getattr(program, "__spec__", None)
        if spec is not None and spec.name:
            module = spec.name
        elif file := getattr(program, "__file__", None):
            module = Path(file).stem
    return f"{module}.{qualname}"
