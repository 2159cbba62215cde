"""Upkeep: claims whose lease ran out are taken back, old rows pruned, and each chore is done by one of many."""

from __future__ import annotations

import pytest

from conformance.hands import FUTURE, PAST, WORKER, Queue, new_job, promptly, verdict
from conformance.test_keys_at_once import at_once
from conformance.test_settle import kept_for
from dibs.jobs import Expired, Settled
from dibs.ops import Execute, Op
from dibs.retries import MAX_CRASHES
from dibs.states import State
from dibs.worker import upkeep

# -- expire ----------------------------------------------------------------------------------------


def test_a_lease_that_ran_out(queue: Queue) -> None:
    """The job is ready again, due now, without backoff; the attempt stays used, the crash is counted."""
    claim = queue.running(key="k")
    queue.lapse(claim.id)
    expired = queue.do(lambda: queue.dialect.expire(reachable=1e9, limit=9))
    fact = Expired(claim.id, "t", "q", WORKER, State.READY, 1, 12, "k", f"its lease ran out: {WORKER} went quiet", None)
    assert expired == [fact]
    record = queue.record(claim.id)
    assert (record.status, record.attempts, record.crashes, record.claims) == (State.READY, 1, 1, 1)
    assert (record.lease_owner, record.lease_until) == (None, None)
    assert WORKER in (record.error or "")
    (again,) = queue.claim(worker="another")
    assert (again.id, again.attempts, again.crashes, again.claims) == (claim.id, 2, 1, 2)


def test_a_lease_that_holds_is_left_alone(queue: Queue) -> None:
    """Before it is past nothing happens, and nothing to a job that nobody holds."""
    claim, held = queue.running(), queue.running(start=0)
    queue.job_in(State.DONE)
    queue.add()
    before = queue.app.jobs()
    assert queue.expire() == {}
    assert queue.app.jobs() == before
    queue.lapse(held.id)
    assert queue.expire() == {held.id: State.READY}
    assert queue.status(claim.id) is State.RUNNING


def test_held_neighbours_are_not_charged(queue: Queue) -> None:
    """A worker died: what it had started has used an attempt, what it merely held has not."""
    queue.enqueue(*[new_job() for _ in range(4)])
    started, *held = queue.claim(start=1)
    queue.lapse(started.id, *[claim.id for claim in held])
    queue.expire()
    assert queue.record(started.id).attempts == 1
    assert [queue.record(claim.id).attempts for claim in held] == [0, 0, 0]


def test_an_owner_has_its_whole_lease_in_which_to_renew(queue: Queue) -> None:
    """After an outage every lease is past while the work goes on: only time that the database could be reached counts."""
    claim = queue.running(lease=60.0)
    queue.lapse(claim.id)
    assert queue.expire(reachable=59.9) == {}
    assert queue.status(claim.id) is State.RUNNING
    assert queue.expire(reachable=60.0) == {claim.id: State.READY}


def test_each_lease_by_its_own_length(queue: Queue) -> None:
    """A short lease next to a long one: the length is on the row."""
    short, long = queue.running(lease=1.0), queue.running(lease=100.0)
    queue.lapse(short.id, long.id)
    assert queue.expire(reachable=5.0) == {short.id: State.READY}
    queue.renew(long, lease=2.0)
    queue.lapse(long.id)
    assert queue.expire(reachable=5.0) == {long.id: State.READY}


def test_the_last_attempt(queue: Queue) -> None:
    """With the runs that are allowed used up it has failed, and says why, and is kept as evidence."""
    claim = queue.running(max_attempts=1, key="k")
    queue.write(claim.id, errors='[{"attempt":0,"error":"before"}]')
    queue.lapse(claim.id)
    assert queue.expire() == {claim.id: State.FAILED}
    record = queue.record(claim.id)
    assert (record.attempts, record.crashes, record.lease_until) == (1, 1, None)
    assert "lease ran out in attempt 1 of 1" in (record.error or "")
    assert [entry["attempt"] for entry in record.errors] == [0, 1]
    assert kept_for(record) == pytest.approx(30, abs=0.001)
    assert queue.keys() == {}


def test_a_held_job_in_its_last_attempt_is_not_failed(queue: Queue) -> None:
    """It had not started: there is an attempt left."""
    claim = queue.running(max_attempts=1, start=0)
    queue.lapse(claim.id)
    assert queue.expire() == {claim.id: State.READY}


def test_a_job_that_kills_its_workers(queue: Queue) -> None:
    """After five crashes it has failed, however many attempts are left; before that it comes back each time."""
    job_id = queue.add(max_attempts=100)
    for crashes in range(1, MAX_CRASHES):
        queue.claim()
        queue.lapse(job_id)
        assert queue.expire() == {job_id: State.READY}
        assert queue.record(job_id).crashes == crashes
    queue.claim()
    queue.lapse(job_id)
    assert queue.expire() == {job_id: State.FAILED}
    record = queue.record(job_id)
    assert record.crashes == MAX_CRASHES
    assert "kill" in (record.error or "")


def test_one_that_was_to_be_cancelled(queue: Queue) -> None:
    """Its worker went quiet before it could end it: it is cancelled, not run again."""
    claim = queue.running(key="k")
    queue.cancel(claim.id)
    queue.lapse(claim.id)
    assert queue.expire() == {claim.id: State.CANCELLED}
    assert kept_for(queue.record(claim.id)) == pytest.approx(7, abs=0.001)
    assert queue.keys() == {}
    assert queue.claim() == []


def test_a_few_at_a_time(queue: Queue) -> None:
    """At most the limit, and the rest with the next call."""
    queue.enqueue(*[new_job() for _ in range(5)])
    claims = queue.claim()
    queue.lapse(*[claim.id for claim in claims])
    assert [len(queue.expire(limit=2)) for _ in range(4)] == [2, 2, 1, 0]


def test_two_that_expire_at_once(queue: Queue) -> None:
    """Each claim is taken back once: one crash, whoever did it."""
    queue.enqueue(*[new_job() for _ in range(30)])
    claims = queue.claim()
    queue.lapse(*[claim.id for claim in claims])
    store = queue.app.new_store(size=4)
    done = at_once(*[lambda: store.run(lambda: queue.dialect.expire(reachable=1e9, limit=100))] * 4)
    store.close()
    while queue.expire():
        pass
    every = [job.id for expired in done for job in expired]  # type: ignore[attr-defined]
    assert len(every) == len(set(every))
    assert queue.fetch("SELECT min(crashes), max(crashes) FROM dibs_jobs") == [(1, 1)]


def test_a_renewal_that_came_in_time(locking: Queue) -> None:
    """Found past and renewed before it was locked: it is left alone."""
    queue = locking
    claim = queue.running()
    queue.lapse(claim.id)
    expiring = queue.dialect.expire(reachable=1e9, limit=9)
    with queue.transaction(undone=False) as connection:
        found = connection.answer(expiring.send(None))
        assert [row[0] for row in found] == [claim.id]
        queue.renew(claim)
        try:
            request = expiring.send(found)
            while True:
                request = expiring.send(connection.answer(request))
        except StopIteration as end:
            assert end.value == []
    assert queue.end(claim, State.DONE) is Settled.NOW


# -- prune -----------------------------------------------------------------------------------------


def test_pruning_goes_in_batches(queue: Queue) -> None:
    """More than one batch, and all of it; what is not over stays, and so do its key and its duplicates."""
    kept = queue.job_in(State.DONE, key="kept")
    queue.enqueue(new_job(key="kept"))
    queue.enqueue(*[new_job(key=f"k{n}") for n in range(600)])
    claims = queue.claim(limit=600)
    queue.settle(*[verdict(claim, State.DONE) for claim in claims])
    queue.execute("UPDATE dibs_jobs SET expires_at = :past WHERE id <> :kept", past=PAST, kept=kept)
    assert queue.app.prune() == 600
    assert list(queue.statuses()) == [kept]
    assert queue.keys() == {"kept": kept}
    assert queue.record(kept).duplicates == 1


def test_requeued_meanwhile_is_not_pruned(queue: Queue) -> None:
    """Found, and sent round again before it was deleted: it stays."""
    job_id = queue.job_in(State.FAILED)
    queue.write(job_id, expires_at=PAST)
    found = queue.do(lambda: queue.dialect.prunable(limit=9))
    assert found == [job_id]
    queue.requeue(job_id)
    assert queue.do(lambda: queue.dialect.prune(found)) == 0
    assert queue.status(job_id) is State.READY
    assert queue.record(job_id).expires_at is None


def test_pruning_passes_over_what_others_hold(locking: Queue) -> None:
    """However many of the oldest rows they are: it comes to its end, and what is free is gone."""
    locking.enqueue(*[new_job() for _ in range(1_100)])
    claims = locking.claim(limit=1_100)
    locking.settle(*[verdict(claim, State.DONE) for claim in claims])
    locking.execute("UPDATE dibs_jobs SET expires_at = :past", past=PAST)
    held = sorted(locking.statuses())[:1_050]
    with locking.transaction() as connection:
        lock = "UPDATE dibs_jobs SET retention = 12345 WHERE id <= :last"
        connection.answer(Execute(lock, {"last": held[-1]}))
        with promptly(5.0):
            assert locking.app.prune() == 50
    assert sorted(locking.statuses()) == held
    assert locking.app.prune() == 1_050


def test_who_prunes_beside_another_takes_no_more_at_a_time(locking: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it passed over is gone when it looks again, deleted by the other: the next batch is as small as all others."""
    monkeypatch.setattr(upkeep, "PRUNE_BATCH", 5)
    jobs = locking.enqueue(*[new_job() for _ in range(40)])
    locking.settle(*[verdict(claim, State.DONE) for claim in locking.claim(limit=40)])
    locking.execute("UPDATE dibs_jobs SET expires_at = :past", past=PAST)
    sizes: list[int] = []
    with locking.transaction() as other:
        other.answer(Execute("DELETE FROM dibs_jobs WHERE id <= :last", {"last": sorted(locking.statuses())[9]}))

        def prune(ids: list[int]) -> Op[int]:
            sizes.append(len(ids))
            if len(sizes) == 3:
                other.commit()
            return pruning(ids)

        pruning = locking.app.dialect.prune
        monkeypatch.setattr(locking.app.dialect, "prune", prune)
        assert locking.app.prune() == len(jobs) - 10
    assert max(sizes) == 5
    assert locking.statuses() == {}


def test_batches_that_take_long_get_smaller(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half as large each time, down to a least number of rows; all is deleted all the same."""
    queue.enqueue(*[new_job() for _ in range(40)])
    queue.settle(*[verdict(claim, State.DONE) for claim in queue.claim(limit=40)])
    queue.execute("UPDATE dibs_jobs SET expires_at = :past", past=PAST)
    monkeypatch.setattr(upkeep, "PRUNE_BATCH", 20)
    monkeypatch.setattr(upkeep, "LEAST_BATCH", 5)
    monkeypatch.setattr(upkeep, "PRUNE_WITHIN", 0.0)
    pruning, sizes = queue.app.dialect.prune, list[int]()

    def prune(ids: list[int]) -> Op[int]:
        sizes.append(len(ids))
        return pruning(ids)

    monkeypatch.setattr(queue.app.dialect, "prune", prune)
    assert queue.app.prune() == 40
    assert sizes == [20, 10, 5, 5]


# -- chores ----------------------------------------------------------------------------------------


def test_a_chore_is_done_by_one_of_many(queue: Queue) -> None:
    """Of eight that look at the same time one does it; then it is not due until its time has come."""
    store = queue.app.new_store(size=8)
    mine = at_once(*[lambda: store.run(lambda: queue.dialect.chore("prune", every=3600.0))] * 8)
    store.close()
    assert sorted(mine) == [False] * 7 + [True]  # type: ignore[type-var]
    assert not queue.do(lambda: queue.dialect.chore("prune", every=3600.0))
    assert queue.do(lambda: queue.dialect.chore("fold", every=3600.0)), "each chore has its own time"
    queue.execute("UPDATE dibs_chores SET next_at = :past WHERE chore = 'prune'", past=PAST)
    assert queue.do(lambda: queue.dialect.chore("prune", every=3600.0))
    queue.execute("UPDATE dibs_chores SET next_at = :future WHERE chore = 'prune'", future=FUTURE)
    assert not queue.do(lambda: queue.dialect.chore("prune", every=3600.0))


def test_keys_that_were_held_up_are_let_go_of_later(locking: Queue) -> None:
    """A key that could not be deleted at once stands in dibs_loose_keys; upkeep frees it when it is to be had."""
    queue = locking
    first = queue.job_in(State.FAILED)
    second = queue.add()
    for key, job_id in (("loose", first), ("locked", first), ("another's", second)):
        queue.execute("INSERT INTO dibs_keys (task, task_key, job_id) VALUES ('t', :key, :id)", key=key, id=job_id)
        queue.execute("INSERT INTO dibs_loose_keys (task, task_key, job_id) VALUES ('t', :key, :id)", key=key, id=first)
    with queue.transaction() as user:
        user.answer(_lock_key("locked"))
        queue.do(lambda: queue.dialect.fold(limit=100))
        assert queue.keys() == {"locked": first, "another's": second}
    queue.do(lambda: queue.dialect.fold(limit=100))
    assert queue.keys() == {"another's": second}
    assert queue.count("dibs_loose_keys") == 0


def _lock_key(key: str):  # type: ignore[no-untyped-def]
    from dibs.ops import Fetch

    return Fetch("SELECT 1 FROM dibs_keys WHERE task = 't' AND task_key = :key FOR UPDATE", {"key": key})
