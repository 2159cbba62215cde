"""Several claimers at the same time: nobody waits, nobody doubles, and a row that somebody holds hides no other."""

from __future__ import annotations

from collections import Counter

import pytest

from conformance.hands import WORKER, Queue, new_job, promptly, run_in, verdict
from conformance.test_keys_at_once import at_once
from dibs.bindings.binding import OwnConnection
from dibs.jobs import Claim, Settled
from dibs.ops import Execute, Op
from dibs.states import State
from dibs.worker.claimer import MANY, TURN, Claimer
from dibs.worker.runs import Holdings
from dibs.worker.settling import Settling
from dibs.worker.tally import Tally


def ids(claims: list[Claim]) -> list[int]:
    return [claim.id for claim in claims]


def claim_in(connection: OwnConnection, queue: Queue, *, worker: str, limit: int) -> list[Claim]:
    """Claim in a transaction that is open, and stays open."""
    return run_in(connection, claiming(queue, worker=worker, limit=limit))


def claiming(queue: Queue, *, worker: str, limit: int, turn: float | None = None) -> Op[list[Claim]]:
    return queue.dialect.claim(queue.wanted(worker=worker, limit=limit), turn=turn)


def test_three_workers_and_a_paused_transaction(locking: Queue) -> None:
    """The first worker's claim is not committed: the two others get what is left at once, each its own."""
    queue = locking
    added = ids_of(queue, 10)
    with queue.transaction(undone=False) as paused:
        first = ids(claim_in(paused, queue, worker="first", limit=4))
        with promptly():
            second = ids(queue.claim(worker="second", limit=3))
            third = ids(queue.claim(worker="third", limit=10))
    assert (first, second, third) == (added[:4], added[4:7], added[7:])
    owners = dict(queue.fetch("SELECT id, lease_owner FROM dibs_jobs"))
    assert Counter(owners.values()) == {"first": 4, "second": 3, "third": 3}


def test_a_turn_that_does_not_come(locking: Queue) -> None:
    """One who takes turns stands still in the midst of its claim: the others wait for it a moment, once, and go on."""
    queue = locking
    added = ids_of(queue, 4 * MANY)
    holdings, tally = Holdings(), Tally(queue.dialect.moment)
    settling = Settling(queue.app, queue.store, worker="other", holdings=holdings, ring=lambda: None, tally=tally)
    claimer = Claimer(queue.store, settling, holdings)
    settling.met_lock()

    def take(limit: int) -> list[Claim]:
        return claimer.claim(queue.wanted(worker="other", limit=limit))

    assert ids(take(MANY)) == added[:MANY]
    with queue.transaction() as frozen:
        held = ids(run_in(frozen, claiming(queue, worker="frozen", limit=MANY, turn=TURN)))
        assert held == added[MANY : 2 * MANY]
        assert ids(take(MANY)) == added[2 * MANY : 3 * MANY]
        with promptly():
            assert ids(take(MANY)) == added[3 * MANY :]


def ids_of(queue: Queue, number: int) -> list[int]:
    return [job.id for job in queue.enqueue(*[new_job() for _ in range(number)])]


def test_a_claim_that_is_undone_gives_its_jobs_back(locking: Queue) -> None:
    """As they were: no attempt used, the same fence, and the next claim gets them."""
    queue = locking
    added = ids_of(queue, 3)
    with queue.transaction() as undone:
        assert ids(claim_in(undone, queue, worker="first", limit=3)) == added
        assert queue.claim() == []
    again = queue.claim()
    assert ids(again) == added
    assert {(claim.claims, claim.attempts) for claim in again} == {(1, 1)}


def test_eight_claimers(queue: Queue) -> None:
    """Each job goes to one of them."""
    added = ids_of(queue, 200)
    store = queue.app.new_store(size=8)

    def claimer(name: str) -> list[int]:
        mine: list[int] = []
        while True:
            claims = store.run(lambda: claiming(queue, worker=name, limit=7))
            if not claims:
                return mine
            mine += ids(claims)

    taken = at_once(*[lambda name=f"w{n}": claimer(name) for n in range(8)])  # type: ignore[misc]
    store.close()
    every = [job_id for mine in taken for job_id in mine]  # type: ignore[attr-defined]
    left = ids(queue.claim(limit=200))
    assert sorted(every + left) == added, "each once"
    assert queue.fetch("SELECT max(claims), min(claims) FROM dibs_jobs") == [(1, 1)]


def test_a_row_that_a_user_locks_hides_no_other(locking: Queue) -> None:
    """It is skipped and comes up when the user's transaction is over; the others are claimed at once."""
    queue = locking
    first, second, third = ids_of(queue, 3)
    with queue.locked(first, third), promptly():
        assert ids(queue.claim()) == [second]
    assert ids(queue.claim()) == [first, third]


@pytest.mark.parametrize("others", [0, 300])
@pytest.mark.parametrize("batch", [2, 4, 150])
def test_locked_is_not_lost(locking: Queue, batch: int, others: int) -> None:
    """A row that a user's transaction locks stops no other row's renewal or settling, and is itself not lost.

    With few rows and many, among few and many others: a planner that read past the rows we name would meet the lock.
    """
    queue = locking
    ids_of(queue, others)
    assert len(queue.claim(worker="another", limit=others or 1)) == others
    ids_of(queue, batch)
    claims = queue.claim(limit=batch)
    locked, *free = claims
    with queue.locked(locked.id):
        with promptly():
            renewal = queue.renew(*claims)
        assert renewal.renewed == {claim.id for claim in free}
        assert renewal.lost == set()
        with promptly():
            assert queue.renew(*free).renewed == {claim.id for claim in free}
        with promptly():
            answers = queue.settle(*[verdict(claim, State.DONE) for claim in claims])
        assert answers == [Settled.LOCKED, *[Settled.NOW] * len(free)]
        assert queue.status(locked.id) is State.RUNNING
    assert queue.end(locked, State.DONE) is Settled.NOW


def test_a_locked_row_that_is_settled_already_is_told_so(locking: Queue) -> None:
    """Asked again after a lost answer while somebody holds the row: it was carried out, there is nothing to wait for."""
    queue = locking
    claim = queue.running()
    queue.end(claim, State.DONE)
    with queue.locked(claim.id), promptly():
        assert queue.end(claim, State.DONE) is Settled.ALREADY


def test_a_locked_row_stops_no_other_from_being_marked(locking: Queue) -> None:
    """Marking held jobs as started waits for nobody either."""
    queue = locking
    ids_of(queue, 2)
    locked, free = queue.claim(start=0)
    with queue.locked(locked.id), promptly():
        queue.do(lambda: queue.dialect.mark_started({locked.id: 1, free.id: 1}, worker=WORKER))
    assert [queue.record(claim.id).attempts for claim in (locked, free)] == [0, 1]


def test_a_locked_row_stops_no_other_from_expiring(locking: Queue) -> None:
    """Upkeep takes back what it can and comes again for the rest."""
    queue = locking
    ids_of(queue, 2)
    locked, free = queue.claim()
    queue.lapse(locked.id, free.id)
    with queue.locked(locked.id), promptly():
        assert queue.expire() == {free.id: State.READY}
    assert queue.expire() == {locked.id: State.READY}


def test_a_locked_row_stops_no_other_from_being_pruned(locking: Queue) -> None:
    """Nor does it stop pruning."""
    queue = locking
    locked, free = queue.job_in(State.DONE), queue.job_in(State.DONE)
    for job_id in (locked, free):
        queue.write(job_id, expires_at="2001-01-01 00:00:00.000")
    with queue.locked(locked), promptly():
        assert queue.app.prune() == 1
    assert list(queue.statuses()) == [locked]


def test_an_open_claim_stops_no_enqueue(locking: Queue) -> None:
    """Claims and producers don't meet: neither in the rows nor in the gaps between them."""
    queue = locking
    ids_of(queue, 3)
    with queue.transaction() as open_claim:
        claim_in(open_claim, queue, worker="first", limit=2)
        with promptly():
            queue.add()
            queue.add(key="k")
            queue.add(queue="another")
    with queue.transaction() as empty_claim:
        assert claim_in(empty_claim, queue, worker="first", limit=100)
        with promptly():
            queue.add()


def test_an_open_claim_that_found_nothing_stops_nothing(locking: Queue) -> None:
    """A worker that is frozen in the midst of an empty poll holds nothing that others want to end or take back."""
    queue = locking
    mine, taken_back = queue.running(), queue.running(worker="another")
    later = queue.add(delay=3600.0)
    with queue.transaction() as empty_claim:
        assert claim_in(empty_claim, queue, worker="first", limit=100) == []
        with promptly():
            assert queue.end(mine, State.DONE) is Settled.NOW
            queue.lapse(taken_back.id)
            assert queue.expire() == {taken_back.id: State.READY}
            assert queue.cancel(later) == [later]


def test_an_open_settle_stops_no_claim(locking: Queue) -> None:
    """What another worker is settling just now is not waited for."""
    queue = locking
    first, second = ids_of(queue, 2)
    claims = queue.claim(limit=1)
    with queue.transaction() as settling, promptly():
        run_in(settling, queue.dialect.settle([verdict(claims[0], State.READY)], worker=WORKER))
        assert ids(queue.claim()) == [second]
        assert queue.renew(*claims) == (set(), set(), set())
    assert ids(queue.claim()) == []
    assert queue.status(first) is State.RUNNING


def test_a_user_who_reads_a_job_locks_nothing(queue: Queue) -> None:
    """Anybody may look at the table in a transaction of any length."""
    job_id = queue.add()
    with queue.transaction() as reader:
        reader.answer(Execute("SELECT * FROM dibs_jobs WHERE id = :id", {"id": job_id}))
        if queue.db.locks_rows:
            with promptly():
                (claim,) = queue.claim()
                assert queue.end(claim, State.DONE) is Settled.NOW
