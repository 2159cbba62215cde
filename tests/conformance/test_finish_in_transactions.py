"""Exactly-once effects: a task settles its own job in the transaction that holds its writes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from conformance.connections.kind import Connected, Kind, done
from conformance.connections.pairs import on_each
from conformance.hands import WORKER, Queue
from dibs import current_job
from dibs.errors import AutocommitConnection, Cancel, DibsError, LostClaim
from dibs.running import CurrentJob
from dibs.states import State
from dibs.tasks import Task
from dibs.worker.runs import Run

WRITE = "INSERT INTO theirs (number) VALUES (1)"


@pytest.fixture
def task(queue: Queue) -> Task[Any, Any]:
    """A task, and a table of the user's own."""
    queue.app.tasks.clear()
    queue.execute("CREATE TABLE IF NOT EXISTS theirs (number INTEGER)")
    queue.execute("DELETE FROM theirs")
    return queue.app.task(name="t", queue="q")(lambda: None)


def run_of(queue: Queue, task: Task[Any, Any], **fields: Any) -> tuple[CurrentJob, Run]:
    """Return a job that is running here, as its task sees it."""
    claim = queue.running(**fields)
    now = time.monotonic()
    run = Run(claim, task, received=now, good_until=now + 60)
    return CurrentJob(queue.app, claim, WORKER, run), run


@on_each()
def test_the_end_is_committed_with_the_writes(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """After the commit the job is done and has its result; before it, it is running."""
    job, run = run_of(queue, task, key="k", key_until="finished")

    async def scenario() -> None:
        async with kind.open(queue.db) as user:
            await done(user.begin())
            await user.finish(job, {"sum": 2**64, "of": "ü%s"})
            await done(user.execute(WRITE))
            assert queue.status(job.id) is State.RUNNING
            await done(user.commit())

    kind.run(scenario())
    record = queue.record(job.id)
    assert (record.status, record.result, record.attempts) == (State.DONE, {"sum": 2**64, "of": "ü%s"}, 1)
    assert record.finished_at is not None
    assert record.expires_at is not None
    assert 6.9 < (record.expires_at - record.finished_at).total_seconds() / 86_400 < 7.1, "done with a key: seven days"
    assert queue.keys() == {}
    assert queue.count("theirs") == 1
    assert run.finished


@on_each()
def test_rolled_back_it_has_not_ended(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """Neither the end nor the writes are there, and the claim is still good."""
    job, run = run_of(queue, task, key="k")

    async def scenario() -> None:
        async with kind.open(queue.db) as user:
            await done(user.begin())
            await user.finish(job)
            await done(user.execute(WRITE))
            await done(user.rollback())

    kind.run(scenario())
    assert queue.status(job.id) is State.RUNNING
    assert queue.keys() == {"k": job.id}
    assert queue.count("theirs") == 0
    assert queue.renew(run.claim).renewed == {job.id}


@on_each()
def test_a_lost_claim_rolls_the_writes_back(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """Claimed again by another worker: LostClaim, let out of the transaction, takes the user's writes with it."""
    job, run = run_of(queue, task)
    queue.lapse(job.id)
    queue.expire()
    (again,) = queue.claim(worker="another")
    before = queue.record(job.id)

    async def scenario() -> None:
        async with kind.open(queue.db) as user:
            await done(user.begin())
            await done(user.execute(WRITE))
            try:
                await user.finish(job)
            except LostClaim as lost:
                assert (lost.job_id, lost.worker) == (job.id, WORKER)
                await done(user.rollback())
            else:
                pytest.fail("the claim was lost")

    kind.run(scenario())
    assert queue.record(job.id) == before
    assert (again.id, queue.count("theirs")) == (job.id, 0)
    assert not run.finished


@on_each(lambda kind: kind.autocommit)
def test_in_autocommit_mode_it_is_refused(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """It would be committed without the writes that it belongs to."""
    job, _ = run_of(queue, task)

    async def scenario() -> None:
        assert kind.autocommit is not None
        async with kind.autocommit(queue.db) as user:
            with pytest.raises(AutocommitConnection, match=r"finish\(\)"):
                await user.finish(job)

    kind.run(scenario())
    assert queue.status(job.id) is State.RUNNING


#: Only the driver that dibs itself uses: what is promised here hangs on the database alone.
one_kind = on_each(lambda kind: kind.name in ("psycopg", "PyMySQL", "sqlite3"))


@one_kind
@pytest.mark.parametrize("wrong", ["claims", "worker", "settled"])
def test_the_fence(queue: Queue, kind: Kind, task: Task[Any, Any], wrong: str) -> None:
    """With another claim's number, under another worker's name, or settled before: nothing changes."""
    job, run = run_of(queue, task)
    worker = WORKER
    if wrong == "claims":
        run.claim.claims += 1
    elif wrong == "worker":
        worker = "another"
    else:
        queue.end(run.claim, State.FAILED)
    before = queue.record(job.id)
    job = CurrentJob(queue.app, run.claim, worker, run)

    async def scenario() -> None:
        async with kind.open(queue.db) as user:
            with pytest.raises(LostClaim):
                await user.finish(job)
            await done(user.commit())

    kind.run(scenario())
    assert queue.record(job.id) == before


@one_kind
def test_a_job_to_be_cancelled_is_not_finished(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """A person's wish is heeded also here: the signal Cancel, which rolls the user's writes back."""
    job, run = run_of(queue, task)
    queue.cancel(job.id)
    run.ask_to_cancel()

    async def scenario() -> None:
        async with kind.open(queue.db) as user:
            with pytest.raises(Cancel):
                await user.finish(job)
            await done(user.rollback())

    kind.run(scenario())
    assert queue.status(job.id) is State.RUNNING


@one_kind
def test_a_worker_takes_it_for_settled(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """Run by a worker: finished and committed is done with that result; what is returned later changes nothing."""
    ran: list[int] = []

    async def body(user: Connected) -> None:
        await user.finish(current_job(), "from finish")
        await done(user.execute(WRITE))
        await done(user.commit())

    @queue.app.task(name="finishes", queue="q")
    def finishes() -> str:
        ran.append(current_job().attempts)

        async def scenario() -> None:
            async with kind.open(queue.db) as user:
                await body(user)

        kind.run(scenario())
        return "returned"

    job = finishes.enqueue()
    queue.app.worker(burst=True).run()
    record = queue.record(job.id)
    assert (record.status, record.result, record.attempts, ran) == (State.DONE, "from finish", 1, [1])
    assert queue.count("theirs") == 1


@on_each()
def test_finished_twice(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """Nobody has cancelled the job, and it is not lost: the error says what is wrong, also after the commit. After a roll back
    it may be finished anew. A result that is too long is left out."""
    job, _ = run_of(queue, task)
    already = r"finish\(\) has settled this job already"

    async def scenario() -> None:
        async with kind.open(queue.db) as user:
            await done(user.begin())
            await user.finish(job, 1)
            with pytest.raises(DibsError, match=already):
                await user.finish(job, 2)
            await done(user.rollback())
        async with kind.open(queue.db) as user:
            await done(user.begin())
            await user.finish(job, "x" * 70_000)
            await done(user.commit())
        async with kind.open(queue.db) as user:
            await done(user.begin())
            with pytest.raises(DibsError, match=already):
                await user.finish(job, 3)
            await done(user.rollback())

    kind.run(scenario())
    record = queue.record(job.id)
    assert (record.status, record.result) == (State.DONE, None)


@one_kind
def test_finished_but_not_committed_is_tried_again(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """A task that calls finish() and then loses its transaction has not done its work: the attempt failed."""

    @queue.app.task(name="forgets", queue="q", max_attempts=1)
    def forgets() -> None:
        async def scenario() -> None:
            async with kind.open(queue.db) as user:
                await user.finish(current_job())
                await done(user.rollback())

        kind.run(scenario())

    job = forgets.enqueue()
    queue.app.worker(burst=True).run()
    record = queue.record(job.id)
    assert record.status is State.FAILED
    assert "was not committed" in (record.error or "")
