"""From what a run gave to what is done about it. Pure: no I/O, no clock; dice are handed in."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import msgspec

from dibs import retries
from dibs.dialects.upkeep import with_error
from dibs.errors import Cancel, Fail, InvalidArgument, Release, Retry, Signal
from dibs.jobs import Claim, Verdict
from dibs.running import Progress
from dibs.settings import LONGEST_NOTE, MOST_ERROR, seconds
from dibs.states import State
from dibs.stored import errors_of

#: Five errors are on the row: each gets its share of what the last one may have.
SHORT_ERROR = MOST_ERROR // 4


@dataclass(frozen=True, slots=True)
class Returned:
    """The task returned; `result` is JSON text, None where there is nothing to store."""

    result: str | None


@dataclass(frozen=True, slots=True)
class Raised:
    """The task raised an exception or a signal.

    Where it did so in another process, its text, scrubbed there, comes along, and whether trying again is `hopeless` by the task's
    rules, which go by classes that are only there.
    """

    error: BaseException
    text: str | None = None
    hopeless: bool = False


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The task did not return in time; a thread that runs it may still be running."""

    timeout: float


@dataclass(frozen=True, slots=True)
class Died:
    """The process that ran the task ended with it; `how` says in which way."""

    how: str


@dataclass(frozen=True, slots=True)
class Misfit:
    """The payload does not fit this code's signature of the task; the task was not called."""

    problem: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The worker stops: handed back, whether it had started or not."""


Outcome = Returned | Raised | TimedOut | Died | Misfit | Stopped


@dataclass(frozen=True, slots=True)
class Rules:
    """What a verdict goes by, beside the claim and its outcome."""

    backoff: retries.Backoff
    max_releases: int
    fail_on: tuple[type[BaseException], ...] = ()
    retry_on: tuple[type[BaseException], ...] | None = None
    scrub: Callable[[str], str] | None = None
    misfit_wait: float = retries.MISFIT_WAIT

    def text_of(self, error: BaseException) -> str:
        return text_of(error, self.scrub)

    def clean(self, text: str) -> str:
        return clean(text, self.scrub)


def decide(claim: Claim, outcome: Outcome, rules: Rules, *, ran: float | None, at: str, dice: random.Random) -> Verdict:
    """Return the verdict about a run that took `ran` seconds (None: it never started) and ended at `at`."""
    if isinstance(outcome, Returned):
        return done(claim, outcome, ran=ran)
    if isinstance(outcome, Stopped):
        return _back(claim, delay=0.0, ran=ran)
    if isinstance(outcome, Misfit):
        return _misfit(claim, rules.clean(outcome.problem), rules, ran=ran, at=at)
    if isinstance(outcome, TimedOut):
        error = f"timed out after {outcome.timeout:g} s (attempt {claim.attempts} of {claim.max_attempts})"
        return _retry(claim, error, rules, delay=None, ran=ran, at=at, dice=dice)

    if isinstance(outcome, Died):
        error = f"{outcome.how} (attempt {claim.attempts} of {claim.max_attempts})"
        return _retry(claim, error, rules, delay=None, ran=ran, at=at, dice=dice)

    raised = outcome.error
    text = outcome.text if outcome.text is not None else rules.text_of(raised)
    if isinstance(raised, Cancel):
        return _ended(claim, State.CANCELLED, ran=ran, error=_reason(raised, rules) or "cancelled by its task")
    if isinstance(raised, Fail):
        return _ended(claim, State.FAILED, ran=ran, error=text, at=at)
    if isinstance(raised, Release | Retry):
        try:
            delay = None if raised.delay is None else seconds(raised.delay, "delay")
        except InvalidArgument as problem:
            # What the task asks for makes no sense; what it did is not lost for that.
            return _retry(claim, f"{text}\n{problem}", rules, delay=None, ran=ran, at=at, dice=dice)
        if isinstance(raised, Retry):
            return _retry(claim, text, rules, delay=delay, ran=ran, at=at, dice=dice)
        if claim.releases >= rules.max_releases:
            error = f"released {claim.releases} times, which is the most: {_reason(raised, rules) or 'no reason given'}"
            return _ended(claim, State.FAILED, ran=ran, error=shorten(error, MOST_ERROR), at=at)
        return _back(claim, delay=delay or 0.0, ran=ran, released=1, errors=_fitted(claim))
    hopeless = outcome.hopeless if outcome.text is not None else is_hopeless(raised, rules.fail_on, rules.retry_on)
    if hopeless:
        return _ended(claim, State.FAILED, ran=ran, error=text, at=at)
    return _retry(claim, text, rules, delay=None, ran=ran, at=at, dice=dice)


def done(claim: Claim, outcome: Returned, *, ran: float | None) -> Verdict:
    """Return the verdict about a run that returned: one that no rules and no time are needed for."""
    result = None if outcome.result is None else msgspec.Raw(outcome.result.encode())
    return _ended(claim, State.DONE, ran=ran, result=result)


def is_hopeless(
    raised: BaseException,
    fail_on: tuple[type[BaseException], ...],
    retry_on: tuple[type[BaseException], ...] | None,
) -> bool:
    """Does the task say that after this exception another attempt would not help?"""
    return isinstance(raised, fail_on) or (retry_on is not None and not isinstance(raised, retry_on))


def _ended(
    claim: Claim,
    status: State,
    *,
    ran: float | None,
    result: msgspec.Raw | None = None,
    error: str | None = None,
    at: str | None = None,
) -> Verdict:
    return Verdict(
        id=claim.id,
        claims=claim.claims,
        status=status,
        attempts=claim.attempts,
        releases=claim.releases,
        ran=ran,
        keep=retries.keep(status, retention=claim.retention, keyed=claim.task_key is not None),
        result=result,
        error=error,
        errors=_errors(claim, error, at) if error and at else None,
    )


def _retry(
    claim: Claim, error: str, rules: Rules, *, delay: float | None, ran: float | None, at: str, dice: random.Random
) -> Verdict:
    if claim.attempts >= claim.max_attempts:
        return _ended(claim, State.FAILED, ran=ran, error=error, at=at)
    if delay is None:
        delay = rules.backoff.delay(claim.attempts, dice=dice).total_seconds()
    return Verdict(
        id=claim.id,
        claims=claim.claims,
        status=State.READY,
        attempts=claim.attempts,
        releases=claim.releases,
        delay=delay,
        ran=ran,
        error=error,
        errors=_errors(claim, error, at),
    )


def _back(
    claim: Claim,
    *,
    delay: float,
    ran: float | None,
    released: int = 0,
    error: str | None = None,
    errors: msgspec.Raw | None = None,
) -> Verdict:
    """Hand a job back unharmed: the attempt of this run is not counted."""
    return Verdict(
        id=claim.id,
        claims=claim.claims,
        status=State.READY,
        attempts=_uncounted(claim, ran),
        releases=claim.releases + released,
        delay=delay,
        error=error,
        errors=errors,
    )


def _uncounted(claim: Claim, ran: float | None) -> int:
    """Return a job's attempts without this one.

    It is among them once its code was called, or since the claim, where that went straight into a free slot.
    """
    return claim.attempts - (claim.started or ran is not None)


# -- arguments that do not fit -------------------------------------------------------------------

#: In the last of a job's errors: how often running its arguments have not fitted the code that claimed it.
_MISFITS = "misfits"
_MOST_MISFITS = 1_000_000  # more than there can be: somebody else has written it


def _misfit(claim: Claim, problem: str, rules: Rules, *, ran: float | None, at: str) -> Verdict:
    """Leave a job whose arguments do not fit to a worker whose code knows them; fail it once when none came.

    Times running share one entry among its errors, so that they do not push out what attempts left there.
    """
    before = errors_of(claim.errors)
    counted = before[-1].pop(_MISFITS, 0) if before else 0
    misfits = 1 + (counted if isinstance(counted, int) and 0 <= counted < _MOST_MISFITS else 0)
    if misfits > 1:
        before.pop()
    delay = retries.after_misfit(misfits, wait=rules.misfit_wait)
    if delay is None and misfits > 1:
        problem = f"{problem} (released {misfits - 1} times for a worker whose code fits it; none came)"
    count = {} if delay is None else {_MISFITS: misfits}
    attempts = _uncounted(claim, ran)
    errors = with_error(
        msgspec.json.encode(before).decode(), attempt=attempts, error=shorten(problem, SHORT_ERROR), at=at, **count
    )
    if delay is not None:
        return _back(claim, delay=delay, ran=ran, error=problem, errors=msgspec.Raw(errors.encode()))
    failed = _ended(claim, State.FAILED, ran=ran, error=problem, at=at)
    return msgspec.structs.replace(failed, attempts=attempts, errors=msgspec.Raw(errors.encode()))


def _fitted(claim: Claim) -> msgspec.Raw | None:
    """Return a job's errors with the count of misfits taken away, since its code was called; None if there is none."""
    before = errors_of(claim.errors)
    if not before or before[-1].pop(_MISFITS, None) is None:
        return None
    return msgspec.Raw(msgspec.json.encode(before))


def _errors(claim: Claim, error: str, at: str) -> msgspec.Raw:
    return msgspec.Raw(
        with_error(claim.errors, attempt=claim.attempts, error=shorten(error, SHORT_ERROR), at=at).encode()
    )


# -- error texts ---------------------------------------------------------------------------------


def _reason(signal: Signal, rules: Rules) -> str:
    return rules.clean(reason_of(signal))


def reason_of(signal: Signal) -> str:
    """Return a signal's reason as text, whatever was given for one, also where its base's `__init__` was forgotten."""
    try:
        return str(getattr(signal, "reason", None) or "")
    except Exception as problem:  # noqa: BLE001 - what the signal asks for is clear all the same
        return f"a reason that could not be printed: {type(problem).__name__}"


def note_of(progress: Progress) -> str | None:
    """Return the note of what a task said, as it can be written down."""
    return None if progress.note is None else shorten(clean(progress.note), LONGEST_NOTE)


def text_of(error: BaseException, scrub: Callable[[str], str] | None = None) -> str:
    """Return an exception's traceback from the task's own code on, fit to be stored."""
    try:
        text = "".join(traceback.format_exception(type(error), error, _from_task(error.__traceback__)))
    except Exception as problem:  # noqa: BLE001 - an exception may be too odd to print; its job must not hang on it
        text = f"{type(error).__name__} (it could not be printed: {type(problem).__name__})"
    return clean(text.strip(), scrub)


#: The packages whose code stands between a slot and the task.
_CALLERS = ("dibs.worker", "dibs.contrib.django")


def _from_task(trace: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of the worker that called the task."""
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_globals.get("__package__") in _CALLERS:
        trace = trace.tb_next
    return trace


def clean(text: str, scrub: Callable[[str], str] | None = None) -> str:
    """Return a text that every database can store, its head and tail if it is too long.

    It is scrubbed before it is cut, so that no half of a secret is left at the cut.
    """
    if scrub is not None:
        text = scrub(text)
    return shorten(text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode(), MOST_ERROR)


def shorten(text: str, most: int) -> str:
    """Return at most `most` characters of a text: its head and its tail, where what matters is.

    >>> shorten("a" * 50 + "b" * 50, 40)
    'aaaaaaaaa\\n… 81 characters …\\nbbbbbbbbbb'
    """
    if len(text) <= most:
        return text
    kept = max(most - 18 - len(str(len(text))), 2)
    head = kept // 2
    tail = kept - head
    return f"{text[:head]}\n… {len(text) - head - tail} characters …\n{text[-tail:]}"
