"""From what a run gave to what is done about it."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dibs.errors import Cancel, Fail, Release, Retry
from dibs.jobs import Claim, Position, Verdict
from dibs.retries import KEEP_CANCELLED, KEEP_DONE, KEEP_DONE_WITH_KEY, KEEP_FAILED, Backoff
from dibs.settings import MOST_ERROR
from dibs.states import State
from dibs.worker.verdicts import (
    Misfit,
    Outcome,
    Raised,
    Returned,
    Rules,
    Stopped,
    TimedOut,
    clean,
    decide,
    shorten,
    text_of,
)

NOW = datetime(2030, 1, 2, tzinfo=UTC)
AT = "2030-01-02T00:00:10+00:00"


def claim_of(**fields: Any) -> Claim:
    return Claim(
        **{
            "id": 7,
            "queue": "q",
            "task": "t",
            "payload": "{}",
            "priority": 0,
            "attempts": 2,
            "max_attempts": 5,
            "crashes": 0,
            "releases": 0,
            "claims": 3,
            "position": Position(NOW, 7),
            "task_key": None,
            "key_until": None,
            "retention": None,
            "errors": None,
            "meta": None,
            "checkpoint": None,
            "created_at": NOW,
            "claimed_at": NOW,
            "started": True,
            **fields,
        }
    )


def about(outcome: Outcome, *, ran: float | None = 2.0, max_releases: int = 10, **fields: Any) -> Verdict:
    """Return the verdict about a claim with these fields; it is always about that claim, whatever it says."""
    rules = Rules(Backoff(first=10.0, factor=2.0, jitter=0.0), max_releases)
    verdict = decide(claim_of(**fields), outcome, rules, ran=ran, at=AT, dice=random.Random(0))
    assert (verdict.id, verdict.claims) == (7, 3)
    return verdict


def thrown(error: BaseException) -> Raised:
    """Return the outcome of a task that raises this."""
    try:
        raise error
    except BaseException as caught:
        return Raised(caught)


def kept(verdict: Verdict) -> list[Any]:
    assert verdict.errors is not None
    errors: list[Any] = msgspec.json.decode(verdict.errors)
    return errors


# -- returned --------------------------------------------------------------------------------------


def test_returned_is_done() -> None:
    """With its result as it was encoded."""
    verdict = about(Returned('{"n":18446744073709551616}'))
    assert (verdict.status, verdict.attempts, verdict.ran, verdict.keep) == (State.DONE, 2, 2.0, KEEP_DONE)
    assert bytes(verdict.result or b"") == b'{"n":18446744073709551616}'
    assert (verdict.error, verdict.errors) == (None, None)
    assert about(Returned(None)).result is None


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, KEEP_DONE),
        ({"task_key": "k"}, KEEP_DONE_WITH_KEY),
        ({"task_key": "k", "retention": 5.0}, 5.0),
        ({"retention": 0.0}, 0.0),
    ],
)
def test_how_long_it_is_kept(fields: dict[str, Any], seconds: float) -> None:
    """As the claim says."""
    assert about(Returned(None), **fields).keep == seconds


# -- raised ----------------------------------------------------------------------------------------


def test_an_exception_is_retried() -> None:
    """After the backoff for this attempt, with its traceback on the row."""
    verdict = about(thrown(ValueError("no such order")))
    assert (verdict.status, verdict.attempts, verdict.delay, verdict.releases) == (State.READY, 2, 20.0, 0)
    assert verdict.error is not None
    assert verdict.error.startswith("Traceback")
    assert verdict.error.endswith("ValueError: no such order")
    assert [entry["attempt"] for entry in kept(verdict)] == [2]
    assert kept(verdict)[0]["at"] == AT


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        SystemExit(3),
        asyncio.CancelledError(),
        GeneratorExit(),
        ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
        TimeoutError(),
    ],
    ids=repr,
)
def test_whatever_is_raised_is_an_attempt(error: BaseException) -> None:
    """A task that calls sys.exit, or is cancelled by its own library, has failed this time."""
    verdict = about(thrown(error))
    assert verdict.status is State.READY
    assert type(error).__name__ in (verdict.error or "")


def test_the_last_attempt_fails() -> None:
    """And is kept as evidence."""
    verdict = about(thrown(ValueError("no")), attempts=5)
    assert (verdict.status, verdict.attempts, verdict.keep) == (State.FAILED, 5, KEEP_FAILED)
    assert [entry["attempt"] for entry in kept(verdict)] == [5]


def test_the_last_five_errors_are_kept() -> None:
    """The oldest goes."""
    before = msgspec.json.encode([{"attempt": n, "error": str(n)} for n in range(1, 6)]).decode()
    verdict = about(thrown(ValueError("no")), attempts=6, max_attempts=9, errors=before)
    assert [entry["attempt"] for entry in kept(verdict)] == [2, 3, 4, 5, 6]


def test_a_timeout_is_an_attempt() -> None:
    """It says how long it had."""
    verdict = about(TimedOut(1.5))
    assert (verdict.status, verdict.delay) == (State.READY, 20.0)
    assert verdict.error == "timed out after 1.5 s (attempt 2 of 5)"
    assert about(TimedOut(1.5), attempts=5).status is State.FAILED


# -- arguments that do not fit -----------------------------------------------------------------------


def misfits(times: int, errors: str | None, **fields: Any) -> Verdict:
    """Return the verdict about a job whose arguments have not fitted so many times more."""
    for _ in range(times):
        verdict = about(Misfit("order_id: is missing"), errors=errors, **fields)
        errors = bytes(verdict.errors or b"").decode()
    return verdict


@pytest.mark.parametrize("started", [True, False])
def test_a_misfit_is_released_for_a_while(started: bool) -> None:
    """Ever longer, and no attempt is counted; then it fails once, and says why. One entry tells of all the times."""
    before = json.dumps([{"attempt": n, "error": "e"} for n in (1, 2, 3)])
    first = misfits(1, before, started=started, attempts=4)
    assert (first.status, first.attempts, first.releases, first.delay) == (State.READY, 3, 0, 1.0)
    assert first.error == "order_id: is missing"
    assert kept(first)[:3] == json.loads(before)
    assert kept(first)[3] == {"attempt": 3, "error": "order_id: is missing", "at": AT, "misfits": 1}
    eighth = misfits(8, before, attempts=4)
    assert (eighth.delay, len(kept(eighth)), kept(eighth)[3]["misfits"]) == (60.0, 4, 8)
    last = misfits(36, before, started=started, attempts=4)
    assert (last.status, last.attempts, last.keep) == (State.FAILED, 3, KEEP_FAILED)
    assert last.error == "order_id: is missing (released 35 times for a worker whose code fits it; none came)"
    assert kept(last)[3] == {"attempt": 3, "error": last.error, "at": AT}


def test_misfits_are_counted_anew() -> None:
    """Once the code was called, whatever it gave; and when a person has requeued the job that failed of them."""
    errors = bytes(misfits(20, None).errors or b"").decode()
    for called in (about(thrown(Release("busy")), errors=errors), about(thrown(ValueError("v")), errors=errors)):
        assert called.errors is not None
        assert misfits(1, bytes(called.errors).decode()).delay == 1.0
    failed = bytes(misfits(36, None).errors or b"").decode()
    assert misfits(1, failed).delay == 1.0
    assert about(thrown(Release("busy")), errors=failed).errors is None, "nothing to take away, nothing to write"


# -- signals ---------------------------------------------------------------------------------------


def test_retry() -> None:
    """After the delay it names, or after the usual one; the attempt counts, and the last one is the last."""
    assert about(thrown(Retry("later", delay=3.5))).delay == 3.5
    assert about(thrown(Retry("later", delay=timedelta(minutes=2)))).delay == 120.0
    assert about(thrown(Retry(delay=0))).delay == 0.0
    usual = about(thrown(Retry("later")))
    assert (usual.status, usual.delay, usual.attempts) == (State.READY, 20.0, 2)
    assert "later" in (usual.error or "")
    assert about(thrown(Retry("later", delay=1)), attempts=5).status is State.FAILED


def test_release() -> None:
    """Back unharmed: the attempt is given back, the release is counted, no error is noted."""
    verdict = about(thrown(Release("busy", delay=30)), releases=2)
    assert (verdict.status, verdict.attempts, verdict.releases, verdict.delay) == (State.READY, 1, 3, 30.0)
    assert (verdict.error, verdict.errors) == (None, None)
    assert about(thrown(Release())).delay == 5.0
    assert about(thrown(Release()), attempts=5, max_attempts=5).status is State.READY, "the attempt isn't counted"


def test_release_is_bounded() -> None:
    """Nothing circles for ever: after the most that is allowed the job fails, and says so."""
    assert about(thrown(Release("busy")), releases=9, max_releases=10).status is State.READY
    verdict = about(thrown(Release("busy")), releases=10, max_releases=10)
    assert verdict.status is State.FAILED
    assert verdict.error == "released 10 times, which is the most: busy"


def test_cancel() -> None:
    """There is nothing left to do: cancelled, with the reason, and no attempt is left over."""
    verdict = about(thrown(Cancel("the order is gone")))
    assert (verdict.status, verdict.error, verdict.keep) == (State.CANCELLED, "the order is gone", KEEP_CANCELLED)
    assert about(thrown(Cancel())).error == "cancelled by its task"
    assert about(thrown(Cancel("x")), retention=0.0).keep == 0.0


def test_fail() -> None:
    """At once, however many attempts are left."""
    verdict = about(thrown(Fail("never")), attempts=1)
    assert (verdict.status, verdict.keep) == (State.FAILED, KEEP_FAILED)
    assert "never" in (verdict.error or "")


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), "soon", True, 1e12])
@pytest.mark.parametrize("signal", [Retry, Release])
def test_a_delay_that_makes_no_sense(signal: type[Retry | Release], delay: Any) -> None:
    """The task's work is not lost for it: it is retried after the usual delay, and both things are said."""
    verdict = about(thrown(signal("why", delay=delay)))
    assert (verdict.status, verdict.delay, verdict.attempts) == (State.READY, 20.0, 2)
    assert "why" in (verdict.error or "")
    assert "delay" in (verdict.error or "")


@pytest.mark.parametrize("reason", [None, 7, "a\0b", "\ud800", ["list"]])
@pytest.mark.parametrize("signal", [Retry, Release, Cancel, Fail])
def test_a_reason_may_be_anything(signal: Any, reason: Any) -> None:
    """What is written is text that every database can store."""
    for fields in ({}, {"releases": 10}):
        verdict = about(thrown(signal(reason)), **fields)
        for text in (verdict.error, bytes(verdict.errors or b"").decode()):
            assert "\0" not in (text or "")
            (text or "").encode()


# -- handed back -----------------------------------------------------------------------------------


def test_stopped_before_it_began() -> None:
    """A held job goes back as it was claimed."""
    verdict = about(Stopped(), ran=None, started=False, attempts=1)
    assert (verdict.status, verdict.attempts, verdict.releases, verdict.delay) == (State.READY, 1, 0, 0.0)
    assert verdict.error is None


@pytest.mark.parametrize(("ran", "started"), [(2.0, True), (2.0, False), (None, True)])
def test_stopped_when_it_had_begun(ran: float | None, started: bool) -> None:
    """The attempt is given back: a deploy burns none. It had been counted when it began, or with the claim."""
    verdict = about(Stopped(), ran=ran, started=started)
    assert (verdict.status, verdict.attempts) == (State.READY, 1)


# -- texts -----------------------------------------------------------------------------------------


def test_long_errors_keep_head_and_tail() -> None:
    """What matters stands at the beginning and at the end."""
    text = clean("head" + "x" * 100_000 + "tail")
    assert len(text) <= MOST_ERROR
    assert text.startswith("head")
    assert text.endswith("tail")
    assert "characters …" in text


@pytest.mark.parametrize("length", [0, 1, 39, 40, 41, 100, 10_000])
@pytest.mark.parametrize("most", [40, 41, 1000])
def test_shorten(length: int, most: int) -> None:
    """Never longer than it may be, and untouched if it fits."""
    text = "".join(chr(97 + n % 26) for n in range(length))
    short = shorten(text, most)
    assert short == text if length <= most else len(short) <= most


def test_what_no_database_could_store() -> None:
    """A NUL and a lone surrogate are replaced."""
    assert clean("a\0b\ud800c") == "a\N{REPLACEMENT CHARACTER}b?c"


class Unprintable(Exception):
    """An exception that raises when it is printed."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def test_an_exception_that_cannot_be_printed() -> None:
    """Its job does not hang on it."""
    text = text_of(Unprintable())
    assert "Unprintable" in text


def test_a_traceback_begins_with_the_task() -> None:
    """The frames of the worker that called it say nothing, and are left out."""
    caller: dict[str, Any] = {"__package__": "dibs.worker"}
    exec(compile("def call(task):\n    task()", "slots.py", "exec"), caller)  # a frame as the worker's are

    def task() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError) as caught:
        caller["call"](task)
    error = caught.value
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next  # without this test's own frame
    text = text_of(error)
    assert "in task" in text
    assert "slots.py" not in text
