"""`Dibs`: one queue in one database. Registers tasks, enqueues jobs, answers questions about them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

import msgspec

from dibs import ops
from dibs.bindings import bind, connector, is_async
from dibs.bindings.hints import NamingMigrate
from dibs.bulk import Bulk
from dibs.codec import Codec, JsonCodec
from dibs.dialects import EXAMPLE, Dialect, dialect_for, parse
from dibs.errors import (
    AutocommitConnection,
    ConfigurationError,
    InvalidArgument,
    JobNotFound,
    KeyTaken,
    UnsupportedConnection,
)
from dibs.jobs import Enqueued, JobRecord, NewJob
from dibs.limits import check_text
from dibs.ops import Op
from dibs.retries import Backoff
from dibs.settings import (
    LONGEST_QUEUE,
    MOST_PAYLOAD,
    MOST_RELEASES,
    WARN_PAYLOAD,
    Options,
    Seconds,
    integer,
    name,
)
from dibs.states import State
from dibs.store import Store
from dibs.tasks import AsyncTask, Call, Job, SyncTask, Task

if TYPE_CHECKING:
    from dibs.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

logger = logging.getLogger("dibs")

#: Where the database's URL is looked for when none is given.
VARIABLES = ("DIBS_DATABASE_URL", "DATABASE_URL")


class Dibs:
    """One queue in one database.

    Nothing is opened before it is needed, and what is opened is a few blocking connections per process. Safe to
    share between threads and to make before a fork.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        codec: Codec | None = None,
        notify: bool = True,
        max_payload: int = MOST_PAYLOAD,
        max_releases: int = MOST_RELEASES,
    ) -> None:
        """`url` is the database's; without one DIBS_DATABASE_URL or DATABASE_URL is read.

        - `codec`: how arguments and results become JSON; see `Codec`.
        - `notify=False`: enqueue does not wake waiting workers; they find jobs by polling.
        - `max_payload`: bytes of a job's arguments, at most. `max_releases`: how often a job may be released.

        Raises ConfigurationError when there is no URL or it is not one that dibs knows.
        """
        url = url or next((os.environ[variable] for variable in VARIABLES if os.environ.get(variable)), None)
        if not url:
            raise ConfigurationError(
                f'no database: write Dibs("{EXAMPLE}"), or set {" or ".join(VARIABLES)}. '
                "There is no default, so that a program that lacks its variable does not queue into a file of its own"
            )
        self.url = parse(url)
        self.codec: Codec = codec or JsonCodec()
        self.notify = notify
        self.max_payload = integer(max_payload, "max_payload", low=1, high=2**30)
        self.max_releases = integer(max_releases, "max_releases", low=0, high=1_000_000)
        self.tasks: dict[str, Task[Any, Any]] = {}
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        return f"<dibs {self.url}>"

    @cached_property
    def dialect(self) -> Dialect:
        """The SQL of this app's database."""
        return dialect_for(self.url)

    @cached_property
    def store(self) -> Store:
        """dibs' own connections for what this process asks; a worker has more of its own."""
        return self.new_store()

    def new_store(self, *, name: str = "dibs", size: int = 5, gap: float = 15.0) -> Store:
        """Return further connections of dibs' own, such as for one thread of a worker."""
        return Store(self.dialect, connector(self.url), name=name, size=size, gap=gap)

    def migrate(self) -> list[str]:
        """Make or update dibs' tables; return what was applied. Safe to run again, and by several at once.

        Raises ReadOnlyDatabase, UnsuitableDatabase, DatabaseUnavailable or DatabaseError.
        """
        return self.store.migrate()

    def close(self) -> None:
        """Close the idle connections of this process. The app can still be used."""
        self.store.close()

    # -- tasks -----------------------------------------------------------------------------------

    @overload
    def task(  # type: ignore[overload-overlap]  # a coroutine function is a function, too: the first one that fits counts
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
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        timeout: Seconds | None = None,
        retention: Seconds | None = None,
        key_until: str | None = None,
        backoff: Backoff | None = None,
    ) -> _Decorator: ...

    def task(self, function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any) -> Any:
        """Make a task of a function: `@app.task` or `@app.task(queue="exports", max_attempts=5)`.

        - `queue` ("default"), `priority` (0, higher first), `max_attempts` (12): what its jobs are written with.
        - `timeout`: seconds after which a run counts as failed. An async task is cancelled; a thread can't be: its
          code runs on, keeps its slot, and what it returns is dropped.
        - `retention`: how long a done or cancelled job is kept (1 day, 7 with a key; 0: deleted at once). A failed
          one is kept for 30 days at least.
        - `name`: instead of `module.qualname`. `backoff`: how long to wait between attempts.

        Raises ConfigurationError when the name is taken, InvalidArgument for an option that is out of range.
        """
        if function is not None:
            return self._register(function, name, Options())
        checked = Options().changed(**options)
        return lambda later: self._register(later, name, checked)

    def _register(self, function: Callable[..., Any], task_name: str | None, options: Options) -> Task[Any, Any]:
        if isinstance(function, Task):
            raise ConfigurationError(f"{function!r} is a task already: decorate a function once")
        kind: type[Task[Any, Any]] = AsyncTask if asyncio.iscoroutinefunction(function) else SyncTask
        task = kind(self, function, options, task_name)
        taken = self.tasks.get(task.name)
        if taken is not None:
            raise ConfigurationError(
                f"a task named {task.name!r} is registered already ({_place(taken.function)}): "
                f"give {_place(function)} another name with @app.task(name=…)"
            )
        self.tasks[task.name] = task
        return task

    # -- enqueue ---------------------------------------------------------------------------------

    def enqueue_call(self, call: Call[R]) -> Job[R]:
        """Write one call as a job; what `task.enqueue` does."""
        new = self.new_job(call)
        (job,) = self.run_on(
            call.options.connection,
            lambda: self.enqueue_op([new]),
            once=new.task_key is None,
            together=self.takes_transaction([new]),
        )
        return self.handle(call.task, new, job)

    async def aenqueue_call(self, call: Call[R]) -> Job[R]:
        """`enqueue_call` for async code."""
        new = self.new_job(call)
        (job,) = await self.arun_on(
            call.options.connection,
            lambda: self.enqueue_op([new]),
            once=new.task_key is None,
            together=self.takes_transaction([new]),
        )
        return self.handle(call.task, new, job)

    def enqueue_many(self, calls: Iterable[Call[Any]], *, connection: Any = None) -> list[Job[Any]]:
        """Write many calls as jobs: all or none of them; return the jobs in the order of the calls.

        `calls` may be a generator; it is read in chunks. Of two equal keys in one call the second is a duplicate.
        Raises InvalidArgument that names the call that does not fit, as `[15000].order_id`; nothing is stored then.
        On a connection of yours in autocommit mode more than one chunk is refused (AutocommitConnection).
        """
        bulk = Bulk(self, calls, connection)
        return bulk.jobs(self.run_on(bulk.connection, bulk.op, once=bulk.once, together=bulk.together))

    async def aenqueue_many(self, calls: Iterable[Call[Any]], *, connection: Any = None) -> list[Job[Any]]:
        """`enqueue_many` for async code."""
        bulk = Bulk(self, calls, connection)
        return bulk.jobs(await self.arun_on(bulk.connection, bulk.op, once=bulk.once, together=bulk.together))

    def enqueue_op(self, jobs: Sequence[NewJob]) -> Op[list[Enqueued]]:
        return self.dialect.enqueue(jobs, tell=self.notify)

    def takes_transaction(self, jobs: Sequence[NewJob]) -> str | None:
        """Name what takes a transaction in writing these jobs, if anything does."""
        keyed = self.dialect.keys_take_a_transaction and any(job.task_key is not None for job in jobs)
        return "an enqueue with a key" if keyed else None

    def new_job(self, call: Call[Any]) -> NewJob:
        """Check and encode a call; nothing has been sent to a database when this raises."""
        task, options = call.task, call.options
        if task.app is not self:
            raise ConfigurationError(f"{task!r} belongs to {task.app!r}, not to {self!r}")
        payload = task.signature.dump(call.args, call.kwargs).encode()
        if len(payload) > self.max_payload:
            raise InvalidArgument(
                "",
                f"the arguments of {task.name} are {len(payload):,} bytes long, the most is {self.max_payload:,}: "
                "store the data elsewhere and pass a reference, or raise Dibs(max_payload=…)",
            )
        if len(payload) > WARN_PAYLOAD:
            self.warn_once(
                f"payload {task.name}",
                "arguments of %s are %d bytes long: a reference is lighter on the queue",
                task.name,
                len(payload),
            )
        return NewJob(
            queue=options.queue,
            task=task.name,
            payload=msgspec.Raw(payload),
            priority=options.priority,
            max_attempts=options.max_attempts,
            task_key=options.key,
            key_until=options.key_until,
            run_at=options.run_at,
            delay=options.delay,
            retention=options.retention,
        )

    def handle(self, task: Task[Any, R], new: NewJob, enqueued: Enqueued) -> Job[R]:
        if enqueued.differs:
            logger.warning(
                "%s with key %r is a duplicate of job %d, which has other arguments: nothing was enqueued",
                task.name,
                new.task_key,
                enqueued.id,
            )
        elif not enqueued.created:
            logger.info("%s with key %r is a duplicate of job %d", task.name, new.task_key, enqueued.id)
        return Job(task, enqueued.id, enqueued.created)

    def warn_once(self, about: str, message: str, *values: object) -> None:
        """Log a warning the first time in this process that there is one about this."""
        if about not in self._warned:
            self._warned.add(about)
            logger.warning(message, *values)

    # -- on whose connection ---------------------------------------------------------------------

    def run_on(
        self, connection: Any, make: Callable[[], Op[T]], *, once: bool = False, together: str | None = None
    ) -> T:
        """Run an op in the transaction of the user's connection, or in one of dibs' own where there is none.

        `together` names what must not be committed statement by statement, if that is so.
        """
        if connection is None:
            return self.store.run(make, once=once)
        binding = bind(connection)
        if is_async(binding):
            raise UnsupportedConnection(
                f"{type(connection).__name__} is an async connection: await the call with the a in front (aenqueue)"
            )
        self._check_family(binding.family, connection)
        if together and binding.commits_alone:
            raise AutocommitConnection(together)
        with NamingMigrate():
            return ops.run(make(), binding)

    async def arun_on(
        self, connection: Any, make: Callable[[], Op[T]], *, once: bool = False, together: str | None = None
    ) -> T:
        """`run_on` for async code; an op on dibs' own connection runs in a thread."""
        if connection is None:
            return await asyncio.to_thread(self.store.run, make, once=once)
        binding = bind(connection)
        if not is_async(binding):
            raise UnsupportedConnection(
                f"{type(connection).__name__} is a blocking connection: call it without the a in front (enqueue)"
            )
        self._check_family(binding.family, connection)
        if together and await binding.commits_alone():
            raise AutocommitConnection(together)
        with NamingMigrate():
            return await ops.arun(make(), binding)

    def _check_family(self, family: str, connection: Any) -> None:
        if family != self.dialect.family:
            raise UnsupportedConnection(
                f"{type(connection).__name__} is a connection to another kind of database than {self.url}"
            )

    # -- questions and orders --------------------------------------------------------------------

    def job(self, job_id: int) -> JobRecord:
        """Look one job up. Raises JobNotFound."""
        _ids(job_id)
        found = self.store.run(lambda: self.dialect.find(job_id))
        if found is None:
            raise JobNotFound(job_id)
        return found

    def jobs(
        self, *, status: str | None = None, queue: str | None = None, limit: int = 100, before: int = 2**62
    ) -> list[JobRecord]:
        """Look the newest jobs up, newest first; `before` an id, to go on from the last page."""
        if status is not None and status not in list(State):
            raise InvalidArgument("status", f"is one of {', '.join(State)}, not {status!r:.40}")
        _ids(before)
        integer(limit, "limit", low=0, high=1_000_000)
        return self.store.run(
            lambda: self.dialect.list_jobs(status=status and str(status), queue=queue, before=before, limit=limit)
        )

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

        Their attempts start from 0. Ids that are missing from the answer were in another status. Raises KeyTaken
        when another job holds the key of some by now; the others have been requeued then.
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

    # -- work ------------------------------------------------------------------------------------

    def worker(self, **settings: Any) -> Worker:
        """Return a worker for this app's tasks; see `Worker` for its settings. `run()` it in any thread."""
        from dibs.worker.worker import Worker

        return Worker(self, **settings)


class _Decorator:
    """What `@app.task(…)` is to a type checker: it keeps the function's signature."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    def __call__(self, function: Any, /) -> Any: ...


#: Ids in one statement, at most: beyond some thousands optimizers give up the index.
ID_BATCH = 1_000


def _batches(job_ids: int | Iterable[int]) -> list[list[int]]:
    """Return ids in order, each once, in lists fit for one statement."""
    ids = _ids(job_ids)
    return [ids[start : start + ID_BATCH] for start in range(0, len(ids), ID_BATCH)]


def _ids(job_ids: int | Iterable[int]) -> list[int]:
    ids = [job_ids] if isinstance(job_ids, int) else list(job_ids)
    for job_id in ids:
        integer(job_id, "job id", low=0, high=2**63 - 1)
    return sorted(set(ids))


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    place = getattr(function, "__qualname__", repr(function))
    return f"{place}, {code.co_filename}:{code.co_firstlineno}" if code else place


def _whoami() -> str:
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no such user here, as in many containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
