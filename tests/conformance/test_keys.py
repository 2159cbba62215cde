"""Idempotency keys: who holds them, for how long, and how they are let go of and taken back."""

from __future__ import annotations

import pytest

from conformance.hands import PAST, Queue, new_job
from dibs.errors import KeyTaken
from dibs.jobs import Settled
from dibs.states import State

HOLDING = [State.READY, State.RUNNING, State.DONE]
LETTING_GO = [State.FAILED, State.CANCELLED]


@pytest.mark.parametrize("state", HOLDING)
def test_a_key_is_held(queue: Queue, state: State) -> None:
    """A job that is ready, running, or done and still there answers for its key: also after the work is done."""
    first = queue.job_in(state, key="k")
    before = queue.record(first)
    (again,) = queue.enqueue(new_job(key="k"))
    assert (again.id, again.created) == (first, False)
    assert queue.count("dibs_jobs") == 1
    after = queue.record(first)
    assert after.duplicates == 1
    assert [getattr(after, name) for name in after.__struct_fields__[:-1]] == [
        getattr(before, name) for name in before.__struct_fields__[:-1]
    ], "the first job's row is not touched"


@pytest.mark.parametrize("state", LETTING_GO)
def test_a_key_is_let_go(queue: Queue, state: State) -> None:
    """A failed or cancelled job stands in nobody's way."""
    first = queue.job_in(state, key="k")
    (again,) = queue.enqueue(new_job(key="k"))
    assert again.created
    assert again.id != first
    assert queue.keys() == {"k": again.id}


def test_a_cancelled_ready_job_lets_its_key_go(queue: Queue) -> None:
    """Cancelled before it was ever claimed: its key is free at once."""
    first = queue.add(key="k")
    assert queue.cancel(first) == [first]
    assert queue.keys() == {}


def test_a_running_job_that_is_to_be_cancelled_holds_its_key(queue: Queue) -> None:
    """Until it has really ended: else two jobs of one key could run at the same time."""
    claim = queue.running(key="k")
    queue.cancel(claim.id)
    assert queue.keys() == {"k": claim.id}
    queue.end(claim, State.DONE)
    assert queue.keys() == {}


def test_a_retry_keeps_the_key(queue: Queue) -> None:
    """Between two attempts, and while released, the key is held."""
    claim = queue.running(key="k")
    queue.end(claim, State.READY, delay=3600.0)
    (again,) = queue.enqueue(new_job(key="k"))
    assert (again.id, again.created) == (claim.id, False)


def test_key_until_finished(queue: Queue) -> None:
    """With key_until="finished" a done job lets its key go as well, and not before it is done."""
    claim = queue.running(key="k", key_until="finished")
    assert not queue.enqueue(new_job(key="k"))[0].created
    queue.end(claim, State.DONE)
    assert queue.keys() == {}
    assert queue.enqueue(new_job(key="k"))[0].created


def test_a_job_deleted_at_once_lets_its_key_go(queue: Queue) -> None:
    """A retention of 0 leaves no row, so there is nothing that could hold the key."""
    claim = queue.running(key="k", retention=0.0)
    assert queue.end(claim, State.DONE, keep=0.0) is Settled.NOW
    assert queue.keys() == {}


def test_an_expired_job_that_failed_lets_its_key_go(queue: Queue) -> None:
    """Failed by upkeep is failed."""
    claim = queue.running(key="k", max_attempts=1)
    queue.lapse(claim.id)
    assert queue.expire() == {claim.id: State.FAILED}
    assert queue.keys() == {}


def test_an_expired_job_that_is_ready_again_holds_its_key(queue: Queue) -> None:
    """A worker that died changes nothing about whose key it is."""
    claim = queue.running(key="k")
    queue.lapse(claim.id)
    assert queue.expire() == {claim.id: State.READY}
    assert queue.keys() == {"k": claim.id}


def test_pruning_frees_the_key(queue: Queue) -> None:
    """When the row's retention is over, its key is free; and no count of duplicates is left behind."""
    first = queue.job_in(State.DONE, key="k")
    queue.enqueue(new_job(key="k"))
    queue.write(first, expires_at=PAST)
    assert queue.app.prune() == 1
    assert queue.keys() == {}
    assert queue.count("dibs_duplicates") == 0
    assert queue.enqueue(new_job(key="k"))[0].created


def test_a_key_is_unique_for_its_task(queue: Queue) -> None:
    """Two tasks may use the same key; two queues or priorities of one task may not."""
    first, other = queue.enqueue(new_job(key="k"), new_job(key="k", task="another"))
    assert (first.created, other.created) == (True, True)
    (elsewhere,) = queue.enqueue(new_job(key="k", queue="elsewhere", priority=9))
    assert (elsewhere.id, elsewhere.created) == (first.id, False)


def test_jobs_without_a_key_are_never_duplicates(queue: Queue) -> None:
    """No key means no key, not an empty one."""
    added = queue.enqueue(*[new_job() for _ in range(3)])
    assert len({job.id for job in added}) == 3
    assert queue.count("dibs_keys") == 0


def test_two_equal_keys_in_one_bulk(queue: Queue) -> None:
    """The first counts, the second is its duplicate, and the answers stand in the order of the calls."""
    added = queue.enqueue(
        new_job(key="a", payload={"n": 1}),
        new_job(payload={"n": 2}),
        new_job(key="b", payload={"n": 3}),
        new_job(key="a", payload={"n": 4}),
        new_job(key="b", payload={"n": 3}),
    )
    assert [job.created for job in added] == [True, True, True, False, False]
    assert added[3].id == added[0].id
    assert added[4].id == added[2].id
    assert [job.differs for job in added] == [False, False, False, True, False]
    assert [queue.record(job.id).payload["n"] for job in added[:3]] == [1, 2, 3]
    assert [queue.record(job.id).duplicates for job in added[:3]] == [1, 0, 1]


def test_a_bulk_with_old_and_new_keys(queue: Queue) -> None:
    """Some keys are held already and some are not: each job gets the answer that is its own."""
    old = {key: queue.add(key=key) for key in ("b", "d")}
    added = queue.enqueue(*[new_job(key=key) for key in "abcde"])
    assert [job.created for job in added] == [True, False, True, False, True]
    assert {key: job.id for key, job in zip("bd", (added[1], added[3]), strict=True)} == old
    assert queue.keys() == {key: job.id for key, job in zip("abcde", added, strict=True)}


# -- requeue ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", LETTING_GO)
def test_requeue_takes_the_key_back(queue: Queue, state: State) -> None:
    """A job that goes round again answers for its key again."""
    job_id = queue.job_in(state, key="k")
    assert queue.requeue(job_id) == [job_id]
    assert queue.keys() == {"k": job_id}
    (again,) = queue.enqueue(new_job(key="k"))
    assert (again.id, again.created) == (job_id, False)


def test_requeue_refuses_a_key_that_is_taken(queue: Queue) -> None:
    """The holder is named, the refused job stays as it was, and the others go round again."""
    refused, moved, keyless = (queue.job_in(State.FAILED, key=key) for key in ("k", "other", None))
    holder = queue.add(key="k")
    before = queue.record(refused)
    with pytest.raises(KeyTaken, match=f"job {refused} .*held by job {holder}") as caught:
        queue.requeue(refused, moved, keyless)
    assert caught.value.holders == {refused: holder}
    assert caught.value.moved == [moved, keyless]
    assert queue.record(refused) == before
    assert queue.status(moved) is queue.status(keyless) is State.READY
    assert queue.keys() == {"k": holder, "other": moved}


def test_two_requeued_jobs_with_one_key(queue: Queue) -> None:
    """Of two failed jobs that once had the same key one gets it back, and the other is told who has it."""
    first = queue.job_in(State.FAILED, key="k")
    second = queue.job_in(State.FAILED, key="k")
    with pytest.raises(KeyTaken) as caught:
        queue.requeue(second, first)
    assert caught.value.moved == [first]
    assert caught.value.holders == {second: first}


def test_a_forced_requeue_of_a_done_job_keeps_its_own_key(queue: Queue) -> None:
    """It held the key all the time: that is no conflict with itself."""
    job_id = queue.job_in(State.DONE, key="k")
    assert queue.requeue(job_id, force=True) == [job_id]
    assert queue.keys() == {"k": job_id}
