"""`Dibs`: one queue in one database. Registers tasks and enqueues jobs; what it is asked and told is in `orders`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from dibs import written
from dibs.ambient import remember
from dibs.bulk import Bulk
from dibs.codec import Codec, JsonCodec
from dibs.connections import Connections
from dibs.errors import ConfigurationError, InvalidArgument
from dibs.hooks import Draft, Hooks, Lifespan
from dibs.jobs import Enqueued, NewJob
from dibs.loop import loop_runs_here
from dibs.ops import Op
from dibs.orders import Orders
from dibs.places import Place
from dibs.registry import Registry, Tasks
from dibs.retries import MISFIT_WAIT
from dibs.secrets import stamped, without
from dibs.settings import MOST_PAYLOAD, MOST_RELEASES, WARN_PAYLOAD, Seconds, integer, seconds
from dibs.tasks import Call, Job, Task

if TYPE_CHECKING:
    from dibs.worker.worker import Worker, WorkerSettings

R = TypeVar("R")

logger = logging.getLogger("dibs")


class Dibs(Orders, Hooks):
    """One queue in one database.

    Nothing is opened before it is needed, and what is opened is a few blocking connections per process. Safe to
    share between threads and to make before a fork.
    """

    def __init__(
        self,
        url: str | Any = None,
        *,
        password: Callable[[], str] | None = None,
        schema: str | None = None,
        prefix: str = "",
        connection: Callable[[], Any] | None = None,
        imports: Sequence[str] = (),
        codec: Codec | None = None,
        notify: bool = True,
        max_payload: int = MOST_PAYLOAD,
        max_releases: int = MOST_RELEASES,
        misfit_wait: Seconds = MISFIT_WAIT,
        lifespan: Lifespan | None = None,
        scrub: Callable[[str], str] | None = None,
        inline: bool = False,
    ) -> None:
        """`url` is the database's; without one DIBS_DATABASE_URL or DATABASE_URL is read.

        It may be a string or a URL object of SQLAlchemy's, and have a driver's name in it, which is ignored. Or a
        function that answers the parsed URL, asked anew each time: where a framework knows it, and may change it.

        - `password`: asked for the password at each connect, for tokens that expire.
        - `schema`: where dibs' tables are, instead of the usual place. `prefix`: comes before their names, for
          several queues in one schema. Both must be the same for all that work on a queue.
        - `connection`: answers your connection or session of this moment, or None. A bare enqueue joins its
          transaction, if one has begun there and it is in this database.
        - `imports`: modules that define tasks; a worker imports them.
        - `codec`: how arguments and results become JSON; see `Codec`.
        - `notify=False`: enqueue does not wake waiting workers; they find jobs by polling.
        - `max_payload`: bytes of a job's arguments, at most. `max_releases`: how often a job may be released.
        - `misfit_wait` (seconds or timedelta): how long a job whose arguments do not fit this code is released again
          and again, for workers of another version, before it fails. 0: it fails at once.
        - `lifespan`: an async context manager, `lifespan(app)`, that a worker enters on the loop of async tasks
          before its first job and leaves after its last. What it yields is `app.state`, `current_job().state`.
        - `scrub`: is given each error's text and returns what may be stored and logged of it.
        - `inline=True`: NOT FOR PRODUCTION. `enqueue` writes the job and runs it at once, in this thread and whenever
          it is due, once: before your commit, and without retries. For a first look and for simple tests; see
          docs/testing.md.

        Raises ConfigurationError when there is no URL or it is not one that dibs knows.
        """
        Registry.__init__(self)
        Connections.__init__(self, url, password=password, schema=schema, prefix=prefix, connection=connection)
        Hooks.__init__(self, lifespan=lifespan, scrub=scrub)
        self._imports = [imports] if isinstance(imports, str) else list(imports)
        self.codec: Codec = codec or JsonCodec()
        self.notify = notify
        #: Does `enqueue` run the job at once? Not for production.
        self.inline = inline
        self.max_payload = integer(max_payload, "max_payload", low=1, high=2**30)
        self.max_releases = integer(max_releases, "max_releases", low=0, high=1_000_000)
        self.misfit_wait = seconds(misfit_wait, "misfit_wait", high=30 * 86_400.0)
        self._warned: set[str] = set()
        #: Where another process can import this app from: `module:attribute`, or `module:function` that makes it.
        #: Only for tasks with `runs_in="process"`, and only where it is in no module's variable.
        self.place: str | None = None

    def __repr__(self) -> str:
        return f"<dibs {self.url}>"

    # -- tasks -----------------------------------------------------------------------------------

    def _add(self, task: Task[Any, Any]) -> None:
        super()._add(task)
        try:
            task.belong_to(self)
        except BaseException:
            del self.tasks[task.name]
            raise

    def include(self, tasks: Tasks) -> None:
        """Take over the tasks of a `Tasks`. Raises ConfigurationError when a name is taken."""
        for task in tasks:
            self._add(task)

    def load(self) -> None:
        """Import the modules of `Dibs(imports=…)`, which register their tasks. A worker does it when it starts."""
        while self._imports:
            import_module(self._imports.pop(0))

    # -- enqueue ---------------------------------------------------------------------------------

    def enqueue_call(self, call: Call[R]) -> Job[R]:
        """Write one call as a job; what `task.enqueue` does."""
        new, connection = self.new_job(call), self.whose(call.options)
        (enqueued,) = self.run_on(
            connection,
            lambda: self.enqueue_op([new]),
            once=new.task_key is None,
            together=self.takes_transaction([new]),
        )
        (job,) = self._written(connection, [self.handle(call.task, new, enqueued)])
        return job

    async def aenqueue_call(self, call: Call[R]) -> Job[R]:
        """`enqueue_call` for async code."""
        new, connection = self.new_job(call), self.whose(call.options)
        (enqueued,) = await self.arun_on(
            connection,
            lambda: self.enqueue_op([new]),
            once=new.task_key is None,
            together=self.takes_transaction([new]),
        )
        (job,) = await self._awritten(connection, [self.handle(call.task, new, enqueued)])
        return job

    def enqueue_many(self, calls: Iterable[Call[Any]], *, connection: Any = None) -> list[Job[Any]]:
        """Write many calls as jobs: all or none of them; return the jobs in the order of the calls.

        `calls` may be a generator; it is read in chunks. Of two equal keys in one call the second is a duplicate.
        Raises InvalidArgument that names the call that does not fit, as `[15000].order_id`; nothing is stored then.
        On a connection of yours in autocommit mode more than one chunk is refused (AutocommitConnection).
        """
        bulk = Bulk(self, calls, connection)
        answers = self.run_on(bulk.connection, bulk.op, once=bulk.once, together=bulk.together)
        return self._written(bulk.connection, bulk.jobs(answers))

    async def aenqueue_many(self, calls: Iterable[Call[Any]], *, connection: Any = None) -> list[Job[Any]]:
        """`enqueue_many` for async code."""
        bulk = Bulk(self, calls, connection)
        answers = await self.arun_on(bulk.connection, bulk.op, once=bulk.once, together=bulk.together)
        return await self._awritten(bulk.connection, bulk.jobs(answers))

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
        meta = None
        if self._on_enqueue:
            draft = Draft(task.name, options.queue, options.key, options.priority, options.run_at, options.delay)
            meta = self.meta_of(draft)
        if task.signature.has_secrets:
            meta = stamped(meta, task.signature.secrets_in(call.kwargs))
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
            meta=meta,
        )

    def handle(self, task: Task[Any, R], new: NewJob | None, enqueued: Enqueued) -> Job[R]:
        """Tell of a job that was written, and return it. Without `new` it is one of many that nobody wants to hear of."""
        if new is not None and not enqueued.created:
            key = new.task_key or ""
            if task.signature.has_secrets:  # a key may have been made of one
                key = without(key, bytes(new.payload), task.signature.is_secret)
            if enqueued.differs:
                logger.warning(
                    "%s with key %r is a duplicate of job %d, which has other arguments: nothing was enqueued",
                    task.name,
                    key,
                    enqueued.id,
                )
            else:
                logger.info("%s with key %r is a duplicate of job %d", task.name, key, enqueued.id)
        if new is not None and self.events.handlers:
            self.events.tell_enqueued(new, enqueued)
        for tell in written.recorders:
            tell(self, enqueued.id, task.name)
        return Job(task, enqueued.id, enqueued.created)

    def _written(self, connection: Any, jobs: list[Job[R]]) -> list[Job[R]]:
        """See to jobs that have just been written, over this connection (None: committed on one of dibs' own)."""
        if connection is not None:
            remember(self, connection, [(job.id, job.task) for job in jobs if job.created])
        if not self.inline:
            return jobs
        from dibs.worker.inline import run_inline

        return run_inline(self, connection, jobs)

    async def _awritten(self, connection: Any, jobs: list[Job[R]]) -> list[Job[R]]:
        if connection is not None:
            remember(self, connection, [(job.id, job.task) for job in jobs if job.created])
        if not self.inline:
            return jobs
        from dibs.worker.inline import arun_inline

        return await arun_inline(self, connection, jobs)

    def task_context(self) -> Context:
        """Return what a task that is run here and now runs in: an empty context, as in a worker."""
        return Context()

    def run_coroutine(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine to its end, in this thread, where no loop runs: an async task that is run here and now."""
        if not loop_runs_here():
            return asyncio.run(coroutine)
        with ThreadPoolExecutor(1) as thread:  # the loop of this one waits meanwhile, as for everything that blocks
            return thread.submit(asyncio.run, coroutine).result()

    async def ask(self, place: Place, make: Callable[[], Op[R]]) -> R:
        """Run an op there from async code that runs in the thread to which the connection belongs."""
        return await place.arun(make)

    async def in_thread(self, function: Callable[[], R]) -> R:
        """Call what blocks from async code: a sync task that is run here and now."""
        return await asyncio.to_thread(function)

    def warn_once(self, about: str, message: str, *values: object) -> None:
        """Log a warning the first time in this process that there is one about this."""
        if about not in self._warned:
            self._warned.add(about)
            logger.warning(message, *values)

    # -- work ------------------------------------------------------------------------------------

    def worker(self, **settings: Unpack[WorkerSettings]) -> Worker:
        """Return a worker for this app's tasks; see `Worker` for its settings. `run()` it in any thread."""
        from dibs.worker.worker import Worker

        return Worker(self, **settings)
