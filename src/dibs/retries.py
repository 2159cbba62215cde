"""What happens next to a job: decided from what its run gave. Pure: no I/O, no clock, dice are handed in."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

from dibs.states import State

DAY = 86_400.0

#: How long a finished row is kept, unless its task says otherwise (`retention=`). 100 jobs a second for
#: seven days are 60 million rows, so what needs no watching goes after one.
KEEP_DONE = DAY
KEEP_DONE_WITH_KEY = 7 * DAY
KEEP_CANCELLED = 7 * DAY
KEEP_FAILED = 30 * DAY

#: For so long (seconds) in all a job is released whose arguments do not fit the code that claimed it, unless the app
#: says otherwise (`Dibs(misfit_wait=…)`): long enough for a rolling deploy, and it ends while somebody still watches.
MISFIT_WAIT = 1800.0

#: Leases of one job that may run out before it counts as one that kills its workers.
MAX_CRASHES = 5


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next attempt: `first × factorⁿ⁻¹` seconds, at most `cap`, ± `jitter`.

    The defaults with twelve attempts span a night's outage and a morning's fix: 5 s, 15 s, 45 s … 6 h, 6 h, 6 h.
    """

    first: float = 5.0
    factor: float = 3.0
    cap: float = 6 * 3600.0
    jitter: float = 0.1

    def delay(self, attempt: int, *, dice: random.Random) -> timedelta:
        """Return how long to wait after `attempt`, the first being 1.

        >>> Backoff(jitter=0).delay(3, dice=random.Random(0))
        datetime.timedelta(seconds=45)
        >>> Backoff(jitter=0).delay(5_000, dice=random.Random(0))
        datetime.timedelta(seconds=21600)
        """
        try:
            seconds = min(self.first * self.factor ** (max(attempt, 1) - 1), self.cap)
        except OverflowError:  # 3 ** 4999 is more than a float can hold
            seconds = self.cap if self.first > 0 else 0.0
        return timedelta(seconds=seconds * (1 + self.jitter * dice.uniform(-1, 1)))


def after_misfit(misfits: int, *, wait: float) -> float | None:
    """Return for how many seconds a job is released whose arguments did not fit, for the `misfits`-th time running.

    None: that was the last time. The pauses grow from 1/1800 of `wait` (seconds) to 1/30 of it, and add up to it.
    They are counted and not measured: a worker that comes hours later is not the first one's fault.

    >>> [after_misfit(n, wait=1800) for n in (1, 2, 6, 7, 34, 35, 36)]
    [1.0, 2.0, 32.0, 60.0, 60.0, 57.0, None]
    >>> after_misfit(1, wait=0)
    """
    pauses = [min(wait / 1800 * 2**n, wait / 30) for n in range(min(misfits, 64))]
    left = wait - sum(pauses[:-1])
    return min(pauses[-1], left) if left > wait * 1e-9 else None


def keep(status: State, *, retention: float | None, keyed: bool) -> float:
    """Return for how many seconds a finished row is kept.

    `retention` is what the task says. It holds for done and cancelled jobs; a failed job is evidence, so it
    is kept for that long or for the usual time, whichever is longer.
    """
    if status is State.FAILED:
        return KEEP_FAILED if retention is None else max(retention, KEEP_FAILED)
    if retention is not None:
        return retention
    if status is State.CANCELLED:
        return KEEP_CANCELLED
    return KEEP_DONE_WITH_KEY if keyed else KEEP_DONE


def frees_key(status: State, *, key_until: str | None) -> bool:
    """Does a job that ends so let go of its key?

    >>> frees_key(State.DONE, key_until=None), frees_key(State.FAILED, key_until=None)
    (False, True)
    """
    return status in (State.FAILED, State.CANCELLED) or (status is State.DONE and key_until == "finished")


def after_expiry(*, attempts: int, max_attempts: int, crashes: int, cancelling: bool) -> tuple[State, str | None]:
    """Decide about a job whose lease ran out; `crashes` counts this one too. Return its state and the reason.

    It goes back without backoff: what happened to its worker says little about the job.
    """
    if cancelling:
        return State.CANCELLED, "cancelled while it ran; its worker went quiet"
    if crashes >= MAX_CRASHES:
        return State.FAILED, f"its lease ran out {crashes} times: it seems to kill its workers"
    if attempts >= max_attempts:
        return State.FAILED, f"its lease ran out in attempt {attempts} of {max_attempts}"
    return State.READY, None
