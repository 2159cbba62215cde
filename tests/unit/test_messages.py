"""What crosses over between a worker and its processes: outcomes as messages, and what is made of them."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from dibs import Backoff, Cancel, Fail, Release, Retry
from dibs.jobs import Claim, Position, Verdict
from dibs.states import State
from dibs.worker.messages import ended, outcome_of
from dibs.worker.verdicts import Died, Misfit, Outcome, Raised, Returned, Rules, decide


def claim() -> Claim:
    return Claim(
        **dict.fromkeys(Claim.__dataclass_fields__),  # type: ignore[arg-type]
    )


def verdict(outcome: Outcome, **rules: object) -> Verdict:
    """Decide about a first attempt of twelve."""
    job = claim()
    job.id, job.claims, job.attempts, job.max_attempts, job.releases = 1, 1, 1, 12, 0
    job.started, job.position = True, Position("", 1)
    given = Rules(Backoff(jitter=0), 1000, **rules)  # type: ignore[arg-type]
    return decide(job, outcome, given, ran=1.0, at="", dice=random.Random(0))


def across(outcome: Outcome, **rules: object) -> Outcome:
    """Return what is left of an outcome on the other side."""
    given = {"fail_on": (), "retry_on": None, **rules}
    return outcome_of(ended(outcome, finished=False, progress=None, **given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "outcome",
    [
        Returned(None),
        Returned('{"a":1}'),
        Misfit("no"),
        Raised(Retry("r", delay=timedelta(minutes=1))),
        Raised(Retry("r")),
        Raised(Retry("r", delay="soon")),  # type: ignore[arg-type]
        Raised(Retry("r", delay=-1)),
        Raised(Release("r", delay=7)),
        Raised(Cancel("c")),
        Raised(Cancel()),
        Raised(Fail("f")),
        Raised(ValueError("v")),
    ],
)
def test_an_outcome_means_the_same_on_both_sides(outcome: Outcome) -> None:
    """The verdict about it is the same, to the last word."""
    assert verdict(across(outcome)) == verdict(outcome)


def test_rules_go_by_the_classes_over_there() -> None:
    """`fail_on` and `retry_on` are judged where the classes are."""
    outcome = Raised(KeyError("k"))
    assert verdict(across(outcome, fail_on=(LookupError,))).status is State.FAILED
    assert verdict(across(outcome, retry_on=(ValueError,))).status is State.FAILED
    assert verdict(across(outcome, retry_on=(LookupError,))).status is State.READY
    assert verdict(across(outcome), fail_on=(Exception,)).status is State.READY


def test_a_process_that_died() -> None:
    """It is an attempt like any other: retried after the backoff, with the reason."""
    died = verdict(Died("its process ended with signal 11 (SIGSEGV)"))
    assert (died.status, died.delay) == (State.READY, 5.0)
    assert died.error == "its process ended with signal 11 (SIGSEGV) (attempt 1 of 12)"
