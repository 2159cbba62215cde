"""The fence: whoever has lost a claim can write nothing any more, whatever it tries, and is told so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.hands import WORKER, Queue, verdict
from dibs.jobs import Claim, Settled
from dibs.states import State

# -- how a claim is lost ---------------------------------------------------------------------------


def taken_back(queue: Queue, claim: Claim) -> str:
    """The lease ran out and upkeep put the job back."""
    queue.lapse(claim.id)
    assert queue.expire() == {claim.id: State.READY}
    return WORKER


def claimed_again(queue: Queue, claim: Claim) -> str:
    """And another worker has it now."""
    taken_back(queue, claim)
    assert len(queue.claim(worker="another")) == 1
    return WORKER


def claimed_again_by_itself(queue: Queue, claim: Claim) -> str:
    """Or the same worker has it again: its older claim is no better for that."""
    taken_back(queue, claim)
    assert len(queue.claim()) == 1
    return WORKER


def ended_by_upkeep(queue: Queue, claim: Claim) -> str:
    """The lease ran out once too often: upkeep has failed the job."""
    queue.write(claim.id, crashes=4)
    queue.lapse(claim.id)
    assert queue.expire() == {claim.id: State.FAILED}
    return WORKER


def settled_by_another(queue: Queue, claim: Claim) -> str:
    """Another worker has done it meanwhile."""
    claimed_again(queue, claim)
    queue.settle(verdict(queue.record(claim.id), State.DONE), worker="another")
    return WORKER


def of_another_worker(queue: Queue, claim: Claim) -> str:
    """The number is right and the name is not, as after a failover that lost the last moments."""
    return "another"


def of_a_later_claim(queue: Queue, claim: Claim) -> str:
    """The name is right and the number is not."""
    claim.claims += 1
    return WORKER


LOST = [
    taken_back,
    claimed_again,
    claimed_again_by_itself,
    ended_by_upkeep,
    settled_by_another,
    of_another_worker,
    of_a_later_claim,
]

# -- what it then tries ----------------------------------------------------------------------------


def settle_as(status: State, *, keep: float = 3600.0) -> Callable[[Queue, Claim, str], None]:
    def settle(queue: Queue, claim: Claim, worker: str) -> None:
        mine = verdict(claim, status, keep=keep, result='"late"', ran=1.0)
        assert queue.settle(mine, worker=worker) == [Settled.LOST]

    settle.__name__ = f"settle as {status}{', kept for 0' * (not keep)}"
    return settle


def settle_with_a_claim(queue: Queue, claim: Claim, worker: str) -> None:
    mine = verdict(claim, State.DONE, result='"late"', ran=1.0)
    assert queue.settle_and_claim(mine, worker=worker, queue="another") == ({}, [])


def renew(queue: Queue, claim: Claim, worker: str) -> None:
    assert queue.renew(claim, worker=worker) == (set(), {claim.id}, set())


def mark_started(queue: Queue, claim: Claim, worker: str) -> None:
    queue.do(lambda: queue.dialect.mark_started({claim.id: claim.claims}, worker=worker))


def finish(queue: Queue, claim: Claim, worker: str) -> None:
    finished = queue.do(
        lambda: queue.dialect.finish(
            claim.id, claims=claim.claims, worker=worker, attempts=1, result='"late"', keep=60.0, frees_key=True
        )
    )
    assert not finished


TRIES = [
    *(settle_as(status) for status in (State.DONE, State.READY, State.FAILED, State.CANCELLED)),
    settle_as(State.DONE, keep=0.0),
    settle_with_a_claim,
    renew,
    mark_started,
    finish,
]


@pytest.mark.parametrize("lose", LOST, ids=lambda lose: lose.__name__)
@pytest.mark.parametrize("attempt", TRIES, ids=lambda attempt: attempt.__name__)
def test_a_lost_claim_writes_nothing(
    queue: Queue, lose: Callable[[Queue, Claim], str], attempt: Callable[[Queue, Claim, str], None]
) -> None:
    """Every write of a worker, with every way to have lost the claim: the row and the key stay as they are."""
    claim = queue.running(key="k", start=0)
    worker = lose(queue, claim)
    before, keys = queue.record(claim.id), queue.keys()
    attempt(queue, claim, worker)
    assert queue.record(claim.id) == before
    assert queue.keys() == keys


def test_a_row_that_is_gone_was_settled(queue: Queue) -> None:
    """With a retention of 0 nothing is left that could tell; asked again it has been carried out already. Who renews it has
    lost it: somebody has settled it."""
    claim = queue.running()
    assert queue.end(claim, State.DONE, keep=0.0) is Settled.NOW
    assert queue.end(claim, State.DONE, keep=0.0) is Settled.ALREADY
    assert queue.renew(claim).lost == {claim.id}


@pytest.mark.parametrize("status", [State.DONE, State.READY, State.FAILED, State.CANCELLED])
def test_a_verdict_twice_is_told_from_a_lost_claim(queue: Queue, status: State) -> None:
    """An answer that got lost on the way is asked for again: ALREADY, also where the job is ready again."""
    claim = queue.running()
    assert queue.end(claim, status) is Settled.NOW
    before = queue.record(claim.id)
    assert queue.end(claim, status) is Settled.ALREADY
    assert queue.record(claim.id) == before


def test_one_lost_claim_in_a_batch(queue: Queue) -> None:
    """It is refused alone: the others are settled and renewed."""
    lost, *others = [queue.running() for _ in range(4)]
    claimed_again(queue, lost)
    renewal = queue.renew(lost, *others)
    assert (renewal.renewed, renewal.lost) == ({claim.id for claim in others}, {lost.id})
    answers = queue.settle(*[verdict(claim, State.DONE) for claim in (others[0], lost, *others[1:])])
    assert answers == [Settled.NOW, Settled.LOST, Settled.NOW, Settled.NOW]


def test_the_fence_only_rises(queue: Queue) -> None:
    """Never reused and never reset: not by a retry, a release, an expiry, or a person who requeues."""
    job_id = queue.add()
    for rising, end in enumerate([State.READY, State.FAILED, State.CANCELLED, State.DONE], start=1):
        (claim,) = queue.claim()
        assert claim.claims == rising
        queue.end(claim, end)
        queue.requeue(job_id, force=True)
    (claim,) = queue.claim()
    taken_back(queue, claim)
    (claim,) = queue.claim()
    assert claim.claims == 6


def test_a_renewal_makes_the_lease_longer(queue: Queue) -> None:
    """From now on, by the database's clock, for as long as it says; and it says who is to be cancelled."""
    claim, other = queue.running(lease=5.0), queue.running(lease=5.0)
    queue.cancel(other.id)
    queue.lapse(claim.id)
    renewal = queue.renew(claim, other, lease=300.0)
    assert renewal == ({claim.id, other.id}, set(), {other.id})
    ((until, lease),) = queue.fetch(f"SELECT lease_until, lease FROM dibs_jobs WHERE id = {claim.id}")
    left = queue.dialect.moment(until) - claim.claimed_at
    assert 299 < left.total_seconds() < 330
    assert lease == 300.0
    assert queue.expire() == {}
