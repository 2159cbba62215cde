"""The state table: the database makes the moves in it and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.hands import FUTURE, PAST, WORKER, Queue, verdict
from dibs.jobs import JobRecord, Settled
from dibs.states import TRANSITIONS, Event, State


def attempt(queue: Queue, event: Event, job: JobRecord) -> None:
    """Do what makes the event happen, as the very worker whose claim is on the row, if one is."""
    ATTEMPTS[event](queue, job)


def claim(queue: Queue, job: JobRecord) -> None:
    queue.claim(worker="another worker")


def settle_as(status: State, **fields: float) -> Callable[[Queue, JobRecord], None]:
    def settle(queue: Queue, job: JobRecord) -> None:
        queue.settle(verdict(job, status, ran=1.0, **fields), worker=job.lease_owner or WORKER)

    return settle


def cancel(queue: Queue, job: JobRecord) -> None:
    """For a running job a person's wish takes effect when it is settled, however it went."""
    if queue.cancel(job.id) and job.status is State.RUNNING:
        settle_as(State.DONE)(queue, job)


def expire(queue: Queue, job: JobRecord) -> None:
    queue.expire()


def requeue(queue: Queue, job: JobRecord) -> None:
    queue.requeue(job.id)


ATTEMPTS: dict[Event, Callable[[Queue, JobRecord], None]] = {
    Event.CLAIM: claim,
    Event.FINISH: settle_as(State.DONE),
    Event.RETRY: settle_as(State.READY, delay=60.0),
    Event.FAIL: settle_as(State.FAILED),
    Event.CANCEL: cancel,
    Event.RELEASE: settle_as(State.READY, releases=1),
    Event.EXPIRE: expire,
    Event.REQUEUE: requeue,
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_move(queue: Queue, state: State, event: Event) -> None:
    """The database makes the moves in the table, and no others: a row that may not move is not touched."""
    job_id = queue.job_in(state)
    if event is Event.EXPIRE:
        queue.write(job_id, lease=1.0, lease_until=PAST)
    before = queue.record(job_id)
    attempt(queue, event, before)
    after = queue.record(job_id)
    if (state, event) in TRANSITIONS:
        assert after.status is TRANSITIONS[state, event]
    else:
        assert after == before


def test_a_task_may_cancel_its_own_job(queue: Queue) -> None:
    """The other way from running to cancelled: the task itself says so."""
    claim = queue.running()
    assert queue.end(claim, State.CANCELLED, error="nothing to do") is Settled.NOW
    assert queue.status(claim.id) is State.CANCELLED


def test_force_sends_a_done_job_round_again(queue: Queue) -> None:
    """The one move that is not in the table, because it takes a person who insists."""
    job_id = queue.job_in(State.DONE)
    assert queue.requeue(job_id) == []
    assert queue.requeue(job_id, force=True) == [job_id]
    assert queue.status(job_id) is State.READY


@pytest.mark.parametrize("state", [State.READY, State.RUNNING])
def test_what_has_not_ended_is_not_pruned(queue: Queue, state: State) -> None:
    """Pruning takes finished rows alone, whatever their expiry says."""
    job_id = queue.job_in(state, key="k")
    queue.write(job_id, expires_at=PAST)
    assert queue.app.prune() == 0
    assert queue.do(lambda: queue.dialect.prune([job_id])) == 0
    assert queue.status(job_id) is state
    assert queue.keys() == {"k": job_id}


@pytest.mark.parametrize("state", [State.DONE, State.FAILED, State.CANCELLED])
def test_what_has_ended_is_pruned_when_its_retention_is_over(queue: Queue, state: State) -> None:
    """Not before, and not kept for ever either."""
    job_id = queue.job_in(state)
    queue.write(job_id, expires_at=FUTURE)
    assert queue.app.prune() == 0
    queue.write(job_id, expires_at=PAST)
    assert queue.app.prune() == 1
    assert queue.statuses() == {}


@pytest.mark.parametrize("end", [State.DONE, State.FAILED, State.CANCELLED])
def test_an_end_is_settled_once(queue: Queue, end: State) -> None:
    """The same claim settled twice: the second verdict changes nothing, also when it says something else."""
    claim = queue.running()
    assert queue.end(claim, end) is Settled.NOW
    before = queue.record(claim.id)
    for other in (State.READY, State.DONE, State.FAILED, State.CANCELLED):
        assert queue.end(claim, other) is Settled.ALREADY
    assert queue.record(claim.id) == before
