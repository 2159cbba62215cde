"""What a person asks for: look, count, cancel, requeue, pause."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.hands import Queue, new_job
from dibs.errors import InvalidArgument, JobCancelled, JobFailed, JobNotFound, StillRunning
from dibs.jobs import Settled
from dibs.settings import MOST_ERROR
from dibs.states import State

NOBODY = 999_999_999


# -- look ------------------------------------------------------------------------------------------


def test_a_job_looked_up(queue: Queue) -> None:
    """Everything on its row, as it was enqueued."""
    (added,) = queue.enqueue(
        new_job(
            queue="exports",
            task="shop.export",
            payload={"order": 2**64, "text": "ü%s"},
            priority=7,
            max_attempts=3,
            key="order-1",
            key_until="finished",
            retention=60.0,
        )
    )
    record = queue.record(added.id)
    assert (record.id, record.queue, record.task) == (added.id, "exports", "shop.export")
    assert record.payload == {"order": 2**64, "text": "ü%s"}
    assert (record.task_key, record.key_until, record.retention) == ("order-1", "finished", 60.0)
    assert (record.priority, record.max_attempts, record.status) == (7, 3, State.READY)
    assert (record.attempts, record.crashes, record.releases, record.claims) == (0, 0, 0, 0)
    assert (record.result, record.error, record.errors, record.duplicates) == (None, None, [], 0)
    assert record.lease_owner is record.lease_until is record.lease is record.started_at is None  # type: ignore[comparison-overlap]
    assert record.finished_at is record.expires_at is record.cancel_requested_at is None
    assert record.meta is record.progress is record.checkpoint is None


def test_no_such_job(queue: Queue) -> None:
    """An error that has the id, and is a LookupError."""
    with pytest.raises(JobNotFound, match=str(NOBODY)) as caught:
        queue.app.job(NOBODY)
    assert caught.value.job_id == NOBODY
    assert isinstance(caught.value, LookupError)


def test_the_newest_first(queue: Queue) -> None:
    """Page by page, and by status and queue."""
    added = [queue.add(queue="a" if n % 2 else "b") for n in range(6)]
    done = queue.job_in(State.DONE, queue="c")
    assert [record.id for record in queue.app.jobs()] == [done, *added[::-1]]
    first = queue.app.jobs(limit=3)
    assert [record.id for record in first] == [done, added[5], added[4]]
    assert [record.id for record in queue.app.jobs(before=first[-1].id)] == added[3::-1]
    assert [record.id for record in queue.app.jobs(queue="a")] == added[5::-2]
    assert [record.id for record in queue.app.jobs(status="done")] == [done]
    assert queue.app.jobs(status="ready", queue="c") == []
    assert [record.id for record in queue.app.jobs(status=State.READY, queue="b", limit=1)] == [added[4]]


def test_counts(queue: Queue) -> None:
    """How many jobs each queue has in each status; nothing is said of what there is none of."""
    assert queue.app.counts() == {}
    for state in sorted(State, key=lambda state: state is State.READY):
        queue.job_in(state, queue=f"of {state}")
        queue.job_in(state, queue="ü")
    queue.add(queue="ü")
    counts = queue.app.counts()
    assert counts.pop("ü") == {"ready": 2, "running": 1, "done": 1, "failed": 1, "cancelled": 1}
    assert counts == {f"of {state}": {str(state): 1} for state in State}


# -- cancel ----------------------------------------------------------------------------------------


def test_cancel_says_for_which_it_holds(queue: Queue) -> None:
    """Ready and running ones; what has ended, or never was, is missing from the answer and left alone."""
    jobs = {state: queue.job_in(state) for state in sorted(State, key=lambda state: state is State.READY)}
    before = {state: queue.record(jobs[state]) for state in State}
    answer = queue.cancel(*jobs.values(), NOBODY, reason="not needed")
    assert answer == sorted([jobs[State.READY], jobs[State.RUNNING]])
    for state in (State.DONE, State.FAILED, State.CANCELLED):
        assert queue.record(jobs[state]) == before[state]
    ready = queue.record(jobs[State.READY])
    assert (ready.status, ready.error) == (State.CANCELLED, "not needed")
    assert ready.finished_at is not None
    running = queue.record(jobs[State.RUNNING])
    assert running.status is State.RUNNING
    assert running.cancel_requested_at is not None
    assert queue.do(lambda: queue.dialect.cancelling([jobs[State.RUNNING], jobs[State.READY]])) == {running.id}


def test_cancelled_twice(queue: Queue) -> None:
    """A running job still ends cancelled; the first wish counts."""
    claim = queue.running()
    queue.cancel(claim.id)
    first = queue.record(claim.id).cancel_requested_at
    assert queue.cancel(claim.id) == [claim.id]
    assert queue.record(claim.id).cancel_requested_at == first


def test_one_id_or_many(queue: Queue) -> None:
    """An id, a list, a generator, or nothing."""
    jobs = [queue.add() for _ in range(4)]
    assert queue.app.cancel(jobs[0]) == [jobs[0]]
    assert queue.app.cancel(job_id for job_id in (jobs[2], jobs[1], jobs[2])) == [jobs[1], jobs[2]]
    assert queue.app.cancel([]) == []
    assert queue.app.requeue([]) == []
    assert queue.app.requeue(jobs[0]) == [jobs[0]]
    for wrong in (-1, 2**63, True, "7", 1.0):
        with pytest.raises((InvalidArgument, TypeError)):
            queue.app.cancel([wrong])  # type: ignore[list-item]


def test_hundreds_at_once(queue: Queue) -> None:
    """As many as there are."""
    jobs = [job.id for job in queue.enqueue(*[new_job(key=f"k{n}") for n in range(700)])]
    assert queue.cancel(*jobs) == jobs
    assert queue.keys() == {}
    assert queue.requeue(*jobs) == jobs
    assert queue.keys() == {f"k{n}": job_id for n, job_id in enumerate(jobs)}


# -- requeue ---------------------------------------------------------------------------------------


def test_requeue_starts_from_the_beginning(queue: Queue) -> None:
    """Due now, attempts from 0, no end on the row any more; what it was given, and its history, stay."""
    claim = queue.running(payload={"n": 1}, max_attempts=3, key="k")
    queue.write(claim.id, crashes=2, releases=3)
    queue.end(claim, State.FAILED, error="why", errors=[{"attempt": 1, "error": "why"}], result="1")
    assert queue.requeue(claim.id) == [claim.id]
    record = queue.record(claim.id)
    assert (record.status, record.attempts, record.crashes, record.releases) == (State.READY, 0, 0, 0)
    assert record.finished_at is record.expires_at is record.started_at is record.cancel_requested_at is None
    assert (record.result, record.error) == (None, None)
    assert (record.payload, record.max_attempts, record.task_key) == ({"n": 1}, 3, "k")
    assert [entry["error"] for entry in record.errors] == ["why"]
    (again,) = queue.claim()
    assert (again.id, again.attempts, again.claims) == (claim.id, 1, 2)
    assert queue.end(again, State.DONE) is Settled.NOW


def test_requeue_of_a_cancelled_job_runs_it(queue: Queue) -> None:
    """The wish to cancel it is gone with that: it is not cancelled again when it is settled."""
    claim = queue.running()
    queue.cancel(claim.id)
    queue.end(claim, State.DONE)
    queue.requeue(claim.id)
    (again,) = queue.claim()
    queue.end(again, State.DONE)
    assert queue.status(claim.id) is State.DONE


def test_requeue_says_what_it_moved(queue: Queue) -> None:
    """What is ready, running, done or not there is missing from the answer."""
    jobs = {state: queue.job_in(state) for state in sorted(State, key=lambda state: state is State.READY)}
    moved = queue.requeue(*jobs.values(), NOBODY)
    assert moved == sorted([jobs[State.FAILED], jobs[State.CANCELLED]])
    assert queue.status(jobs[State.DONE]) is State.DONE
    assert queue.requeue(*jobs.values(), force=True) == [jobs[State.DONE]]


# -- pause -----------------------------------------------------------------------------------------


def test_pause_and_resume(queue: Queue) -> None:
    """Each says whether it changed anything; who paused, and since when, can be seen."""
    assert queue.app.resume("q") is False
    assert queue.app.pause("q", by="ann") is True
    assert queue.app.pause("q", by="bob") is False
    ((name, since, by),) = queue.do(queue.dialect.paused)
    assert (name, by) == ("q", "ann")
    assert since.utcoffset() is not None
    assert queue.app.resume("q") is True
    assert queue.app.resume("q") is False
    assert queue.do(queue.dialect.paused) == []


def test_a_queue_is_paused_before_it_has_jobs(queue: Queue) -> None:
    """A queue needs no creating, also to be paused; enqueueing into it goes on."""
    queue.app.pause("later")
    job_id = queue.add(queue="later")
    assert queue.claim(queue="later") == []
    queue.app.resume("later")
    assert [claim.id for claim in queue.claim(queue="later")] == [job_id]


def test_what_runs_goes_on_when_its_queue_is_paused(queue: Queue) -> None:
    """It is renewed and settled as ever."""
    claim = queue.running()
    queue.app.pause("q")
    assert queue.renew(claim).renewed == {claim.id}
    assert queue.end(claim, State.READY) is Settled.NOW
    assert queue.claim() == []


@pytest.mark.parametrize("wrong", ["", "x" * 201, "a\0b", "\ud800", 7, None])
def test_names_are_checked(queue: Queue, wrong: str) -> None:
    """Alike on every database, at the call."""
    for call in (queue.app.pause, queue.app.resume):
        with pytest.raises(InvalidArgument, match="queue"):
            call(wrong)


@pytest.mark.parametrize("wrong", [-1, 2**63, 2**200, True, "7", 1.5, None])
def test_ids_are_checked(queue: Queue, wrong: int) -> None:
    """What can be no job's id is refused at the call, by every database alike."""
    for call in (queue.app.job, queue.app.cancel, queue.app.requeue, lambda wrong: queue.app.jobs(before=wrong)):
        with pytest.raises((InvalidArgument, TypeError)):
            call(wrong)


@pytest.mark.parametrize(
    "wrong", [{"status": "nonsense"}, {"status": ""}, {"limit": -1}, {"limit": 1.5}, {"limit": None}], ids=str
)
def test_what_is_asked_for_is_checked(queue: Queue, wrong: dict[str, Any]) -> None:
    """A status that there is none of, a limit that is no number."""
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        queue.app.jobs(**wrong)


@pytest.mark.parametrize("wrong", ["a\0b", "\ud800"])
def test_reasons_are_checked(queue: Queue, wrong: str) -> None:
    """Text that not every database could store is refused by all, and so is more of it than an error may have."""
    job_id = queue.add()
    for reason in (wrong, "x" * (MOST_ERROR + 1)):
        with pytest.raises(InvalidArgument, match="reason"):
            queue.app.cancel(job_id, reason=reason)
        with pytest.raises(InvalidArgument, match="reason"):
            queue.app.cancel(queue="q", reason=reason)
    with pytest.raises(InvalidArgument, match="by"):
        queue.app.pause("q", by=wrong)
    assert queue.status(job_id) is State.READY
    assert queue.app.cancel(job_id, reason="ü%s'\n🍏" * 1000) == [job_id]
    assert queue.record(job_id).error == "ü%s'\n🍏" * 1000


# -- join ------------------------------------------------------------------------------------------


def test_join(queue: Queue) -> None:
    """The result as annotated, or an error that says how it ended or that it has not."""
    queue.app.tasks.clear()

    @queue.app.task(name="t", queue="q")
    def number() -> tuple[int, int]:
        return 1, 2**70

    job = number.enqueue()
    with pytest.raises(StillRunning, match="ready") as waiting:
        job.join(timeout=0)
    assert isinstance(waiting.value, TimeoutError)
    (claim,) = queue.claim()
    with pytest.raises(StillRunning, match="running"):
        job.join(timeout=0.01)
    queue.end(claim, State.DONE, result=f"[1,{2**70}]")
    assert job.join(timeout=5) == (1, 2**70)

    for status, error in ((State.FAILED, JobFailed), (State.CANCELLED, JobCancelled)):
        job = number.enqueue()
        (claim,) = queue.claim()
        queue.end(claim, status, error="line\nlast line")
        with pytest.raises(error, match="last line"):
            job.join(timeout=5)
    job = number.using(retention=0).enqueue()
    (claim,) = queue.claim()
    queue.end(claim, State.DONE, keep=0.0)
    with pytest.raises(JobNotFound):
        job.join(timeout=5)
