"""What a worker and a process that runs jobs for it say to each other: over a socket, in messages of a few types.

Nothing is pickled: arguments and results travel as the JSON that the database has, and of an exception its text.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from dibs.errors import Cancel, Fail, Release, Retry, Signal, TaskError
from dibs.jobs import Claim
from dibs.running import Progress
from dibs.worker.verdicts import Misfit, Outcome, Raised, Returned, clean, is_hopeless, note_of, reason_of, text_of

# -- from the worker -----------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, tag=True):
    """What a process needs before its first job: where modules are found, the arguments, what is called first (each
    `module:function` and its arguments), the program that the worker was started as (a path, or the name of a module),
    and where the app is."""

    path: list[str]
    argv: list[str]
    first: list[list[str]]
    program: str | None
    program_module: str | None
    place: str
    modules: list[str]
    level: int
    worker: str


class Start(msgspec.Struct, frozen=True, tag=True):
    """Run this job, whose lease holds until `good_until` by the machine's monotonic clock."""

    claim: Claim
    good_until: float


class News(msgspec.Struct, frozen=True, tag=True):
    """What the worker knows of the job by now."""

    cancelling: bool
    stopping: bool
    lost: bool
    good_until: float


class Interrupt(msgspec.Struct, frozen=True, tag=True):
    """End the job's code: `why` is "cancel", "lost", "timeout" or "stop"."""

    why: str
    timeout: float


class Stored(msgspec.Struct, frozen=True, tag=True):
    """What became of a checkpoint: stored, or else the claim is lost, or else a problem."""

    number: int
    stored: bool
    problem: str | None = None


class Bye(msgspec.Struct, frozen=True, tag=True):
    """There are no more jobs."""


# -- from the process ----------------------------------------------------------------------------


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The app is there; or else a problem."""

    problem: str | None


class Reached(msgspec.Struct, frozen=True, tag=True):
    """How far the job is."""

    done: float
    note: str | None
    at: float


def reached(progress: Progress) -> Reached:
    """Return progress as a message, which holds no half of a surrogate pair and is not longer than what is written down."""
    return Reached(progress.done, note_of(progress), progress.at)


class Checkpoint(msgspec.Struct, frozen=True, tag=True):
    """Store this; JSON text."""

    number: int
    text: str | None


class Logged(msgspec.Struct, frozen=True, tag=True):
    """A log record."""

    fields: dict[str, Any]


class Ended(msgspec.Struct, frozen=True, tag=True):
    """How the job's code ended: `kind` is "returned", "misfit", "raised", or the name of a signal's class."""

    kind: str
    text: str | None
    reason: str = ""
    delay: float | str | None = None
    hopeless: bool = False
    finished: bool = False
    progress: Reached | None = None


Message = Hello | Start | News | Interrupt | Stored | Bye | Ready | Reached | Checkpoint | Logged | Ended

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode

SIGNALS: dict[str, type[Retry | Release | Cancel | Fail]] = {
    kind.__name__: kind for kind in (Retry, Release, Cancel, Fail)
}


class Channel:
    """One end of the socket. Each direction is for one thread at a time."""

    def __init__(self, descriptor: int) -> None:
        self._connection: Connection[Any, Any] = Connection(descriptor)

    def send(self, message: Message) -> None:
        self._connection.send_bytes(_encode(message))

    def receive(self, within: float | None = None) -> Message | None:
        """Return the next message, None when there is none within so many seconds. Raises EOFError at the end."""
        try:
            if within is not None and not self._connection.poll(within):
                return None
            return _decode(self._connection.recv_bytes())
        except OSError as error:  # the other end died with something unread
            raise EOFError from error

    def close(self) -> None:
        self._connection.close()


# -- outcomes ------------------------------------------------------------------------------------


def ended(
    outcome: Outcome,
    *,
    fail_on: tuple[type[BaseException], ...],
    retry_on: tuple[type[BaseException], ...] | None,
    scrub: Callable[[str], str] | None = None,
    finished: bool,
    progress: Reached | None,
) -> Ended:
    """Return an outcome as a message."""
    if isinstance(outcome, Returned):
        return Ended("returned", outcome.result, finished=finished, progress=progress)
    if isinstance(outcome, Misfit):
        return Ended("misfit", outcome.problem)
    assert isinstance(outcome, Raised)
    error = outcome.error
    signal = next((name for name, kind in SIGNALS.items() if isinstance(error, kind)), None)
    reason = reason_of(error) if isinstance(error, Signal) else type(error).__name__
    return Ended(
        signal or "raised",
        text_of(error, scrub),
        reason=clean(reason, scrub),
        delay=_delay(error) if signal else None,
        hopeless=not signal and is_hopeless(error, fail_on, retry_on),
        finished=finished,
        progress=progress,
    )


def outcome_of(message: Ended) -> Outcome:
    """Return the outcome that a message tells of."""
    if message.kind == "returned":
        return Returned(message.text)
    text = message.text or ""
    if message.kind == "misfit":
        return Misfit(text)
    error: Exception
    match SIGNALS.get(message.kind):
        case None:
            error = TaskError(message.reason, text)
        case kind if issubclass(kind, Retry | Release):
            error = kind(message.reason, delay=message.delay)  # type: ignore[arg-type]  # judged by `decide`
        case kind:
            error = kind(message.reason)
    return Raised(error, text, message.hopeless)


def _delay(error: BaseException) -> float | str | None:
    """Return a signal's delay as what can travel; one that makes no sense as text, which makes none either."""
    assert isinstance(error, Signal)
    delay = getattr(error, "delay", None)
    if isinstance(delay, timedelta):
        return delay.total_seconds()
    if delay is None or isinstance(delay, float):
        return delay
    if isinstance(delay, int) and not isinstance(delay, bool):
        with suppress(OverflowError):
            return delay if abs(delay) < 2**63 else float(delay)
    return type(delay).__name__
