"""What a running job says about itself: progress and checkpoints, under the fence."""

from __future__ import annotations

import pytest

from conformance.hands import WORKER, Queue
from dibs.jobs import Claim
from dibs.states import State


def progress(queue: Queue, claim: Claim, text: str, *, worker: str = WORKER) -> bool:
    """Write one job's progress; return whether it was written."""
    reports = {(claim.id, claim.claims): text}
    return queue.do(lambda: queue.dialect.write_progress(reports, worker=worker)) == {claim.id}


def checkpoint(queue: Queue, claim: Claim, text: str | None, *, worker: str = WORKER) -> bool:
    return queue.do(
        lambda: queue.dialect.write_checkpoint(claim.id, claims=claim.claims, worker=worker, checkpoint=text)
    )


def test_written_and_read(queue: Queue) -> None:
    """Both are on the row as JSON, the same one again is stored as well, and a checkpoint can be taken away."""
    claim = queue.running()
    for _ in range(2):
        assert progress(queue, claim, '{"done":0.5,"note":"½"}')
        assert checkpoint(queue, claim, '{"row":18446744073709551616}')
    record = queue.record(claim.id)
    assert (record.progress, record.checkpoint) == ({"done": 0.5, "note": "½"}, {"row": 2**64})
    assert checkpoint(queue, claim, None)
    assert queue.record(claim.id).checkpoint is None


@pytest.mark.parametrize("status", [State.READY, State.DONE, State.FAILED])
def test_after_the_end(queue: Queue, status: State) -> None:
    """Once the claim is settled nothing is written any more; what was stays, through retries and the end."""
    claim = queue.running()
    progress(queue, claim, "1")
    checkpoint(queue, claim, "1")
    queue.end(claim, status)
    assert not progress(queue, claim, "2")
    assert not checkpoint(queue, claim, "2")
    record = queue.record(claim.id)
    assert (record.progress, record.checkpoint) == (1, 1)


def test_of_a_lost_claim(queue: Queue) -> None:
    """Refused, also while the job is held by the next one, who reads the last checkpoint; and in another's name."""
    claim = queue.running()
    checkpoint(queue, claim, '{"step":1}')
    queue.lapse(claim.id)
    queue.expire()
    assert not checkpoint(queue, claim, "2")
    (second,) = queue.claim(worker=WORKER)
    assert second.checkpoint is not None
    assert second.checkpoint.replace(" ", "") == '{"step":1}'
    assert not checkpoint(queue, claim, "2")
    assert not progress(queue, claim, "2")
    assert not checkpoint(queue, second, "2", worker="another")
    assert not progress(queue, second, "2", worker="another")
    assert checkpoint(queue, second, "3")
    assert progress(queue, second, "3")


def test_many_at_once(queue: Queue) -> None:
    """Each of several jobs gets its own progress; one that is locked is passed over, and not waited for."""
    claims = [queue.running(payload={"n": n}) for n in range(3)]
    reports = {(claim.id, claim.claims): str(claim.id) for claim in claims}

    def write() -> set[int]:
        return queue.do(lambda: queue.dialect.write_progress(reports, worker=WORKER))

    if queue.db.locks_rows:
        with queue.locked(claims[1].id):
            assert write() == {claims[0].id, claims[2].id}
    assert write() == {claim.id for claim in claims}
    assert [queue.record(claim.id).progress for claim in claims] == [claim.id for claim in claims]


@pytest.mark.parametrize(("status", "kept"), [(State.FAILED, 7), (State.CANCELLED, 7), (State.DONE, None)])
def test_requeue(queue: Queue, status: State, kept: int | None) -> None:
    """A person requeues: a job that broke off goes on from its checkpoint, one that was done begins anew."""
    claim = queue.running()
    progress(queue, claim, "5")
    checkpoint(queue, claim, "7")
    queue.end(claim, status)
    assert queue.requeue(claim.id, force=True) == [claim.id]
    record = queue.record(claim.id)
    assert (record.status, record.progress, record.checkpoint) == (State.READY, None, kept)
