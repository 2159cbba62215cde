"""A table of the user's that refers to jobs: nothing of dibs' hangs on it, and it hides and stops nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.hands import PAST, Queue, promptly, verdict
from dibs.jobs import Settled
from dibs.ops import Execute
from dibs.states import State


@pytest.fixture
def exports(queue: Queue) -> Iterator[Queue]:
    """A queue beside which the user keeps a table of exports, each with the job that made it."""
    queue.execute("CREATE TABLE exports (job_id BIGINT NOT NULL, FOREIGN KEY (job_id) REFERENCES dibs_jobs (id))")
    yield queue
    queue.execute("DROP TABLE exports")


def refer_to(queue: Queue, job_id: int) -> None:
    queue.execute("INSERT INTO exports (job_id) VALUES (:id)", id=job_id)


def test_claims_and_ends_go_on(exports: Queue) -> None:
    """A job that something refers to is claimed, retried, done and requeued like any other."""
    queue = exports
    job_id = queue.add()
    refer_to(queue, job_id)
    (claim,) = queue.claim()
    assert queue.end(claim, State.READY, delay=0.0) is Settled.NOW
    (claim,) = queue.claim()
    assert queue.end(claim, State.FAILED) is Settled.NOW
    assert queue.requeue(job_id) == [job_id]


def test_a_reference_that_is_being_made_hides_no_job(exports: Queue) -> None:
    """Where a reference is a weaker lock than a change, an open one keeps nobody from claiming and settling."""
    queue = exports
    if queue.db.kind != "postgres":
        pytest.skip("here a reference locks the row against every change, and it is skipped meanwhile")
    job_id = queue.add()
    with queue.transaction() as user:
        user.answer(Execute("INSERT INTO exports (job_id) VALUES (:id)", {"id": job_id}))
        with promptly():
            (claim,) = queue.claim()
            assert queue.renew(claim).renewed == {job_id}
            assert queue.end(claim, State.DONE) is Settled.NOW


def test_pruning_goes_round_it(exports: Queue) -> None:
    """What can be deleted is; what something refers to stays, with its key, and is tried again later."""
    queue = exports
    claims = [queue.running(key=f"k{n}") for n in range(5)]
    queue.settle(*[verdict(claim, State.DONE) for claim in claims])
    for claim in claims:
        queue.write(claim.id, expires_at=PAST)
    referred = claims[2].id
    refer_to(queue, referred)
    deleted = queue.app.prune()
    if queue.db.kind == "sqlite":
        assert deleted == 5, "dibs' own connections do not heed foreign keys here, as SQLite by itself does not"
        return
    assert deleted == 4
    assert queue.statuses() == {referred: State.DONE}
    assert queue.keys() == {"k2": referred}
    assert queue.app.prune() == 0, "not again at once"
    queue.execute("DELETE FROM exports")
    queue.write(referred, expires_at=PAST)
    assert queue.app.prune() == 1


def test_a_job_that_is_to_be_deleted_at_once(exports: Queue) -> None:
    """With a retention of 0, referred to: the database refuses the deletion, and the others are not harmed."""
    queue = exports
    if queue.db.kind == "sqlite":
        pytest.skip("foreign keys are not heeded on dibs' own connections")
    queue.app.tasks.clear()

    @queue.app.task(name="t", queue="q", retention=0)
    def take() -> None: ...

    jobs = [take.enqueue() for _ in range(3)]
    refer_to(queue, jobs[1].id)
    queue.app.worker(burst=True).run()
    assert queue.statuses() == {jobs[1].id: State.DONE}
