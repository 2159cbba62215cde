"""What happens next to a job, decided from what happened to it."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.retries import (
    KEEP_CANCELLED,
    KEEP_DONE,
    KEEP_DONE_WITH_KEY,
    KEEP_FAILED,
    MAX_CRASHES,
    Backoff,
    after_expiry,
    after_misfit,
    frees_key,
    keep,
)
from dibs.states import State

DAY = 86_400.0


def waits(backoff: Backoff, *attempts: int) -> list[float]:
    return [backoff.delay(attempt, dice=random.Random(0)).total_seconds() for attempt in attempts]


def test_the_defaults_span_a_night() -> None:
    """5 s, 15 s, 45 s … up to six hours: between the first of twelve attempts and the last there are 22 hours."""
    usual = Backoff(jitter=0)
    assert waits(usual, 1, 2, 3, 4) == [5, 15, 45, 135]
    assert waits(usual, 8, 9, 11) == [10_935, 21_600, 21_600]
    assert 20 * 3600 < sum(waits(usual, *range(1, 12))) < 24 * 3600


@given(
    attempt=st.integers(-5, 10**9),
    first=st.floats(0, 1e6),
    factor=st.floats(1, 1e6),
    cap=st.floats(0, 3e8),
    jitter=st.floats(0, 1),
    seed=st.integers(),
)
def test_never_longer_than_its_cap(
    attempt: int, first: float, factor: float, cap: float, jitter: float, seed: int
) -> None:
    """At attempt five thousand, or a billion, there is no overflow; and no wait is negative."""
    wait = Backoff(first, factor, cap, jitter).delay(attempt, dice=random.Random(seed))
    assert timedelta(0) <= wait <= timedelta(seconds=cap * (1 + jitter), microseconds=2)


@given(attempt=st.integers(1, 5000), first=st.floats(0.001, 1e4), factor=st.floats(1, 100))
def test_never_shorter_than_the_wait_before(attempt: int, first: float, factor: float) -> None:
    """Without jitter it only grows."""
    backoff = Backoff(first, factor, jitter=0)
    before, after = waits(backoff, attempt, attempt + 1)
    assert before <= after + 1e-6


def test_jitter_spreads_what_failed_together() -> None:
    """A thousand jobs that failed in one moment do not come back in one, and none waits much longer than it should."""
    dice = random.Random(1)
    seconds = [Backoff().delay(1, dice=dice).total_seconds() for _ in range(1000)]
    assert len(set(seconds)) > 900
    assert 4.5 <= min(seconds) < 4.6
    assert 5.4 < max(seconds) <= 5.5


def test_a_first_wait_of_nothing() -> None:
    """Tried again at once, each time."""
    assert waits(Backoff(first=0), 1, 2, 5000) == [0, 0, 0]


@pytest.mark.parametrize(
    ("status", "retention", "keyed", "seconds"),
    [
        (State.DONE, None, False, KEEP_DONE),
        (State.DONE, None, True, KEEP_DONE_WITH_KEY),
        (State.DONE, 5.0, True, 5.0),
        (State.DONE, 0.0, False, 0.0),
        (State.CANCELLED, None, True, KEEP_CANCELLED),
        (State.CANCELLED, 0.0, True, 0.0),
        (State.FAILED, None, False, KEEP_FAILED),
        (State.FAILED, 0.0, False, KEEP_FAILED),
        (State.FAILED, 90 * DAY, False, 90 * DAY),
    ],
)
def test_how_long_a_row_is_kept(status: State, retention: float | None, keyed: bool, seconds: float) -> None:
    """As its task says, else by how it ended; a failed job is evidence and is kept for the usual time at least."""
    assert keep(status, retention=retention, keyed=keyed) == seconds


@pytest.mark.parametrize("key_until", [None, "finished", "pruned"])
def test_who_lets_go_of_a_key(key_until: str | None) -> None:
    """Failed and cancelled always; done only where that was asked for; never what goes on."""
    freed = {status for status in State if frees_key(status, key_until=key_until)}
    assert freed == {State.FAILED, State.CANCELLED} | ({State.DONE} if key_until == "finished" else set())


def expiry(attempts: int = 1, max_attempts: int = 5, crashes: int = 1, cancelling: bool = False) -> State:
    status, reason = after_expiry(attempts=attempts, max_attempts=max_attempts, crashes=crashes, cancelling=cancelling)
    assert (reason is None) == (status is State.READY), "an end has a reason"
    return status


def test_a_lease_that_ran_out() -> None:
    """Back to ready, unless its attempts or its crashes are used up or a person wants it cancelled, which goes first."""
    assert expiry() is State.READY
    assert expiry(attempts=0, max_attempts=1) is State.READY
    assert expiry(attempts=4) is State.READY
    assert expiry(attempts=5) is State.FAILED
    assert expiry(attempts=6) is State.FAILED
    assert expiry(max_attempts=100, crashes=MAX_CRASHES - 1) is State.READY
    assert expiry(max_attempts=100, crashes=MAX_CRASHES) is State.FAILED
    assert expiry(cancelling=True) is State.CANCELLED
    assert expiry(attempts=5, crashes=9, cancelling=True) is State.CANCELLED


@pytest.mark.parametrize("wait", [1800.0, 20.0, 0.9, 86_400.0])
def test_pauses_of_misfits(wait: float) -> None:
    """They grow, up to a thirtieth of the time, and add up to it; then there is none any more."""
    pauses = [pause for n in range(1, 36) if (pause := after_misfit(n, wait=wait)) is not None]
    assert len(pauses) == 35
    assert pauses[:-1] == sorted(pauses[:-1])
    assert (pauses[0], max(pauses)) == (wait / 1800, wait / 30)
    assert sum(pauses) == pytest.approx(wait)
    assert [after_misfit(n, wait=wait) for n in (36, 37, 10_000)] == [None] * 3
    assert after_misfit(1, wait=0.0) is None
