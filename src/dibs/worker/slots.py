"""Slots: room for jobs to run in. Threads for sync tasks, one event loop for async ones; `processes` has a third kind.

Claims beyond the free slots wait here, held; they can be taken back until they begin.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import Context
from queue import SimpleQueue
from typing import Any, ClassVar

from dibs.app import Dibs
from dibs.errors import Cancel, InvalidArgument
from dibs.limits import problem_with_text
from dibs.loop import LEAVING, TaskLoop
from dibs.results import leave_out, problem_with_length
from dibs.running import CurrentJob, _current
from dibs.tasks import Task
from dibs.worker import arounds
from dibs.worker.runs import Run
from dibs.worker.telling import tell
from dibs.worker.verdicts import Misfit, Outcome, Raised, Returned, Stopped, TimedOut

logger = logging.getLogger("dibs")

#: Claim ahead what the slots will start within this many seconds.
AHEAD = 0.25

#: Claims that wait for a slot, at most, unless a worker's setting says otherwise.
MOST_AHEAD = 1_000

#: What waits for a slot is held in memory: so many characters of arguments, as far as the last claims tell.
MOST_CHARACTERS_AHEAD = 16_000_000

#: An async task that was cancelled since its time was up, and goes on for so long (seconds), counts as stuck.
SWALLOWED = 1.0

Report = Callable[[Run, Outcome], None]


class Slots(ABC):
    """Room for `size` jobs of some tasks at a time."""

    kind: ClassVar[str]  # as in a task's `runs_in`
    words: ClassVar[str]  # what they are for

    def __init__(self, app: Dibs, worker: str, size: int, tasks: Sequence[str], report: Report) -> None:
        self.size = size
        self.tasks = list(tasks)
        self._app = app
        self._worker = worker
        self._report = report
        self._pid = os.getpid()
        # In order; whoever pops a run may begin it or take it back. By the run and not by its job: one that was taken
        # back may be claimed again, while a thread is still to come across the run that it was before.
        self._waiting: dict[Run, None] = {}
        self._busy: set[Run] = set()
        self._usual: float | None = None  # seconds that a run takes, of late
        self._characters = 1.0  # of its arguments
        self._threads: list[threading.Thread] = []
        self.most_ahead = MOST_AHEAD
        self.ring: Callable[[], None] = _nobody  # called at the end of a run when so few held ones or fewer wait:
        self.ring_at = MOST_AHEAD

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
        most = min(self.most_ahead, int(MOST_CHARACTERS_AHEAD / self._characters))
        ahead = min(int(quick * AHEAD / max(self._usual, 1e-5)), most) - max(waiting - (self.size - busy), 0)
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
        return [run for run in list(self._waiting) if which(run) and self._leaves(run)]

    def _leaves(self, run: Run) -> bool:
        """Take a run from the waiting ones; return False if somebody else did."""
        try:
            self._waiting.pop(run)
        except KeyError:
            return False
        return True

    def start(self, runs: Sequence[Run]) -> None:
        """Run these as soon as there are slots for them."""
        characters = 0
        for run in runs:
            self._waiting[run] = None
            characters += len(run.claim.payload)
        self._characters = max((self._characters + characters / max(len(runs), 1)) / 2, 1.0)
        self._admit(runs)

    @abstractmethod
    def _admit(self, runs: Sequence[Run]) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Let the threads end when they have nothing left to do, and wait a moment for them."""

    def _begin(self, target: Callable[..., None], name: str, *args: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=args, name=name, daemon=True))
        self._threads[-1].start()

    def _join(self) -> None:
        end = time.monotonic() + LEAVING
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0.0))

    def overdue(self) -> Iterable[Run]:
        """Return runs whose time is up and whose code goes on all the same."""
        return [run for run in self.busy if run.ended is None and self._is_overdue(run)]

    def _is_overdue(self, run: Run) -> bool:
        return False

    @property
    def processes(self) -> list[int]:
        """The ids of the processes that these slots have."""
        return []

    @property
    def stuck(self) -> int:
        """How many slots are taken by code that goes on although its job is out of time or lost."""
        return sum(run.over for run in self.busy)

    def interrupt(self, run: Run) -> None:
        """End a run's code, where that can be done; its outcome is no longer asked for."""
        if (interrupt := run.interrupt) is not None:
            interrupt(True)

    def _prepare(self, run: Run) -> tuple[tuple[Any, ...], dict[str, Any]] | Outcome:
        """Mark a run begun and return its task's arguments, or the outcome if it can't be called."""
        if run.lost:
            return Stopped()
        if run.cancelling:
            return Raised(Cancel("cancelled before it began"))
        prepared = decode(run.task, run.claim.payload)
        run.begin()
        if not isinstance(prepared, Misfit):
            self._tell_started(run)
        return prepared

    def _tell_started(self, run: Run) -> None:
        if self._app.events.handlers:
            tell(self._app, "started", run, worker=self._worker)

    def _returned(self, run: Run, result: Any) -> Outcome:
        return encode(run.task, result)

    def _end(self, run: Run, outcome: Outcome) -> None:
        end_fork(self._pid, outcome)
        self._busy.discard(run)
        if (ran := run.ran()) is not None:
            self._usual = ran if self._usual is None else 0.9 * self._usual + 0.1 * ran
        self._report(run, outcome)
        if len(self._waiting) <= self.ring_at:
            self.ring()

    def _current(self, run: Run) -> CurrentJob:
        return CurrentJob(self._app, run.claim, self._worker, run)


class ThreadSlots(Slots):
    """Threads for sync tasks. Started when they are first needed."""

    kind = "thread"
    words = "threads"

    def __init__(self, app: Dibs, worker: str, size: int, tasks: Sequence[str], report: Report) -> None:
        super().__init__(app, worker, size, tasks, report)
        self._inbox: SimpleQueue[Run | None] = SimpleQueue()

    def _admit(self, runs: Sequence[Run]) -> None:
        while len(self._threads) < min(self.size, len(self._busy) + len(self._waiting)):
            self._begin(self._work, f"dibs-slot-{len(self._threads) + 1}")
        for run in runs:
            self._inbox.put(run)

    def close(self) -> None:
        for _ in self._threads:
            self._inbox.put(None)
        self._join()

    def _work(self) -> None:
        while (run := self._inbox.get()) is not None:
            self._busy.add(run)  # before it leaves the waiting ones: never in neither, so a slot is not given twice
            if not self._leaves(run):
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
            outcome = self._returned(run, arounds.call(run.task, run.claim, job, args, kwargs))
        except BaseException as error:  # noqa: BLE001 - SystemExit too: a task must not end its worker's thread
            outcome = Raised(error)
        self._end(run, outcome)

    def _is_overdue(self, run: Run) -> bool:
        timeout = run.task.options.timeout
        return timeout is not None and (run.ran() or 0.0) > timeout


class LoopSlots(Slots):
    """One event loop, in a thread of its own, for async tasks."""

    kind = "loop"
    words = "async tasks"

    def __init__(self, app: Dibs, worker: str, size: int, tasks: Sequence[str], report: Report) -> None:
        super().__init__(app, worker, size, tasks, report)
        self.loop = TaskLoop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._inbox: deque[Run] = deque()

    def _admit(self, runs: Sequence[Run]) -> None:
        self._inbox.extend(runs)
        self.loop.get().call_soon_threadsafe(self._fill)

    def close(self) -> None:
        self.loop.close()

    def _fill(self) -> None:
        while self._inbox and len(self._busy) < self.size:
            run = self._inbox.popleft()
            self._busy.add(run)
            if not self._leaves(run):
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
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def cancel(again: bool) -> None:
            # Code that has heard it already, from check(), is cleaning up: told again, it would be torn out of that.
            if again or not run.heard:
                task.cancel()

        run.interrupt = lambda again: _call_if_open(loop, cancel, again)
        if run.cancelling or run.lost:  # since it was looked at
            task.cancel()
        timeout = run.task.options.timeout
        code = arounds.acall(run.task, run.claim, job, args, kwargs)
        try:
            if timeout is None:
                return self._returned(run, await code)
            async with asyncio.timeout(timeout) as limit:
                outcome = self._returned(run, await code)
        except BaseException as error:  # noqa: BLE001 - cancellation is an outcome too; SystemExit would end the loop
            outcome = Raised(error)
        finally:
            run.interrupt = None  # else run, task and coroutine hold each other (collecting them took half of the time)
        # Whatever it did when it was cancelled: its time was up.
        return TimedOut(timeout) if timeout is not None and limit.expired() else outcome

    def _is_overdue(self, run: Run) -> bool:
        timeout = run.task.options.timeout
        return timeout is not None and (run.ran() or 0.0) > timeout + SWALLOWED


def stuck_slots(all_slots: Iterable[Slots]) -> int:
    """Return how many slots are taken by code that goes on although its job is out of time or lost."""
    return sum(slots.stuck for slots in all_slots)


def choked(all_slots: Iterable[Slots]) -> str:
    """Say which slots are all stuck, if those of a kind are: no job for them can begin here."""
    words = "every slot for {0.words} ({0.size}) is taken by code that goes on although its job is out of time or lost"
    return next((words.format(slots) for slots in all_slots if slots.stuck == slots.size), "")


def end_fork(pid: int, outcome: Outcome) -> None:
    """End this process, if it is none of `pid` but a fork which the code of a job has made and come back from.

    It ends as a program does that got to its end: it has nothing to settle, runs no other job, and what it would say to
    the worker over a socket that both have would be taken for what the job itself says.
    """
    if os.getpid() == pid:
        return
    code: object = 0
    if isinstance(outcome, Raised):
        code = outcome.error.code if isinstance(outcome.error, SystemExit) else 1
        if not isinstance(outcome.error, SystemExit):
            with suppress(Exception):
                traceback.print_exception(outcome.error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


def _nobody() -> None:
    """Nobody is to be told."""


def decode(task: Task[Any, Any], payload: str) -> tuple[tuple[Any, ...], dict[str, Any]] | Outcome:
    """Return the arguments of a job, or the outcome if its task can't be called with them."""
    try:
        return task.signature.load(payload)
    except InvalidArgument as problem:
        return Misfit(f"the payload does not fit {task.name}: {problem}")
    except Exception as error:  # noqa: BLE001 - a codec of the user's; it fails its own job alone
        return Raised(error)


def encode(task: Task[Any, Any], result: Any) -> Returned:
    """Encode a result; one that can't be stored is left out, since the work was done."""
    if result is None:
        return Returned(None)
    try:
        text = task.app.codec.dump(result, path="result")
        # A codec of the user's may give what can't be stored, or is no text at all.
        problem = problem_with_length(text) or problem_with_text(text)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with a result, the job is done
        text, problem = "", str(error)
    if problem:
        leave_out(task.app, task.name, problem)
        return Returned(None)
    return Returned(text)


def _call_if_open(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *arguments: object) -> None:
    with suppress(RuntimeError):  # it is closed
        loop.call_soon_threadsafe(callback, *arguments)
