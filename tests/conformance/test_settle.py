"""Settling: what a verdict leaves on the row."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from conformance.hands import Queue, new_job, verdict
from dibs.jobs import JobRecord, Settled
from dibs.retries import KEEP_CANCELLED
from dibs.states import FINAL, State

DAY = 86_400.0


def kept_for(record: JobRecord) -> float:
    """Return how many days a finished row is kept from its end on."""
    assert record.finished_at is not None
    assert record.expires_at is not None
    return (record.expires_at - record.finished_at).total_seconds() / DAY


@pytest.fixture(autouse=True, params=["in haste", "at leisure"])
def _pace(request: pytest.FixtureRequest, queue: Queue) -> None:
    queue.hasty = request.param == "in haste"


@pytest.mark.parametrize("status", sorted(FINAL))
def test_an_end(queue: Queue, status: State) -> None:
    """When it ended, for how long it is kept, what came of it; and no lease any more."""
    claim = queue.running()
    queue.end(claim, status, keep=3 * DAY, ran=2.0, error="why", errors=[{"attempt": 1, "error": "why"}])
    record = queue.record(claim.id)
    assert (record.status, record.attempts, record.lease_until) == (status, 1, None)
    assert kept_for(record) == pytest.approx(3, abs=0.001)
    assert record.finished_at is not None
    assert timedelta(0) <= record.finished_at - claim.claimed_at < timedelta(seconds=30)
    assert (record.error, record.errors) == ("why", [{"attempt": 1, "error": "why"}])


def test_a_retry(queue: Queue) -> None:
    """Ready again after the delay, with what went wrong, and nothing on it that only ended jobs have."""
    claim = queue.running()
    queue.end(claim, State.READY, delay=45.0, ran=1.0, error="no", errors=[{"attempt": 1, "error": "no"}])
    record = queue.record(claim.id)
    assert (record.status, record.attempts, record.error) == (State.READY, 1, "no")
    assert record.lease_until is record.finished_at is record.expires_at is record.result is None
    assert 44 < (record.run_at - claim.claimed_at).total_seconds() < 75
    assert queue.claim() == []


def test_a_release(queue: Queue) -> None:
    """The attempt is given back and the release is counted."""
    claim = queue.running()
    queue.end(claim, State.READY, attempts=0, releases=3, delay=0.0)
    record = queue.record(claim.id)
    assert (record.attempts, record.releases, record.error) == (0, 3, None)
    (again,) = queue.claim()
    assert (again.attempts, again.releases, again.claims) == (1, 3, 2)


@pytest.mark.parametrize(
    "result",
    [
        None,
        0,
        -0.5,
        "",
        [],
        {},
        2**64,
        -(2**200),
        10**400 + 7,
        0.1 + 0.2,
        1.7976931348623157e308,
        5e-324,
        'Zoë said: "100 %s" \\ \n \u2028 🍏 \x7f \x01',
        {"b": [1, {"c": None}], "a": True, "": False},
        "x" * 65_000,
        "ü" * 20_000,
        [[[[[[[[[[]]]]]]]]]],
    ],
    ids=lambda value: f"{value!r:.30}".encode("ascii", "backslashreplace").decode(),
)
def test_results_are_exact(queue: Queue, result: Any) -> None:
    """A result comes back as what it was: no number through a float, no text through another alphabet."""
    claim = queue.running()
    text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    queue.end(claim, State.DONE, **({} if result is None else {"result": text}))
    assert queue.record(claim.id).result == result
    if result is not None:
        assert queue.fetch("SELECT result FROM dibs_jobs") == [(text,)]


def test_a_result_of_null_is_a_result(queue: Queue) -> None:
    """JSON's null is stored as it is and comes back as None."""
    claim = queue.running()
    queue.end(claim, State.DONE, result="null")
    assert queue.record(claim.id).result is None
    assert queue.status(claim.id) is State.DONE


def test_errors_are_exact(queue: Queue) -> None:
    """Long, of several lines, in any alphabet."""
    claim = queue.running()
    error = "Traceback:\n" + "  'é' \"%s\" {now} \\N 🍏\n" * 600
    kept = [{"attempt": n, "error": error[: n * 100], "at": "2030-01-01T00:00:00+00:00"} for n in range(1, 6)]
    queue.end(claim, State.FAILED, error=error, errors=kept)
    record = queue.record(claim.id)
    assert (record.error, record.errors) == (error, kept)


def test_what_a_verdict_does_not_say_stays(queue: Queue) -> None:
    """The last error and the list of errors are kept when a later run goes well."""
    claim = queue.running()
    queue.end(claim, State.READY, error="first", errors=[{"attempt": 1, "error": "first"}])
    (claim,) = queue.claim()
    assert claim.errors is not None
    assert json.loads(claim.errors) == [{"attempt": 1, "error": "first"}]
    queue.end(claim, State.DONE, result="1")
    record = queue.record(claim.id)
    assert (record.error, record.errors, record.result) == ("first", [{"attempt": 1, "error": "first"}], 1)


@pytest.mark.parametrize("status", sorted(FINAL))
def test_a_retention_of_0_deletes_at_once(queue: Queue, status: State) -> None:
    """Nothing is left of it."""
    claim, other = queue.running(key="k"), queue.running()
    answers = queue.settle(verdict(claim, status, keep=0.0, result="1"), verdict(other, status))
    assert answers == [Settled.NOW, Settled.NOW]
    assert list(queue.statuses()) == [other.id]
    assert queue.keys() == {}


def test_a_retry_is_not_deleted_for_its_retention(queue: Queue) -> None:
    """A retention of 0 is for jobs that have ended."""
    claim = queue.running(retention=0.0)
    assert queue.end(claim, State.READY, keep=0.0) is Settled.NOW
    assert queue.status(claim.id) is State.READY


# -- started ---------------------------------------------------------------------------------------


def test_a_held_job_that_ran_was_started(queue: Queue) -> None:
    """So short that nobody marked it: the start is counted back from its end."""
    claim = queue.running(start=0)
    queue.end(claim, State.DONE, attempts=1, ran=10.0)
    record = queue.record(claim.id)
    assert record.attempts == 1
    assert record.started_at is not None
    assert record.finished_at is not None
    assert (record.finished_at - record.started_at).total_seconds() == pytest.approx(10, abs=0.01)


def test_a_held_job_that_never_ran_was_not(queue: Queue) -> None:
    """Given back before it began: no start, no attempt."""
    claim = queue.running(start=0)
    queue.end(claim, State.READY, attempts=0)
    record = queue.record(claim.id)
    assert (record.attempts, record.started_at) == (0, None)


# -- cancelled meanwhile -----------------------------------------------------------------------------


@pytest.mark.parametrize("status", [State.DONE, State.READY, State.FAILED, State.CANCELLED])
def test_a_wish_to_cancel_overrides_every_verdict(queue: Queue, status: State) -> None:
    """Whatever the task did: the job ends cancelled, is not retried, lets its key go and is kept as cancelled ones."""
    claim, other = queue.running(key="k"), queue.running()
    assert queue.cancel(claim.id) == [claim.id]
    assert queue.status(claim.id) is State.RUNNING, "not before it has ended"
    answers = queue.settle(verdict(claim, status, delay=5.0, ran=1.0), verdict(other, status))
    assert answers == [Settled.NOW, Settled.NOW]
    record = queue.record(claim.id)
    assert record.status is State.CANCELLED
    assert record.cancel_requested_at is not None
    assert kept_for(record) == pytest.approx(KEEP_CANCELLED / DAY, abs=0.001)
    assert queue.keys() == {}
    assert queue.status(other.id) is status, "its neighbour in the batch is settled as it should be"


def test_a_cancelled_job_is_kept_as_its_task_says(queue: Queue) -> None:
    """The retention on the row holds also when a person ends it."""
    claim = queue.running(retention=2 * DAY)
    queue.cancel(claim.id)
    queue.end(claim, State.READY)
    assert kept_for(queue.record(claim.id)) == pytest.approx(2, abs=0.001)


# -- batches ---------------------------------------------------------------------------------------


def test_a_large_batch_of_all_sorts(queue: Queue) -> None:
    """Each verdict goes to its own job, whatever the order."""
    jobs = queue.enqueue(*[new_job(payload={"n": n}, key=f"k{n}" if n % 3 else None) for n in range(300)])
    by_id = {claim.id: claim for claim in queue.claim(limit=300)}
    claims = [by_id[job.id] for job in jobs]
    statuses = [State.DONE, State.READY, State.FAILED, State.CANCELLED]
    verdicts = [
        verdict(claim, statuses[n % 4], result=str(n), error=f"e{n}", keep=0.0 if n % 20 == 0 else 60.0, delay=60.0)
        for n, claim in enumerate(claims)
    ]
    answers = queue.settle(*verdicts[::-1])
    assert set(answers) == {Settled.NOW}
    rows = {record.id: record for record in queue.app.jobs(limit=300)}
    for n, job in enumerate(jobs):
        if n % 20 == 0:
            assert job.id not in rows
            continue
        record = rows[job.id]
        assert (record.status, record.error, record.payload) == (statuses[n % 4], f"e{n}", {"n": n})
        if record.status is not State.READY:
            assert record.result == n
    held = {n for n in range(300) if n % 3 and n % 4 in (0, 1) and n % 20}
    assert queue.keys() == {f"k{n}": jobs[n].id for n in held}


def test_nobody_elses_job(queue: Queue) -> None:
    """A settle and a renewal change the rows that they name and no others."""
    mine, ready, running = queue.running(), queue.add(delay=60), queue.running(worker="another")
    before = queue.record(ready), queue.record(running.id)
    queue.renew(mine)
    queue.end(mine, State.FAILED)
    assert (queue.record(ready), queue.record(running.id)) == before
