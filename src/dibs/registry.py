"""`Tasks`: tasks that are registered before there is an app, for reusable packages and application factories.

tasks = Tasks(prefix="billing.")

@tasks.task
def charge(order_id: int) -> None: ...

app.include(tasks)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from dibs.errors import ConfigurationError
from dibs.hooks import Around, around_of
from dibs.retries import Backoff
from dibs.settings import KeyUntil, Options, RunsIn, Seconds
from dibs.tasks import AsyncTask, SyncTask, Task

if TYPE_CHECKING:
    from dibs.running import CurrentJob

P = ParamSpec("P")
R = TypeVar("R")
#: What `around` takes: one `yield` where the run is, or a context manager made of that.
F = TypeVar(
    "F",
    bound="Callable[[CurrentJob], Iterator[Any] | AsyncIterator[Any] | AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]",
)


class Decorator:
    """What `@task(…)` is to a type checker: it keeps the function's signature."""

    def __init__(self, register: Callable[[Callable[..., Any]], Task[Any, Any]]) -> None:
        self._register = register

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    def __call__(self, function: Any, /) -> Any:
        return self._register(function)


class Registry:
    """Something that tasks can be registered with."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task[Any, Any]] = {}
        #: What a task here has unless it says otherwise.
        self.defaults = Options()
        #: The hooks around the runs of these tasks; of an app's, around those of all.
        self.arounds: list[Around] = []

    def around(self, function: F) -> F:
        """Call a function around each run: `def` or `async def`, it takes the job and has one `yield`.

        On an app around the runs of all its tasks, on a `Tasks` around those of its own, inside the app's; several
        nest in the order in which they are registered. A `def` goes around sync tasks, in their thread, and around
        async ones, on their loop (which it must not block); an `async def` around async tasks alone. The job is
        `current_job()`.

        - An exception of the task's comes out of the `yield`. It can't be swallowed; a signal (`Retry`, `Release`,
          `Fail`, `Cancel`) that is raised in its place steers the job.
        - An error before the `yield` fails the run like one of the task's own. One after it is logged; a run that
          returned is done.

        Raises ConfigurationError for a function without a `yield`.
        """
        self.arounds.append(around_of(function))
        return function

    @overload
    def task(  # type: ignore[overload-overlap]  # a coroutine function is a function, too: the first that fits counts
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        aliases: tuple[str, ...] | list[str] = (),
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        timeout: Seconds | None = None,
        retention: Seconds | None = None,
        key_until: KeyUntil | None = None,
        backoff: Backoff | None = None,
        retry_on: type[BaseException] | tuple[type[BaseException], ...] | None = None,
        fail_on: type[BaseException] | tuple[type[BaseException], ...] | None = None,
        runs_in: RunsIn | None = None,
    ) -> Decorator: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        aliases: tuple[str, ...] | list[str] = (),
        **options: Any,
    ) -> Any:
        """Make a task of a function: `@app.task` or `@app.task(queue="exports", max_attempts=5)`.

        - `queue` ("default"), `priority` (0, higher first), `max_attempts` (12): what its jobs are written with.
        - `timeout`: seconds after which a run counts as failed. An async task is cancelled, a process is killed; a
          thread can't be: its code runs on, keeps its slot, and what it returns is dropped.
        - `retention`: how long a done or cancelled job is kept (1 day, 7 with a key; 0: deleted at once). A failed
          one is kept for 30 days at least.
        - `backoff`: how long to wait between attempts. `fail_on`: exceptions that fail the job at once;
          `retry_on`: the only ones that are retried. A subclass counts; `fail_on` goes first.
        - `runs_in`: "thread" (what a function does unless said), "loop" (an `async def`), or "process": for work
          that would hold up the others, and for timeouts that end the code.
        - `name`: instead of `module.qualname`. `aliases`: names it had before; jobs written under them are run.

        Raises ConfigurationError when a name is taken, InvalidArgument for an option that is out of range.
        """
        if function is not None:
            return self._register(function, name, (), self.defaults)
        checked = self.defaults.changed(**options)
        return Decorator(lambda later: self._register(later, name, tuple(aliases), checked))

    def _register(
        self, function: Callable[..., Any], name: str | None, aliases: tuple[str, ...], options: Options
    ) -> Task[Any, Any]:
        if isinstance(function, Task):
            raise ConfigurationError(f"{function!r} is a task already: decorate a function once")
        kind: type[Task[Any, Any]] = AsyncTask if asyncio.iscoroutinefunction(function) else SyncTask
        task = kind(function, options, name, aliases)
        task.arounds = self.arounds
        self._add(task)
        return task

    def _add(self, task: Task[Any, Any]) -> None:
        for name in (task.name, *task.aliases):
            if (taken := self._named(name)) is not None:
                raise ConfigurationError(
                    f"a task named {name!r} is registered already ({_place(taken.function)}): "
                    f"give {_place(task.function)} another name with @app.task(name=…)"
                )
        self.tasks[task.name] = task

    def task_named(self, task_name: str) -> Task[Any, Any] | None:
        """Return the task that runs jobs written under this name, which may be one it had before."""
        return self.tasks.get(task_name) or self._named(task_name)

    def _named(self, name: str) -> Task[Any, Any] | None:
        return next((task for task in self.tasks.values() if name == task.name or name in task.aliases), None)


class Tasks(Registry):
    """Tasks without an app yet. `app.include(tasks)` gives them one; enqueue before that is an error that says so.

    `prefix` comes before the names that are not given in full: the function's qualified name.
    """

    def __init__(self, prefix: str | None = None) -> None:
        super().__init__()
        self._prefix = prefix

    def __iter__(self) -> Iterator[Task[Any, Any]]:
        return iter(self.tasks.values())

    def _register(
        self, function: Callable[..., Any], name: str | None, aliases: tuple[str, ...], options: Options
    ) -> Task[Any, Any]:
        if self._prefix is not None and not isinstance(function, Task):
            name = self._prefix + (name if name is not None else getattr(function, "__qualname__", ""))
            aliases = tuple(alias if "." in alias else self._prefix + alias for alias in aliases)
        return super()._register(function, name, aliases, options)


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    place = getattr(function, "__qualname__", repr(function))
    return f"{place}, {code.co_filename}:{code.co_firstlineno}" if code else place
