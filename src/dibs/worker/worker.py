"""The worker: puts its parts together, runs until stopped, and takes them apart again in order."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypedDict

from dibs.app import Dibs
from dibs.errors import (
    ConfigurationError,
    DatabaseError,
    DatabaseUnavailable,
    DibsError,
    InvalidArgument,
    ReadOnlyDatabase,
)
from dibs.jobs import Expired
from dibs.logs import mark_records
from dibs.loop import TaskLoop
from dibs.privileges import needed_by_worker
from dibs.settings import LONGEST_LEASE, LONGEST_QUEUE, Seconds, integer, name, seconds
from dibs.store import Store
from dibs.worker.allowance import Allowance
from dibs.worker.fetcher import Fetcher
from dibs.worker.health import Health
from dibs.worker.leases import Leases, patience_for
from dibs.worker.lifespan import Lifespan
from dibs.worker.metrics import WorkerMetrics
from dibs.worker.outage import LONGEST_PAUSE, Outage
from dibs.worker.places import hello_for, inside_a_process
from dibs.worker.processes import ProcessSlots
from dibs.worker.register import Registration, View, detail_of, entry_of
from dibs.worker.runs import Holdings
from dibs.worker.signals import heed
from dibs.worker.slots import MOST_AHEAD, LoopSlots, Slots, ThreadSlots, choked, stuck_slots
from dibs.worker.tally import Tally
from dibs.worker.telling import tell_expired
from dibs.worker.upkeep import Upkeep, gap_for
from dibs.worker.wakeups import Wakeups

logger = logging.getLogger("dibs")

THREADS = 10
ASYNC_SLOTS = 100
LEASE = 60.0
GRACE = 25.0

#: An idle worker that hears no notifications polls at least this often (seconds).
DEAF_POLL = 0.5


class WorkerSettings(TypedDict, total=False):
    """What `app.worker(…)` takes, as type checkers read it; what it means is said below."""

    queues: list[str] | tuple[str, ...] | dict[str, int] | None
    concurrency: int | None
    ahead: int
    lease: Seconds
    grace: Seconds
    burst: bool
    max_jobs: int | None
    max_memory: int | None
    max_age: Seconds | None


class Worker:
    """Runs the jobs of an app's tasks. Made by `app.worker(…)`; `run()` it in any thread, once.

    Or `start()` it in a thread of its own, inside of another program; `with` and `async with` start it, and stop it in
    the end.
    """

    def __init__(
        self,
        app: Dibs,
        *,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        concurrency: int | None = None,
        ahead: int = MOST_AHEAD,
        lease: Seconds = LEASE,
        grace: Seconds = GRACE,
        burst: bool = False,
        max_jobs: int | None = None,
        max_memory: int | None = None,
        max_age: Seconds | None = None,
    ) -> None:
        """Check the settings; nothing is opened yet.

        - `queues`: only these, in this order: the second is looked at when the first has nothing due. With weights,
          `{"mail": 3, "exports": 1}`, each is the first to be claimed from as often as its weight says, so that none
          starves. Without them all queues, in turns.
        - `concurrency`: jobs at a time: threads for sync tasks (10), as many on the event loop for async ones (100),
          and as many processes for tasks that run in one (as the machine has processors).
        - `ahead`: jobs claimed ahead, at most: those that the slots will start within a quarter of a second, and no more
          than this. With 0 only what goes straight into a free slot is claimed.
        - `lease` (seconds or timedelta, at least 1): how long a claim is good without being renewed. It is renewed
          every third of it. A job of a killed worker is claimed again within two leases.
        - `grace`: how long `stop()` lets running jobs go on before they are released.
        - `burst`: end when nothing is due, nothing runs here, and no lease is past.
        - `max_jobs`: end when so many runs have begun and ended; no more are claimed.
        - `max_memory` (bytes): end, as by `stop()`, when this process and those of its tasks take more.
        - `max_age`: end, as by `stop()`, after this time, or up to a tenth earlier.

        Raises InvalidArgument for a setting out of range, ConfigurationError when the app has no tasks, or has tasks
        for processes and a process could not import it.
        """
        app.load()
        if not app.tasks:
            raise ConfigurationError(
                "this app has no tasks: import the modules that define them before the worker starts"
            )
        if any(task.runs_in == "process" for task in app.tasks.values()):
            hello_for(app, "")
        if isinstance(queues, str):
            raise InvalidArgument("queues", "takes a list of names")
        self.app = app
        self.queues = None if queues is None else [name(queue, "queue", longest=LONGEST_QUEUE) for queue in queues]
        self.weights: dict[str, int] | None = None
        if isinstance(queues, Mapping):
            self.weights = {
                queue: integer(each, f"queues[{queue!r}]", low=1, high=1000) for queue, each in queues.items()
            }
        if concurrency is not None:
            integer(concurrency, "concurrency", low=1, high=10_000)
        self.concurrency = concurrency
        self.ahead = integer(ahead, "ahead", low=0, high=10_000)
        self.lease = seconds(lease, "lease", low=1.0, high=LONGEST_LEASE)
        self.grace = seconds(grace, "grace", high=86_400.0)
        self.burst = burst
        self.max_jobs = None if max_jobs is None else integer(max_jobs, "max_jobs", low=1, high=2**62)
        self.max_memory = None if max_memory is None else integer(max_memory, "max_memory", low=2**20, high=2**62)
        self.max_age = None if max_age is None else seconds(max_age, "max_age", low=1.0)
        #: Who it is in `lease_owner`: unique also where process ids come again.
        self.name = _name()
        #: Whether it is live and ready, for probes: `health.live()` and `health.ready()`.
        self.health = Health(self.name)
        #: What it counts, for whoever shows metrics.
        self.metrics = WorkerMetrics()
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._done = threading.Event()
        self._fetcher: Fetcher | None = None
        self._make_fetcher: Callable[..., Fetcher] = Fetcher
        self._failure: BaseException | None = None
        self._ended_with: BaseException | None = None

    def run(self, *, signals: bool = False) -> None:
        """Work until `stop()` is called, or in a burst until there is nothing left.

        With `signals` (in the main thread only) SIGTERM and SIGINT stop it, and a second one ends the process at
        once. While the database cannot be reached, or takes no writes, it waits. Raises SchemaError, MissingPrivilege or
        UnsuitableDatabase when it finds a database that it cannot work on at the start; also later, after it has
        stopped, CodeTooOld when the tables were migrated to what this code is too old for, and MissingPrivilege.
        """
        if inside_a_process():
            raise ConfigurationError(
                "the program starts a worker when it is imported, and a process that runs its tasks imports it: "
                'start it under `if __name__ == "__main__":`'
            )
        if os.getpid() != self._process:  # made before a fork: each process needs a name of its own
            self._process, self.name = os.getpid(), _name()
            self.health.name = self.name
        mark_records()
        restore = heed(self.stop) if signals else None
        try:
            self._run()
        except BaseException:
            self.health.failed()
            raise
        finally:
            if restore is not None:
                restore()

    def stop(self) -> None:
        """Claim no more, give back what has not begun, let what runs end within the grace, then return from `run`.

        May be called from any thread, and from a signal handler.
        """
        self._stopping.set()
        self.health.stops()
        if self._fetcher is not None:
            self._fetcher.stop(grace=self.grace)

    # -- inside of another program ---------------------------------------------------------------------

    def start(self) -> None:
        """Run in a thread of this process, once. Signals are left to the program: it calls `stop()` and `join()`.

        Where it does not, the end of the process does, if it ends by itself (not by a signal that nobody heeds). In a
        process that runs a worker's tasks, and imports the program for that, nothing is started.
        """
        if inside_a_process():
            return
        if self._thread is not None:
            raise DibsError("this worker has been started already: make another one")
        self._thread = threading.Thread(target=self._run_and_tell, name="dibs-embedded", daemon=True)
        self._thread.start()
        atexit.register(self._leave)

    def join(self) -> None:
        """Wait until a worker that was started has ended; raise what `run` raised."""
        if self._thread is not None:
            self._thread.join()
            atexit.unregister(self._leave)
        if self._ended_with is not None:
            raise self._ended_with

    def _run_and_tell(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever joins
            self._ended_with = error
            logger.error("worker %s has ended with an error: %s", self.name, error)

    def _leave(self) -> None:
        if self._thread is not None and self._process == os.getpid():  # of a parent's thread a fork has nothing
            self.stop()
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.join()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        await asyncio.to_thread(self.join)

    # -- the run ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        stores: list[Store] = []

        def store(part: str, *, gap: float = 15.0) -> Store:
            stores.append(made := self.app.new_store(name=f"dibs {part}", size=1, gap=gap))
            made.admit, made.by_index = outage.admit, True
            if part != "upkeep":  # what it deletes may take its time
                made.patience = patience_for(self.lease)
            return made

        def distrust() -> None:
            for each in stores:
                each.distrust()

        outage = Outage(longest_pause=min(LONGEST_PAUSE, self.lease / 3), distrust=distrust, refused=self._refused)
        self.health.begins(outage)
        if not self._database_is_there(outage):
            return
        holdings = Holdings()

        fetcher = self._make_fetcher(
            self.app,
            store("worker"),
            worker=self.name,
            lease=self.lease,
            queues=self.queues,
            weights=self.weights,
            holdings=holdings,
            outage=outage,
            burst=self.burst,
            idle_poll=self.app.dialect.idle_poll.total_seconds(),
            settles=None if self.app.dialect.one_writer else store("settler"),
            scouts=store("scout"),
            most_jobs=self.max_jobs,
        )
        fetcher.serve(self._slots(fetcher))
        allowance = Allowance(
            memory=self.max_memory,
            age=self.max_age,
            processes=lambda: [os.getpid(), *(pid for slots in fetcher.slots for pid in slots.processes)],
        )
        loop = next((slots.loop for slots in fetcher.slots if isinstance(slots, LoopSlots)), None) or TaskLoop()
        lifespan = Lifespan(self.app, loop, worker=self.name, broke=self._fail)
        leases = Leases(store("leases"), holdings, outage, worker=self.name, lease=self.lease)
        upkeep_store = store("upkeep", gap=gap_for(self.lease))
        self.metrics.works(fetcher.tally, fetcher.slots, holdings, lambda: self.app.events.dropped)
        tell = partial(self._tell_expired, fetcher.tally)
        upkeep = Upkeep(
            upkeep_store,
            outage,
            lease=self.lease,
            woke=fetcher.wake,
            tell=tell,
            refused=self._refused,
            registration=self._registration(upkeep_store, fetcher, holdings, stores),
        )
        parts: list[Leases | Upkeep | Wakeups] = [leases, upkeep]
        if self.app.dialect.channel is not None and self.app.notify:
            listening = store("wakeups")
            parts.append(Wakeups(listening, fetcher.wake, lambda: fetcher.poll_at_least_every(DEAF_POLL)))
        self.app.events.loop, loop_before = loop, self.app.events.loop
        try:
            if lifespan.enter(self._stopping):
                beats = {**fetcher.beats, "leases": leases.beat, "upkeep": upkeep.beat}
                self.health.works(
                    stores,
                    beats,
                    claiming=fetcher.claiming,
                    stuck=partial(stuck_slots, fetcher.slots),
                    choked=partial(choked, fetcher.slots),
                )
                self._work(fetcher, parts, allowance)
        finally:
            self.health.ended()
            self.app.events.flush()
            lifespan.leave()
            self.app.events.loop = loop_before
            for slots in fetcher.slots:
                slots.close()
            loop.close()
            for each in stores:
                each.close()
        logger.info("worker %s has stopped", self.name)
        if self._failure is not None:
            raise self._failure

    def _work(self, fetcher: Fetcher, parts: Sequence[Leases | Upkeep | Wakeups], allowance: Allowance) -> None:
        """Start the parts, wait until the fetcher has ended, and end the others."""
        self._fetcher = fetcher
        if self._stopping.is_set():
            fetcher.stop(grace=self.grace)
        thread = threading.Thread(target=self._fetch, args=(fetcher,), name="dibs-fetcher", daemon=True)
        logger.info(
            "worker %s works on %s: %s",
            self.name,
            self.app.url,
            ", ".join(self.queues) if self.queues else "all queues",
        )
        for part in parts:
            part.start()
        thread.start()
        # In short waits: a signal's handler runs in the main thread, between two of them at the latest.
        while not self._done.wait(0.5):
            fetcher.summary.tell()
            if not self._stopping.is_set() and (reason := allowance.exceeded()):
                logger.info("worker %s ends: %s", self.name, reason)
                self.stop()
        for part in reversed(parts):
            part.close()
        fetcher.summary.tell(now=True)

    def _fetch(self, fetcher: Fetcher) -> None:
        try:
            fetcher.loop()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever called run()
            self._failure = self._failure or error
        finally:
            self._done.set()

    def _fail(self, error: BaseException) -> None:
        """Stop because of an error, which `run` raises in the end."""
        self._failure = self._failure or error
        self.stop()

    def _tell_expired(self, tally: Tally, job: Expired) -> None:
        tally.took_back(job.queue)
        tell_expired(self.app, job)

    def _refused(self, error: DatabaseError) -> None:
        if self._failure is None:
            logger.error("worker %s stops: %s", self.name, error)
            self._fail(error)

    def _registration(
        self, store: Store, fetcher: Fetcher, holdings: Holdings, stores: Sequence[Store]
    ) -> Registration | None:
        tasks = [task for slots in fetcher.slots for task in slots.tasks]
        view = View(
            state=lambda: self.health.state,
            slots=fetcher.slots,
            holdings=holdings,
            tally=fetcher.tally,
            detail=detail_of(lease=self.lease, burst=self.burst),
            sessions=lambda: [each.session for each in stores if each.session is not None],
        )
        return Registration(store, entry_of(self.name, self.queues, tasks), view)

    def _slots(self, fetcher: Fetcher) -> list[Slots]:
        kinds: list[tuple[type[Slots], str, int]] = [
            (ThreadSlots, "thread", THREADS),
            (LoopSlots, "loop", ASYNC_SLOTS),
            (ProcessSlots, "process", os.cpu_count() or 1),
        ]
        slots = []
        for kind, where, usual in kinds:
            tasks = [
                name for task in self.app.tasks.values() if task.runs_in == where for name in (task.name, *task.aliases)
            ]
            if tasks:
                slots.append(kind(self.app, self.name, self.concurrency or usual, tasks, fetcher.report))
                slots[-1].most_ahead = self.ahead
        return slots

    def _database_is_there(self, outage: Outage) -> bool:
        """Wait until the database can be worked on; return False when stopped meanwhile."""
        store = self.app.new_store(size=1)
        try:
            while not self._stopping.is_set():
                try:
                    store.run(self.app.dialect.paused)
                    store.require(needed_by_worker(self.app.dialect))
                except (DatabaseUnavailable, ReadOnlyDatabase) as error:
                    # Read-only it may be in the midst of a failover. Not by waiting for the event: a signal's handler
                    # sets it, in this thread, which may hold its lock.
                    again = time.monotonic() + outage.failed(error)
                    while time.monotonic() < again and not self._stopping.is_set():
                        time.sleep(0.05)
                else:
                    outage.over(store.contact)
                    return True
            return False
        finally:
            store.close()


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
