"""The supervisor: starts N worker processes, starts another where one died, and ends when they have ended.

It stops its children through a pipe and not with a signal: each holds the read end, and when the write end is
closed, they stop as at a SIGTERM. So they also stop when the supervisor was killed and nobody could close
anything; and where every process of a group gets its own SIGTERM, as from systemd, a child is not told twice, which
would end it at once.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType, MappingProxyType
from typing import Any

import msgspec

from dibs.metrics import Family, labelled, merged
from dibs.worker import runtime
from dibs.worker.health import Answer
from dibs.worker.probes import METRICS
from dibs.worker.signals import ONE_SIGNAL, STOP_SIGNALS

logger = logging.getLogger("dibs")

#: Tells a child which file descriptor it is that closes when it should stop.
VARIABLE = "DIBS_SUPERVISOR_FD"

#: The pause (seconds) before the first new start; it doubles up to the last while processes die young.
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
YOUNG = 60.0

#: How much longer than the grace (seconds) children may take to end.
MARGIN = 10.0

#: How long (seconds) a process may take to say how it is.
PATIENCE = 2.0

#: Exit codes after which another start would end the same way: wrong usage, and tables that don't fit.
INCURABLE = (2, 4)


@dataclass
class Place:
    """Where one of the N processes runs, or is to be started again."""

    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0  # monotonic, as are the others
    start_at: float = 0.0
    pause: float = FIRST_PAUSE
    code: int | None = None  # how the last process here ended


class Supervisor:
    """Runs `command` in N processes. `run()` it in the main thread, once."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        processes: int,
        grace: float,
        burst: bool,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`environment`: variables for the command beside ours."""
        """`grace` (seconds) is what the children have to end in; in a `burst` those that end are not started again."""
        self._command = list(command)
        self._environment = environment
        self._places = [Place() for _ in range(processes)]
        self._grace = grace
        self._burst = burst
        self._signals = 0
        self._first_signal = 0.0
        self._kill_at: float | None = None

    def run(self) -> int:
        """Work until stopped by SIGTERM or SIGINT, or in a burst until all have ended; return the exit code.

        A second signal kills the children.
        """
        self._read_end, self._write_end = os.pipe()
        self._bell, bell_end = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(bell_end, False)
        signal.set_wakeup_fd(bell_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in STOP_SIGNALS:
            signal.signal(number, self._heed)
        while True:
            self._bury()
            if self._over():
                return self._code()
            self._stop() if self._signals else self._start()
            self._sleep()

    def ask(self, question: str) -> Answer:
        """Answer a probe ("livez" or "readyz") for all processes together. From any thread.

        One that is being started, or started again, is not ready; only one that is there and hangs is not live.
        """
        reasons: list[str] = []
        facts: list[dict[str, Any]] = []
        for process in [place.process for place in self._places]:
            pid = None if process is None else process.pid
            answers = [
                answer
                for found in (runtime.workers([pid]) if pid is not None else [])
                if (answer := runtime.ask(found, question, within=PATIENCE)) is not None
            ]
            if not answers and question != "livez":
                reasons.append("a worker process is being started" if pid is None else f"process {pid} has not begun")
            reasons += [f"process {pid}: {answer.reason}" for answer in answers if not answer.ok]
            facts += [answer.facts for answer in answers]
        if self._signals and question != "livez":
            reasons = ["the worker processes are stopping"]
        return Answer(not reasons, "; ".join(reasons), {"processes": facts})

    def families(self) -> list[Family]:
        """Return what the workers have counted, each under the number of its place. From any thread."""
        parts: list[list[Family]] = []
        for number, process in enumerate([place.process for place in self._places]):
            for found in runtime.workers([process.pid]) if process is not None else []:
                answer = runtime.ask(found, METRICS, within=PATIENCE)
                if answer is not None and METRICS in answer.facts:
                    families = msgspec.convert(answer.facts[METRICS], list[Family])
                    parts.append(labelled(families, process=str(number)))
        return merged(parts)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self._signals:
            self._signals, self._first_signal = 1, now
        elif now - self._first_signal > ONE_SIGNAL:
            self._signals += 1

    def _start(self) -> None:
        now = time.monotonic()
        for place in self._places:
            waits = place.process is None and not (self._burst and place.code is not None)
            if not waits or place.start_at > now:
                continue
            environment = {**os.environ, **self._environment, VARIABLE: str(self._read_end)}
            try:
                # In a session of its own: a Ctrl-C at the terminal is for the supervisor alone.
                place.process = subprocess.Popen(
                    self._command,
                    env=environment,
                    pass_fds=[self._read_end],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                place.start_at = now + place.pause
                logger.warning("no worker process can be started, again in %.0f s: %s", place.pause, error)
                place.pause = min(place.pause * 2, LONGEST_PAUSE)
            else:
                place.started = now
                logger.info("worker process %d has started", place.process.pid)

    def _bury(self) -> None:
        """Take note of the processes that have ended, and when to start others."""
        now = time.monotonic()
        for place in self._places:
            if place.process is None or (code := place.process.poll()) is None:
                continue
            pid, place.process, place.code = place.process.pid, None, code
            if now - place.started > YOUNG:
                place.pause = FIRST_PAUSE
            ended_itself = code == 0 and not self._signals and not self._burst  # it did as much as it may
            if ended_itself:
                place.pause = max(FIRST_PAUSE - (now - place.started), 0.0)
                logger.info("worker process %d has ended, another starts", pid)
            elif self._signals or self._burst or code in INCURABLE:
                well = self._signals or code == 0
                logger.log(logging.INFO if well else logging.ERROR, "worker process %d ended (%s)", pid, _how(code))
            else:
                logger.warning("worker process %d died (%s), another starts in %.0f s", pid, _how(code), place.pause)
            place.start_at = now + place.pause
            place.pause = FIRST_PAUSE if ended_itself else min(place.pause * 2, LONGEST_PAUSE)

    def _over(self) -> bool:
        if any(place.process is not None for place in self._places):
            return False
        if self._signals:
            return True
        ended = [place.code for place in self._places if place.code is not None]
        if len(ended) < len(self._places):
            return False
        return self._burst or all(code in INCURABLE for code in ended)

    def _code(self) -> int:
        """Return 0 if all ended well, the code of one that told what was wrong, else 1."""
        codes = [place.code for place in self._places if place.code]
        told = [code for code in codes if code > 0]
        return 0 if not codes else told[0] if told else 1

    def _stop(self) -> None:
        """Have the children stop; kill those that do not in time, and all at a second signal."""
        now = time.monotonic()
        if self._kill_at is None:
            logger.info("stopping the worker processes")
            os.close(self._write_end)
            self._kill_at = now + self._grace + MARGIN
        if self._signals > 1 or now >= self._kill_at:
            for place in self._places:
                if place.process is not None:
                    logger.warning("worker process %d is killed", place.process.pid)
                    place.process.kill()

    def _sleep(self) -> None:
        """Wait for a signal, a child's end included, or until there is something to do."""
        now = time.monotonic()
        moments = [place.start_at for place in self._places if place.process is None and not self._signals]
        if self._kill_at is not None:
            moments.append(max(self._kill_at, now + 1.0))
        moments = [moment for moment in moments if moment > now]
        ready, _, _ = select.select([self._bell], [], [], min(moments) - now if moments else None)
        if ready:
            os.read(self._bell, 4096)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def follow(stop: Callable[[], Any]) -> None:
    """In a process that a supervisor started, call `stop` when the supervisor wants it or is no more.

    On a thread of its own, once. Elsewhere this does nothing.
    """
    if (number := os.environ.pop(VARIABLE, None)) is None:
        return
    read_end = int(number)
    os.set_inheritable(read_end, False)  # what a job starts is none of the supervisor's

    def wait() -> None:
        while os.read(read_end, 1):
            pass
        stop()

    threading.Thread(target=wait, name="dibs-supervised", daemon=True).start()
