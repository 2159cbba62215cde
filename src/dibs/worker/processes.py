"""Processes: slots for tasks that say `runs_in="process"`. Their code can hold up no other, and can be ended.

Each slot is a thread that looks after one process (`child`), which is started when it is first needed and runs one job
after the other. They are new programs, not forks: a fork in the midst of threads and connections goes wrong.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from dibs.app import Dibs
from dibs.errors import Cancel, DatabaseError, DatabaseUnavailable, TaskError
from dibs.running import CHECKPOINT_AGAIN, Progress, _current
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
    Reached,
    Ready,
    Start,
    Stored,
    outcome_of,
)
from dibs.worker.places import hello_for
from dibs.worker.runs import Run
from dibs.worker.scrubbing import scrub_of
from dibs.worker.slots import Report, ThreadSlots
from dibs.worker.verdicts import Died, Outcome, Raised, Stopped, TimedOut, clean

logger = logging.getLogger("dibs")

#: A job's code that was told to end (by SIGTERM) has so long (seconds) to clean up; then its process is killed.
CLEAN_UP = 3.0

#: The same while the worker ends, and for an idle process to end.
LAST_CLEAN_UP = 1.0

#: How often (seconds) a job's slot looks whether there is news for it.
LOOK_EVERY = 0.1

#: `-P`: not with the current directory first, which may have a queue.py of its own; the worker's own path comes later.
PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from dibs.worker.child import main; main()"


class ProcessSlots(ThreadSlots):
    """Processes that each run one job at a time."""

    kind = "process"
    words = "processes"

    def __init__(self, app: Dibs, worker: str, size: int, tasks: Sequence[str], report: Report) -> None:
        super().__init__(app, worker, size, tasks, report)
        self._hello = hello_for(app, worker)
        self._mine = threading.local()
        self._all: set[Process] = set()
        self._close_at: float | None = None

    def _is_overdue(self, run: Run) -> bool:
        return False  # its slot ends it

    def close(self) -> None:
        """Let the processes end; kill those that do not, and those whose job goes on."""
        self._close_at = time.monotonic() + LAST_CLEAN_UP
        super().close()
        while self._all and time.monotonic() < self._close_at + 2 * LAST_CLEAN_UP:
            time.sleep(0.01)
        for process in list(self._all):
            process.strike()

    # -- in the slots' threads -----------------------------------------------------------------------

    def _work(self) -> None:
        try:
            super()._work()
        finally:
            if (process := self._process()) is not None:
                process.end()
                self._all.discard(process)

    def _process(self) -> Process | None:
        process: Process | None = getattr(self._mine, "process", None)
        return process

    def _run(self, run: Run) -> None:
        if run.lost:
            self._end(run, Stopped())
            return
        _current.set(self._current(run))  # for what is logged here
        try:
            outcome = self._converse(run)
        except Exception as error:
            logger.exception("the process of job %d could not be looked after", run.claim.id)
            if self._process() is not None:
                self._kill()
            outcome = Raised(error)
        if run.ended is None:
            self._end(run, outcome)
        else:
            self._busy.discard(run)  # it was given back while its code was being ended

    def _converse(self, run: Run) -> Outcome:
        """Have this slot's process run a job, and return what came of it."""
        process = self._process()
        if process is not None and not process.alive:
            self._kill()
            process = None
        if process is None:
            process = self._mine.process = Process(self._hello)
            self._all.add(process)
        if not process.ready:
            problem = self._wait_until_ready(process, run)
            if problem is not None:
                self._kill()
                if not isinstance(problem, Stopped):
                    run.begin()
                return problem
        run.begin()
        self._tell_started(run)
        try:
            return Conversation(self, process, run).outcome()
        except (EOFError, ConnectionError):
            return Died(self._kill())

    def _wait_until_ready(self, process: Process, run: Run) -> Outcome | None:
        try:
            while not run.over and self._close_at is None:
                match process.receive(LOOK_EVERY):
                    case Ready(problem=None):
                        process.ready = True
                        return None
                    case Ready(problem=text):
                        why = clean(f"its process could not start: {text}", scrub_of(run.task, run.claim))
                        return Raised(TaskError("ImportError", text or ""), why)
                    case Logged() as record:
                        _log(record)
        except (EOFError, ConnectionError):
            return Died(f"{process.kill()} before it had started")
        return Stopped()

    def _kill(self) -> str:
        """Kill this slot's process if it is not dead already; return how it ended. The next job gets another one."""
        process = self._process()
        assert process is not None
        how = process.kill()
        self._all.discard(process)
        self._mine.process = None
        return how

    def store(self, run: Run, text: str | None) -> bool:
        """Store a checkpoint; return False when the claim is lost."""
        return self._current(run)._write(text)

    @property
    def processes(self) -> list[int]:
        return [process.pid for process in list(self._all)]

    @property
    def close_at(self) -> float | None:
        """When (monotonic) whatever still runs is killed."""
        return self._close_at


class Conversation:
    """What is said between a slot and its process while one job runs there."""

    def __init__(self, slots: ProcessSlots, process: Process, run: Run) -> None:
        self._slots = slots
        self._process = process
        self._run = run
        self._news = News(False, False, False, run.good_until)  # what it knows
        self._why: str | None = None  # it was told to end, and why
        self._kill_at = float("inf")
        self._checkpoint: Checkpoint | None = None  # one that waits for the database
        self._checkpoint_at = 0.0

    def outcome(self) -> Outcome:
        """Start the job and listen until its code has ended.

        Raises EOFError or ConnectionError if the process died by itself.
        """
        self._process.send(Start(self._run.claim, self._news.good_until))
        try:
            return self._listen()
        except (EOFError, ConnectionError):
            if self._why is None:
                raise
            self._slots._kill()
            return self._interrupted(None)

    def _listen(self) -> Outcome:
        while True:
            self._tell_news()
            self._interrupt()
            if time.monotonic() >= min(self._kill_at, self._slots.close_at or self._kill_at):
                logger.warning("job %d: %s did not end when told to; its process is killed", *self._who())
                self._slots._kill()
                return self._interrupted(None)
            if self._checkpoint is not None and time.monotonic() >= self._checkpoint_at:
                self._store(self._checkpoint)
            match self._process.receive(LOOK_EVERY):
                case Reached() as reached:
                    self._note(reached)
                case Checkpoint() as checkpoint:
                    self._store(checkpoint)
                case Logged() as record:
                    _log(record)
                case Ended() as ended:
                    self._note(ended.progress)
                    self._run.finished = ended.finished
                    return self._interrupted(outcome_of(ended))

    def _note(self, reached: Reached | None) -> None:
        if reached is not None:
            self._run.progress = Progress(reached.done, reached.note, reached.at)

    def _tell_news(self) -> None:
        run = self._run
        news = News(run.cancelling, run.stopping, run.over, run.good_until)
        if news != self._news:
            self._news = news
            self._process.send(news)

    def _interrupt(self) -> None:
        """Tell the job's code to end, once, if there is a reason."""
        run, timeout = self._run, self._run.task.options.timeout
        if self._why is not None:
            return
        if run.ended is not None or self._slots.close_at is not None:
            self._why = "stop"
        elif run.cancelling:
            self._why = "cancel"
        elif run.over:
            self._why = "lost"
        elif timeout is not None and (run.ran() or 0.0) > timeout:
            self._why = "timeout"
        if self._why is not None:
            self._process.send(Interrupt(self._why, timeout or 0.0))
            self._kill_at = time.monotonic() + CLEAN_UP

    def _interrupted(self, outcome: Outcome | None) -> Outcome:
        """Return what came of a job, whose code may have been told to end (None: it was killed)."""
        if self._why == "timeout":
            return TimedOut(self._run.task.options.timeout or 0.0)
        if outcome is not None:
            return outcome
        return Raised(Cancel("cancelled while it ran")) if self._why == "cancel" else Stopped()

    def _store(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint and say so. While the database is away it is kept, and tried again."""
        self._checkpoint = None
        try:
            stored = not self._run.over and self._slots.store(self._run, checkpoint.text)
            answer = Stored(checkpoint.number, stored)
        except DatabaseUnavailable:
            self._checkpoint, self._checkpoint_at = checkpoint, time.monotonic() + CHECKPOINT_AGAIN
            return
        except DatabaseError as error:
            answer = Stored(checkpoint.number, False, str(error))
        self._process.send(answer)

    def _who(self) -> tuple[int, str]:
        return self._run.claim.id, self._run.task.name


class Process:
    """One process, from its start to its end. For one thread, but that anybody may strike it."""

    def __init__(self, hello: Hello) -> None:
        ours, theirs = socket.socketpair()
        read_end, self._leash = os.pipe()
        home = str(Path(__file__).parents[2])
        descriptors = [theirs.fileno(), read_end]
        try:
            # In a session of its own: a Ctrl-C at the terminal is for the worker, and so is what it then does.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM, home, *map(str, descriptors)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(self._leash)
            raise
        finally:
            theirs.close()
            os.close(read_end)
        self.ready = False
        self._open = True
        self._channel = Channel(ours.detach())
        self._channel.send(hello)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Message) -> None:
        self._channel.send(message)

    def receive(self, within: float) -> Message | None:
        return self._channel.receive(within)

    def end(self) -> None:
        """Let it end, as programs do; kill it if it takes too long."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._channel.send(Bye())
            self._process.wait(LAST_CLEAN_UP)
        self.kill()

    def strike(self) -> None:
        """Send it, and what its tasks have started, the signal that none survives. From any thread."""
        if self._process.returncode is None:
            # Before anybody waits for it: until then, nobody else can have its number. One that is dying of something
            # else goes on dying of that.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> str:
        """Kill it and what its tasks have started, unless it has ended; return how it ended."""
        self.strike()
        code = self._process.wait()
        if self._open:
            self._open = False
            os.close(self._leash)
            self._channel.close()
        return f"its process ended with {_how(code)}"


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
    return f"signal {-code} ({name}{': out of memory?' if name == 'SIGKILL' else ''})"


def _log(message: Logged) -> None:
    record = logging.makeLogRecord(message.fields)
    target = logging.getLogger(record.name)
    if target.isEnabledFor(record.levelno):
        target.handle(record)
