"""Events: what happened to jobs, told to handlers of the user's after the database said so.

Handlers are called from a thread of their own, one after the other, so a slow or broken one can hold up other
handlers and never a job. What is more than they can take is dropped and counted.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any, Literal, get_args

from dibs.errors import ConfigurationError
from dibs.jobs import Cancelled, Enqueued, NewJob
from dibs.loop import TaskLoop
from dibs.secrets import scrubbed, unstamped
from dibs.stored import value_of

logger = logging.getLogger("dibs")

EventName = Literal[
    "enqueued", "duplicate", "started", "done", "retried", "failed", "cancelled", "released", "lost", "expired"
]
NAMES: tuple[EventName, ...] = get_args(EventName)

#: Events that wait for their handlers, at most; more are dropped.
MOST_WAITING = 10_000

#: How long (seconds) an async handler may take; then it is cancelled, since others wait for it.
LONGEST_HANDLER = 30.0

#: How long (seconds) a process that ends waits for the handlers of what has happened.
LAST_WAIT = 3.0

#: How often (seconds) it is said that events are dropped.
SAID_EVERY = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a job.

    - `attempts`: runs begun by then. `error`: the scrubbed text of what went wrong, in failed and retried events,
      the reason in others. `exception`: what the task raised, as it is, where it was raised in this process.
    - `delay`: seconds until the job is due again. `ran`: seconds that its code ran.
    - `worker`: the worker that held it; of an expired one the worker that went quiet. None for an enqueue.
    - `at`: when it happened, by the database's clock where a claim tells it, else by this machine's.
    """

    name: EventName
    job_id: int
    task: str
    queue: str
    attempts: int = 0
    max_attempts: int = 0
    key: str | None = None
    error: str | None = None
    exception: BaseException | None = field(default=None, repr=False, compare=False)
    delay: float | None = None
    ran: float | None = None
    worker: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


Handler = Callable[[Event], Any]


class Events:
    """The handlers of one app, and the events that wait for them in this process."""

    def __init__(self, scrub: Callable[[str], str] | None = None) -> None:
        self._scrub = scrub
        #: By name; empty where nobody listens, which is all that the paths of jobs look at.
        self.handlers: dict[str, list[Handler]] = {}
        #: Events that were dropped in this process, since the handlers were too slow.
        self.dropped = 0
        #: Where async handlers run: on the loop of the worker, if one runs here.
        self.loop = TaskLoop()
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Event | threading.Event] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process = 0
        self._say_at = 0.0

    def add(self, names: tuple[str, ...], handler: Handler) -> None:
        for name in names:
            self.handlers.setdefault(name, []).append(handler)

    def tell(self, event: Event) -> None:
        """Let the handlers know, by and by; never waits."""
        if event.name not in self.handlers:
            return
        if self._process != os.getpid():
            self._start()
        if self._queue.qsize() >= MOST_WAITING:
            self._drop()
            return
        self._queue.put(event)

    def tell_enqueued(self, new: NewJob, enqueued: Enqueued) -> None:
        """Tell what became of an enqueue."""
        name: EventName = "enqueued" if enqueued.created else "duplicate"
        if name in self.handlers:
            self.tell(
                Event(
                    name=name,
                    job_id=enqueued.id,
                    task=new.task,
                    queue=new.queue,
                    max_attempts=new.max_attempts,
                    key=new.task_key,
                    delay=new.delay,
                    meta=meta_from(bytes(new.meta) if new.meta is not None else None),
                )
            )

    def tell_cancelled(self, job: Cancelled, reason: str | None) -> None:
        """Tell that a job which waited was cancelled, in the process of whoever cancelled it."""
        self.tell(
            Event(
                name="cancelled",
                job_id=job.id,
                task=job.task,
                queue=job.queue,
                attempts=job.attempts,
                max_attempts=job.max_attempts,
                key=job.key,
                error=reason,
                meta=meta_from(job.meta),
            )
        )

    def flush(self, timeout: float = LAST_WAIT) -> bool:
        """Wait until the handlers have been called for all that has happened; return False if that takes too long."""
        if self._process != os.getpid() or self._thread is threading.current_thread():
            return True
        mark = threading.Event()
        self._queue.put(mark)
        return mark.wait(timeout)

    def _start(self) -> None:
        with self._lock:
            if self._process == os.getpid():
                return
            # Of a parent's thread nothing is left after a fork; what waits in its queue is the parent's to tell.
            self._queue = SimpleQueue()
            self.loop = TaskLoop() if self._process else self.loop
            self._thread = threading.Thread(target=self._work, args=(self._queue,), name="dibs-events", daemon=True)
            self._thread.start()
            if not self._process:
                atexit.register(self.flush)
            self._process = os.getpid()

    def _drop(self) -> None:
        self.dropped += 1
        now = time.monotonic()
        if now >= self._say_at:
            self._say_at = now + SAID_EVERY
            logger.warning("the handlers of events are too slow: %d events dropped in this process", self.dropped)

    def _work(self, queue: SimpleQueue[Event | threading.Event]) -> None:
        while True:
            event = queue.get()
            if isinstance(event, threading.Event):
                event.set()
                continue
            for handler in self.handlers.get(event.name, ()):
                self._call(handler, event)

    def _call(self, handler: Handler, event: Event) -> None:
        named = getattr(handler, "__qualname__", repr(handler))
        try:
            result = handler(event)
            if asyncio.iscoroutine(result):
                future = self.loop.run(result)
                try:
                    future.result(LONGEST_HANDLER)
                except TimeoutError:
                    if not future.cancel():
                        raise  # its own
                    logger.error("the handler %s took longer than %g s and was cancelled", named, LONGEST_HANDLER)
        except BaseException as error:  # noqa: BLE001 - the user's code; this thread is for all handlers
            # Without what it was raised from: that may be the task's own error, which is as it was raised.
            trace = "".join(traceback.format_exception(type(error), error, error.__traceback__, chain=False))
            text = event.error if error is event.exception else scrubbed(trace, self._scrub)
            logger.error("the handler %s of %r met an error: %s", named, event.name, text)


def names_checked(names: tuple[Any, ...]) -> tuple[EventName, ...]:
    """Return the names if all are names of events; raise ConfigurationError with the list if not."""
    if not names or not all(name in NAMES for name in names):
        wrong = ", ".join(repr(name) for name in names if name not in NAMES) or "nothing"
        raise ConfigurationError(f'app.on(…) takes one or more of {", ".join(NAMES)}, not {wrong}: @app.on("failed")')
    return names


def meta_from(text: str | bytes | None) -> dict[str, Any]:
    """Return a row's meta as what the hooks put into it."""
    meta = unstamped(value_of(text))[0]
    return meta if isinstance(meta, dict) else {}
