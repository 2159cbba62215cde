"""The process that runs jobs for a worker, one at a time; its program is `main`.

The main thread runs the tasks' code, another one listens to the worker. It opens no connection to the database, and
ends when the worker does, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Coroutine
from contextvars import Context
from itertools import count
from queue import SimpleQueue
from types import FrameType
from typing import Any

from dibs.app import Dibs
from dibs.errors import Cancel, DatabaseError, LostClaim, Release
from dibs.jobs import Claim
from dibs.logs import OF_JOBS, extras, mark_records, plain
from dibs.running import CurrentJob, Progress, _current
from dibs.tasks import Task
from dibs.worker import arounds, places
from dibs.worker.messages import (
    Bye,
    Channel,
    Checkpoint,
    Ended,
    Hello,
    Interrupt,
    Logged,
    Message,
    News,
    Ready,
    Start,
    Stored,
    ended,
    reached,
)
from dibs.worker.scrubbing import scrub_of
from dibs.worker.signals import handle
from dibs.worker.slots import decode, encode, end_fork
from dibs.worker.verdicts import Misfit, Outcome, Raised, text_of

#: How often (seconds) the latest progress is told to the worker, and the worker is looked after.
TELL_EVERY = 0.5


def main() -> None:
    """Be a process of a worker's: argv has the descriptors of the socket and of the leash."""
    places.go_inside()
    channel, leash = Channel(int(sys.argv[1])), int(sys.argv[2])
    os.set_inheritable(int(sys.argv[1]), False)  # what a task starts is none of the worker's
    os.set_inheritable(leash, False)
    die_with_holder_of(leash)
    hello = channel.receive()
    assert isinstance(hello, Hello)
    Child(channel, hello.worker).work(hello)


def die_with_holder_of(leash: int) -> None:
    """Have this process, and what its tasks start, killed when the other end of the leash is closed.

    By the system itself where it can, so that it does not matter what the code is doing.
    """
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(leash, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(leash, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(leash, fcntl.F_SETFL, fcntl.fcntl(leash, fcntl.F_GETFL) | os.O_ASYNC)


class Here:
    """What is known in this process of the run that goes on here."""

    def __init__(self, claim: Claim, good_until: float) -> None:
        self.claim = claim
        self.cancelling = False
        self.stopping = False
        self.finished = False
        self.heard = False
        self.progress: Progress | None = None
        self.told: Progress | None = None
        self.over = False
        self.good_until = good_until
        self.interruption: BaseException | None = None  # what its code is to be ended with
        self.inside = False  # is its code running, in the main thread?
        self.coroutine: asyncio.Task[Any] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    @property
    def lost(self) -> bool:
        return self.over or time.monotonic() > self.good_until


class ChildJob(CurrentJob):
    """The running job, whose checkpoints the worker stores."""

    __slots__ = ("_child",)

    def __init__(self, app: Dibs, run: Here, child: Child) -> None:
        super().__init__(app, run.claim, child.worker, run)
        self._child = child

    def _write(self, text: str | None) -> bool:
        return self._child.store(self._run, text)


class Child:
    """Runs what the worker sends, until it says goodbye."""

    def __init__(self, channel: Channel, worker: str) -> None:
        self.worker = worker
        self._channel = channel
        self._process, self._worker_process = os.getpid(), os.getppid()
        self._sending = threading.Lock()
        self._shielded = False  # the main thread says something to the worker, and must not be interrupted
        self._jobs: SimpleQueue[Here | None] = SimpleQueue()
        self._run: Here | None = None
        self._numbers = count()
        self._answers: dict[int, SimpleQueue[Stored]] = {}
        self._runner: asyncio.Runner | None = None

    def work(self, hello: Hello) -> None:
        self._heed_signals()
        try:
            app = places.app_at(hello)
        except BaseException as error:  # noqa: BLE001 - whatever the user's modules raise is what the worker has to say
            self._channel.send(Ready(text_of(error)))
            return
        mark_records()
        if not logging.getLogger().handlers:
            logging.getLogger().addHandler(_Forwarding(self))
            logging.getLogger().setLevel(hello.level)
        threading.Thread(target=self._listen, name="dibs-worker", daemon=True).start()
        self.say(Ready(None))
        while (run := self._jobs.get()) is not None:
            self._heed_signals()  # a job before may have handlers of its own
            self._run = run
            task = app.task_named(run.claim.task)
            try:
                outcome = self._outcome(app, task, run)
            except BaseException as error:  # noqa: BLE001 - an interruption that came between two lines of ours
                outcome = Raised(error)
            self._run = None
            end_fork(self._process, outcome)
            self.say(self._end(task, run, outcome))

    def _heed_signals(self) -> None:
        handle(signal.SIGTERM, self._end_code)
        handle(signal.SIGINT, self._pass_over)

    # -- in the main thread ------------------------------------------------------------------------

    def _outcome(self, app: Dibs, task: Task[Any, Any] | None, run: Here) -> Outcome:
        if task is None:
            # Its worker knows it: what this process imported is another version.
            return Misfit(f"{run.claim.task} is no task of the app that this process has imported")
        decoded = decode(task, run.claim.payload)
        if not isinstance(decoded, tuple):
            return decoded
        args, kwargs = decoded
        context = Context()
        job = ChildJob(app, run, self)
        context.run(_current.set, job)
        if task.is_async:
            if self._runner is None:
                self._runner = asyncio.Runner()
            code = arounds.acall(task, run.claim, job, args, kwargs)
            given: Any = self._runner.run(self._contained(run, code), context=context)
        else:
            given = context.run(self._call, run, task, job, args, kwargs)
        return given if isinstance(given, Raised) else encode(task, given)

    def _call(
        self, run: Here, task: Task[Any, Any], job: ChildJob, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        try:
            run.inside = True
            if run.interruption is not None:
                raise run.interruption
            result = arounds.call(task, run.claim, job, args, kwargs)
            run.inside = False
        except BaseException as error:  # noqa: BLE001 - SystemExit too: the process is for other jobs as well
            run.inside = False
            return Raised(error)
        return result

    async def _contained(self, run: Here, code: Coroutine[Any, Any, Any]) -> Any:
        run.coroutine, run.loop = asyncio.current_task(), asyncio.get_running_loop()
        if run.interruption is not None and run.coroutine is not None:
            run.coroutine.cancel()
        try:
            return await code
        except BaseException as error:  # noqa: BLE001 - a cancelled task is one of the outcomes
            return Raised(error)

    def _pass_over(self, number: int, frame: FrameType | None) -> None:
        """Leave a SIGINT to the worker."""

    def _end_code(self, number: int, frame: FrameType | None) -> None:
        """End the code of a job that the worker wants ended. A SIGTERM from anybody else is for the worker to heed."""
        run = self._run
        if run is not None and run.inside and run.interruption is not None and not self._shielded:
            run.inside = False
            if not self._has_heard(run):
                raise run.interruption

    def _cancel(self, run: Here, coroutine: asyncio.Task[Any]) -> None:
        if not self._has_heard(run):
            coroutine.cancel()

    @staticmethod
    def _has_heard(run: Here) -> bool:
        """Was its code told the same by what `check` raised? It is cleaning up, and not to be torn out of that."""
        return run.heard and isinstance(run.interruption, Cancel | LostClaim)

    def _end(self, task: Task[Any, Any] | None, run: Here, outcome: Outcome) -> Ended:
        options = None if task is None else task.options
        progress = None if run.progress is run.told or run.progress is None else reached(run.progress)
        return ended(
            outcome,
            fail_on=options.fail_on if options else (),
            retry_on=options.retry_on if options else None,
            scrub=None if task is None else scrub_of(task, run.claim),
            finished=run.finished,
            progress=progress,
        )

    # -- to the worker, in any thread ----------------------------------------------------------------

    def say(self, message: Message) -> None:
        main = threading.current_thread() is threading.main_thread()
        if main:
            self._shielded = True
        try:
            with self._sending:
                self._channel.send(message)
        finally:
            if main:
                self._shielded = False
                self._end_code(signal.SIGTERM, None)  # which may have come meanwhile

    def store(self, run: object, text: str | None) -> bool:
        """Have the worker store a checkpoint of this run; return False when the claim is lost, or the run is over."""
        if run is not self._run:  # a thread that a task left behind: the worker would take it for the next job's
            return False
        number = next(self._numbers)
        answers = self._answers[number] = SimpleQueue()
        try:
            self.say(Checkpoint(number, text))
            answer = answers.get()
        finally:
            del self._answers[number]
        if answer.problem is not None:
            raise DatabaseError(answer.problem)
        return answer.stored

    # -- from the worker, in a thread of its own -----------------------------------------------------

    def _listen(self) -> None:
        try:
            self._converse()
        except BaseException:  # noqa: BLE001 - whatever it was, this thread has ended
            # Deaf it would neither run the next job nor end this one: the worker is to see that it is gone.
            traceback.print_exc()
            _die()

    def _converse(self) -> None:
        told_at = time.monotonic()
        while True:
            try:
                message = self._channel.receive(TELL_EVERY)
            except EOFError:
                _die()
            if os.getppid() != self._worker_process:
                _die()
            if message is not None:
                self._heed(message)
            if time.monotonic() - told_at >= TELL_EVERY and (run := self._run) is not None:
                told_at = time.monotonic()
                if (progress := run.progress) is not None and progress is not run.told:
                    run.told = progress
                    self.say(reached(progress))

    def _heed(self, message: Message) -> None:
        run = self._run
        match message:
            case Start():
                self._jobs.put(Here(message.claim, message.good_until))
            case News() if run is not None:
                run.good_until = message.good_until
                run.cancelling, run.stopping, run.over = message.cancelling, message.stopping, message.lost
            case Interrupt() if run is not None:
                self._interrupt(run, message)
            case Stored() if message.number in self._answers:
                self._answers[message.number].put(message)
            case Bye():
                self._jobs.put(None)

    def _interrupt(self, run: Here, message: Interrupt) -> None:
        reasons: dict[str, BaseException] = {
            "cancel": Cancel("cancelled while it ran"),
            "lost": LostClaim(run.claim.id, self.worker),
            "timeout": TimeoutError(f"timed out after {message.timeout:g} s"),
            "stop": Release("its worker stops", delay=0.0),
        }
        run.interruption = reasons[message.why]
        if run.coroutine is not None and run.loop is not None:
            run.loop.call_soon_threadsafe(self._cancel, run, run.coroutine)
        elif (main := threading.main_thread().ident) is not None:
            signal.pthread_kill(main, signal.SIGTERM)


class _Forwarding(logging.Handler):
    """Has the worker log what is logged here, as it logs its own."""

    def __init__(self, child: Child) -> None:
        super().__init__()
        self._child = child

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._forward(record)
        except Exception:  # noqa: BLE001 - as every handler does: what can't be logged does not fail a task
            self.handleError(record)

    def _forward(self, record: logging.LogRecord) -> None:
        error = record.exc_info if record.exc_info and record.exc_info[0] else None
        fields: dict[str, Any] = {
            **extras(record),
            **{name: getattr(record, name, None) for name in OF_JOBS},
            "name": record.name,
            "levelno": record.levelno,
            "levelname": record.levelname,
            "msg": plain(record.getMessage()),
            "exc_text": plain("".join(traceback.format_exception(*error)).rstrip()) if error else None,
            "stack_info": record.stack_info,
            "pathname": record.pathname,
            "filename": record.filename,
            "module": record.module,
            "lineno": record.lineno,
            "funcName": record.funcName,
            "created": record.created,
            "process": record.process,
            "processName": "dibs-process",
        }
        with contextlib.suppress(OSError):  # the worker is gone, and so are we in a moment
            self._child.say(Logged(fields))


def _die() -> None:
    """End at once, with all that this process's tasks have started. Nobody is left to tell."""
    os.killpg(os.getpgrp(), signal.SIGKILL)
