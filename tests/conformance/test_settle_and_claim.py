"""Settling with the next claim, in one transaction: as each by itself, for jobs that simply are done."""

from __future__ import annotations

import time
from typing import NoReturn

import pytest

from conformance.hands import WORKER, Queue, promptly, verdict
from dibs.jobs import Settled
from dibs.states import State
from dibs.store import RowLocked
from dibs.worker.claimer import Claimer
from dibs.worker.runs import Holdings, Run
from dibs.worker.settling import Settling
from dibs.worker.tally import Tally
from dibs.worker.verdicts import Returned


def test_both(queue: Queue) -> None:
    """What ended is written down, its key is free, and the next ones are ours."""
    ended = [queue.running(key="k", key_until="finished"), queue.running()]
    next_ones = [queue.add(), queue.add()]
    verdicts = [verdict(claim, State.DONE, result='{"n": "é"}', ran=0.5, keep=60.0) for claim in ended]
    answers, claims = queue.settle_and_claim(*verdicts, start=1)
    assert answers == dict.fromkeys((claim.id for claim in ended), Settled.NOW)
    assert [(claim.id, claim.started) for claim in claims] == [(next_ones[0], True), (next_ones[1], False)]
    for claim in ended:
        record = queue.record(claim.id)
        assert (record.status, record.result, record.attempts) == ("done", {"n": "é"}, 1)
    assert queue.keys() == {}


def test_nothing_to_claim(queue: Queue) -> None:
    """An empty lane, or one that is paused, keeps nothing from being settled."""
    first, second = queue.running(), queue.running()
    assert queue.settle_and_claim(verdict(first, State.DONE)) == ({first.id: Settled.NOW}, [])
    queue.add()
    queue.app.pause("q")
    assert queue.settle_and_claim(verdict(second, State.DONE)) == ({second.id: Settled.NOW}, [])
    assert sorted(queue.statuses().values()) == [State.DONE, State.DONE, State.READY]


def test_one_that_is_to_be_cancelled(queue: Queue) -> None:
    """It ends cancelled, at once or when it is settled by itself; the claim brings what it would have."""
    claim, next_one = queue.running(), queue.add()
    queue.cancel(claim.id, reason="no more")
    end = verdict(claim, State.DONE)
    answers, claims = queue.settle_and_claim(end)
    assert [each.id for each in claims] == [next_one]
    if not answers:
        assert queue.settle(end) == [Settled.NOW]
    assert (queue.record(claim.id).status, queue.record(claim.id).error) == ("cancelled", "no more")


def test_a_locked_row(locking: Queue) -> None:
    """Somebody's transaction holds what is to be settled: nothing waits, and what is not answered has not changed."""
    queue = locking
    held, free, next_one = queue.running(), queue.running(), queue.add()
    with queue.locked(held.id), promptly():
        try:
            answers, claims = queue.settle_and_claim(verdict(held, State.DONE), verdict(free, State.DONE))
        except RowLocked:
            answers, claims = {}, []
    assert held.id not in answers
    left = {held.id: State.RUNNING, free.id: State.RUNNING, next_one: State.READY}
    settled = {free.id: State.DONE, next_one: State.RUNNING}
    assert queue.statuses() == (left | settled if claims else left)
    assert queue.settle(verdict(held, State.DONE)) == [Settled.NOW]


@pytest.mark.parametrize("other", [State.READY, State.FAILED])
def test_beside_a_claim_that_is_lost(queue: Queue, other: State) -> None:
    """One verdict that is refused keeps no other from being carried out."""
    lost, ours = queue.running(), queue.running()
    assert queue.end(lost, other) is Settled.NOW
    answers, _ = queue.settle_and_claim(verdict(lost, State.DONE), verdict(ours, State.DONE), queue="another")
    assert answers == {ours.id: Settled.NOW}
    assert queue.statuses() == {lost.id: other, ours.id: State.DONE}


def test_what_cannot_be_sent_together(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a driver says about it: the claim goes on without, and the job is settled by itself."""
    task = queue.app.task(name="t")(lambda: None)
    claim, next_one = queue.running(), queue.add()
    run = Run(claim, task, received=time.monotonic(), good_until=time.monotonic() + 60)
    run.begin()
    holdings, tally = Holdings(), Tally(queue.dialect.moment)
    holdings.add([run])
    settling = Settling(queue.app, queue.store, worker=WORKER, holdings=holdings, ring=lambda: None, tally=tally)
    settling.report(run, Returned('"r"'))
    claimer = Claimer(queue.store, settling, holdings)
    claimer.carries = 4

    def refuse(*_: object, **__: object) -> NoReturn:
        raise ValueError("a text that is in no encoding")

    monkeypatch.setattr(queue.dialect, "settle_and_claim", refuse)
    assert [each.id for each in claimer.claim(queue.wanted())] == [next_one]
    assert claimer.settles_apart
    settling.settle(gather=False)
    assert (queue.record(claim.id).status, queue.record(claim.id).result) == ("done", "r")
