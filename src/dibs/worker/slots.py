"""Slots: room for jobs to run in. Threads for sync tasks, one event loop for async ones.

Claims beyond the free slots wait here, held; they can be taken back until they begin.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from queue import SimpleQueue
from typing import Any

from dibs.app import Dibs
from dibs.errors import InvalidArgument
from dibs.loop import TaskLoop
from dibs.running import CurrentJob, _current
from dibs.settings import MOST_RESULT
from dibs.worker import arounds
from dibs.worker.runs import Run
from dibs.worker.telling import tell
from dibs.worker.verdicts import Outcome, Raised, Returned, Stopped, TimedOut, Undecodable

logger = logging.getLogger("dibs")

#: Claim ahead what the slots will start within this many seconds.
AHEAD = 0.25

#: Claims that wait for a slot, at most.
MOST_AHEAD = 1_000

Report = Callable[[Run, Outcome], None]


class Slots(ABC):
    """Room for `size` jobs of some tasks at a time."""

    def __init__(self, app: Dibs, worker: str, size: int, tasks: Sequence[str], report: Report) -> None:
        self.size = size
        self.tasks = list(tasks)
        self._app = app
        self._worker = worker
        self._report = report
        self._waiting: dict[int, Run] = {}  # in order; whoever pops a run may begin it or take it back
        self._busy: set[Run] = set()
        self._usual: float | None = None  # seconds that a run takes, of late

    def room(self) -> tuple[int, int]:
        """Return how many slots are free, and how many more jobs these slots will start before long.

        Slots whose job runs for longer than that count as taken; without experience, all do.
        """
        busy, waiting = len(self._busy), len(self._waiting)
        free = max(self.size - busy - waiting, 0)
        if self._usual is None:
            return free, 0
        now = time.monotonic()
        quick = self.size - sum(1 for run in self.busy if run.begun is not None and now - run.begun > AHEAD)
        ahead = min(int(quick * AHEAD / max(self._usual, 1e-5)), MOST_AHEAD) - max(waiting - (self.size - busy), 0)
        return free, max(ahead, 0)

    @property
    def busy(self) -> list[Run]:
        """The runs whose code is running now."""
        return list(self._busy)

    @property
    def waiting(self) -> int:
        """How many held runs wait for a slot."""
        return len(self._waiting)

    def take_back(self, which: Callable[[Run], bool]) -> list[Run]:
        """Take back held runs that have not begun."""
        chosen = [run for run in list(self._waiting.values()) if which(run)]
        return [run for run in chosen if self._waiting.pop(run.claim.id, None) is run]

    def start(self, runs: Sequence[Run]) -> None:
        """Run these as soon as there are slots for them."""
        for run in runs:
            self._waiting[run.claim.id] = run
        self._admit(runs)

    @abstractmethod
    def _admit(self, runs: Sequence[Run]) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Let the threads end when they have nothing left to do."""

    def _prepare(self, run: Run) -> tuple[tuple[Any, ...], dict[str, Any]] | Outcome:
        """Mark a run begun and return its task's arguments, or the outcome if it can't be called."""
        if run.lost:
            return Stopped()
        run.begin()
        tell(self._app, "started", run, worker=self._worker)
        try:
            return run.task.signature.load(run.claim.payload)
        except InvalidArgument as problem:
            return Undecodable(f"the payload does not fit {run.task.name}: {problem}")
        except Exception as error:  # noqa: BLE001 - a codec of the user's; it fails its own job alone
            return Raised(error)

    def _returned(self, run: Run, result: Any) -> Outcome:
        """Encode a result; one that can't be stored is left out, since the work was done."""
        if result is None:
            return Returned(None)
        try:
            text = self._app.codec.dump(result, path="result")
            problem = (
                f"it is {len(text)} characters of JSON, the most is {MOST_RESULT}" if len(text) > MOST_RESULT else ""
            )
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a result, the job is done
            text, problem = "", str(error)
        if problem:
            self._app.warn_once(f"result {run.task.name}", "the result of %s is not stored: %s", run.task.name, problem)
            return Returned(None)
        return Returned(text)

    def _end(self, run: Run, outcome: Outcome) -> None:
        self._busy.discard(run)
        if (ran := run.ran()) is not None:
            self._usual = ran if self._usual is None else 0.9 * self._usual + 0.1 * ran
        self._report(run, outcome)

    def _current(self, run: Run) -> CurrentJob:
        return CurrentJob(self._app, run.claim, self._worker, run)


class ThreadSlots(Slots):
    """Threads for sync tasks. Started when they are first needed."""

    def __init__(self, app: Dibs, worker: str, size: int, tasks: Sequence[str], report: Report) -> None:
        super().__init__(app, worker, size, tasks, report)
        self._inbox: SimpleQueue[Run | None] = SimpleQueue()
        self._threads = 0

    def _admit(self, runs: Sequence[Run]) -> None:
        while self._threads < min(self.size, len(self._busy) + len(self._waiting)):
            self._threads += 1
            threading.Thread(target=self._work, name=f"dibs-slot-{self._threads}", daemon=True).start()
        for run in runs:
            self._inbox.put(run)

    def close(self) -> None:
        for _ in range(self._threads):
            self._inbox.put(None)

    def _work(self) -> None:
        while (run := self._inbox.get()) is not None:
            self._busy.add(run)  # before it leaves the waiting ones: never in neither, so a slot is not given twice
            if self._waiting.pop(run.claim.id, None) is not run:
                self._busy.discard(run)
                continue
            Context().run(self._run, run)

    def _run(self, run: Run) -> None:
        prepared = self._prepare(run)
        if not isinstance(prepared, tuple):
            self._end(run, prepared)
            return
        args, kwargs = prepared
        job = self._current(run)
        _current.set(job)
        try:
            outcome = self._returned(run, arounds.call(run.task, job, args, kwargs))
        except BaseException as error:  # noqa: BLE001 - SystemExit too: a task must not end its worker's thread
            outcome = Raised(error)
        self._end(run, outcome)

    def overdue(self) -> Iterable[Run]:
        """Return runs whose time is up. Their threads can't be stopped."""
        for run in self.busy:
            timeout = run.task.options.timeout
            if timeout is not None and not run.stuck and (run.ran() or 0.0) > timeout:
                yield run


class LoopSlots(Slots):
    """One event loop, in a thread of its own, for async tasks."""

    def __init__(self, app: Dibs, worker: str, size: int, tasks: Sequence[str], report: Report) -> None:
        super().__init__(app, worker, size, tasks, report)
        self.loop = TaskLoop()
        self._tasks: set[asyncio.Task[None]] = set()

    def _admit(self, runs: Sequence[Run]) -> None:
        self.loop.get().call_soon_threadsafe(self._fill)

    def close(self) -> None:
        self.loop.close()

    def _fill(self) -> None:
        while self._waiting and len(self._busy) < self.size:
            job_id = next(iter(self._waiting), None)
            run = None if job_id is None else self._waiting.get(job_id)
            if run is None:
                continue
            self._busy.add(run)
            if self._waiting.pop(run.claim.id, None) is not run:
                self._busy.discard(run)
                continue
            task = asyncio.get_running_loop().create_task(self._run(run), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, run: Run) -> None:
        prepared = self._prepare(run)
        if isinstance(prepared, tuple):
            outcome = await self._call(run, *prepared)
        else:
            outcome = prepared
        self._end(run, outcome)
        self._fill()

    async def _call(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        job = self._current(run)
        _current.set(job)
        loop = asyncio.get_running_loop()
        task = loop.create_task(arounds.acall(run.task, job, args, kwargs))
        run.interrupt = lambda: _call_if_open(loop, task.cancel)
        if run.cancelling or run.lost:
            task.cancel()
        timeout = run.task.options.timeout
        try:
            async with asyncio.timeout(timeout) as limit:
                return self._returned(run, await task)
        except TimeoutError as error:
            return TimedOut(timeout or 0.0) if limit.expired() else Raised(error)
        except BaseException as error:  # noqa: BLE001 - a cancelled task is one of the outcomes
            return Raised(error)


def _call_if_open(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
