"""The n-th request fails, for every n: nothing is lost, nothing is done twice, and what may be tried again is.

Each op runs with its connection lost at its first request, then at its second, and so on, until it has none left
that could be lost: its BEGIN and its COMMIT, before they were sent and when only the answer was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from conformance.faults import HOW, WHEN, Fault, failing_store
from conformance.hands import PAST, WORKER, Queue, new_job, verdict
from dibs import Dibs
from dibs.errors import OutcomeUnknown
from dibs.jobs import Claim, Lane, Settled
from dibs.states import State
from dibs.store import Store
from dibs.worker.settling import HASTE


def strikes(queue: Queue, when: str, how: str) -> Iterator[tuple[Dibs, Store, Fault]]:
    """Yield an app, its store, and the fault in it: at the first request, then at the second, …"""
    if queue.db.kind == "sqlite" and how != "cut":
        pytest.skip("nobody can end a connection to a file but who has it")
    for at in count(1):
        queue.db.empty()
        fault = Fault(queue.db, at, when=when, how=how)
        store = failing_store(queue.db, fault)
        app = queue.db.app()
        app.store = store  # type: ignore[misc]
        yield app, store, fault
        store.close()
        if not fault.struck:
            assert at > 1, "the fault was never met"
            return
        assert at < 60, "this op has no end"


every_way = pytest.mark.parametrize(("when", "how"), [(when, how) for when in WHEN for how in HOW])

#: For what differs from the others only in its statements.
one_way = pytest.mark.parametrize(("when", "how"), [(when, "cut") for when in WHEN])


@contextmanager
def unknown_at_most(fault: Fault) -> Iterator[list[OutcomeUnknown]]:
    """Let OutcomeUnknown pass where it is so, and nothing else; the list says whether it was raised."""
    unknown: list[OutcomeUnknown] = []
    try:
        yield unknown
    except OutcomeUnknown as error:
        assert fault.could_have_committed, "before that it is known: nothing was done, and it is tried again"
        unknown.append(error)


# -- a new connection ---------------------------------------------------------------------------------


@one_way
def test_a_connection_that_is_lost_while_it_is_made_ready(queue: Queue, when: str, how: str) -> None:
    """What is asked of a new connection before the first op on it may get lost as well: another one is made."""
    for app, store, fault in strikes(queue, when, how):
        store.close()
        task = app.task(name="t", queue="q")(take)
        with unknown_at_most(fault) as unknown:
            job = task.enqueue(data=1)
        if not unknown:
            assert list(queue.statuses()) == [job.id]


# -- enqueue -----------------------------------------------------------------------------------------


@every_way
def test_enqueue(queue: Queue, when: str, how: str) -> None:
    """Without a key: one job, or OutcomeUnknown and one job at most, never two."""
    for app, _, fault in strikes(queue, when, how):
        task = app.task(name="t", queue="q")(take)
        with unknown_at_most(fault) as unknown:
            job = task.enqueue(data=1)
        written = queue.count("dibs_jobs")
        if unknown:
            assert written == (when == "after")
            assert "key" in str(unknown[0]), "it says what would help"
        else:
            assert list(queue.statuses()) == [job.id]


@every_way
def test_keyed_enqueue(queue: Queue, when: str, how: str) -> None:
    """With a key: always exactly one job, and its id is what is returned."""
    for app, *_ in strikes(queue, when, how):
        job = app.task(name="t", queue="q")(take).using(key="k").enqueue(data=1)
        assert list(queue.statuses()) == [job.id]
        assert queue.keys() == {"k": job.id}


@one_way
def test_bulk_of_keyed_jobs(queue: Queue, when: str, how: str) -> None:
    """Asked again as a whole: each key has one job, and the answers are in order."""
    for app, *_ in strikes(queue, when, how):
        task = app.task(name="t", queue="q")(take)
        held = queue.add(key="k2")
        jobs = app.enqueue_many(task.using(key=f"k{n}").call(data=n) for n in range(5))
        assert queue.keys() == {f"k{n}": job.id for n, job in enumerate(jobs)}
        assert jobs[2].id == held
        assert sorted(queue.statuses()) == sorted(job.id for job in jobs)


@every_way
def test_bulk_without_keys(queue: Queue, when: str, how: str) -> None:
    """All of them once, or OutcomeUnknown and all or none."""
    for app, _, fault in strikes(queue, when, how):
        task = app.task(name="t", queue="q")(take)
        with unknown_at_most(fault) as unknown:
            app.enqueue_many([task.call(data=1), task.using(key="k").call(data=2), task.call(data=3)])
        written = queue.count("dibs_jobs")
        assert written in ((0, 3) if unknown else (3,))
        assert queue.count("dibs_keys") == (written > 0)


@one_way
def test_bulk_of_many_chunks(queue: Queue, when: str, how: str) -> None:
    """From a generator, that can be read only once: all or none, and all unless it is said not to be known."""
    for app, _, fault in strikes(queue, when, how):
        task = app.task(name="t", queue="q")(take)
        with unknown_at_most(fault) as unknown:
            jobs = app.enqueue_many(task.call(data=f"{n}" + "x" * 400_000) for n in range(7))
        written = queue.count("dibs_jobs")
        assert written in ((0, 7) if unknown else (7,))
        if not unknown:
            assert [queue.record(job.id).payload["data"][0] for job in jobs] == list("0123456")


def take(data: Any) -> None:
    """The task whose jobs are enqueued; nobody runs it here."""


# -- what a worker does ------------------------------------------------------------------------------


@every_way
def test_claim(queue: Queue, when: str, how: str) -> None:
    """Each job is claimed once and in somebody's hands; where the answer got lost, `adopt` finds what is ours."""
    for app, store, fault in strikes(queue, when, how):
        added = [job.id for job in queue.enqueue(*[new_job(payload={"n": n}) for n in range(4)])]
        claims: list[Claim] = []
        with unknown_at_most(fault) as unknown:
            claims = store.run(lambda: app.dialect.claim(queue.wanted(start=2, limit=3)), once=True)
        if unknown:
            claims = store.run(lambda: app.dialect.adopt(WORKER))
        running = [job_id for job_id, status in sorted(queue.statuses().items()) if status is State.RUNNING]
        assert [claim.id for claim in claims] == running
        assert running in ([added[:3], []] if unknown else [added[:3]])
        assert [claim.started for claim in claims] == [True, True, False][: len(claims)]
        assert all(claim.claims == 1 for claim in claims)
        if len(claims) == 3:
            assert queue.settle(*[verdict(claim, State.DONE) for claim in claims]) == [Settled.NOW] * 3


@every_way
def test_settle_with_a_claim(queue: Queue, when: str, how: str) -> None:
    """Both are carried out or neither, and what `adopt` finds and a later verdict says is right after all."""
    for app, store, fault in strikes(queue, when, how):
        queue.enqueue(*[new_job(key=f"k{n}") for n in range(2)])
        (first,) = queue.claim(limit=1)
        end = verdict(first, State.DONE, result='"r"')
        claims: list[Claim] = []
        with unknown_at_most(fault) as unknown:
            answers, claims = store.run(
                lambda end=end: app.dialect.settle_and_claim([end], queue.wanted(), haste=HASTE),  # type: ignore[misc]
                once=True,
                haste=True,
            )
            assert answers == {first.id: Settled.NOW}
        if unknown:
            claims = [claim for claim in store.run(lambda: app.dialect.adopt(WORKER)) if claim.id != first.id]
            assert queue.settle(end) == [Settled.ALREADY if claims else Settled.NOW]
        assert queue.record(first.id).result == "r"
        assert [claim.id for claim in claims or queue.claim()] == [first.id + 1]


def mixed(queue: Queue) -> list[Claim]:
    """Return the claims of four running jobs with keys."""
    queue.enqueue(*[new_job(key=f"k{n}") for n in range(4)])
    return queue.claim()


@every_way
def test_settle(queue: Queue, when: str, how: str) -> None:
    """Asked again until it is answered: each verdict is carried out once, and the answer says that it was."""
    for app, store, _ in strikes(queue, when, how):
        claims = mixed(queue)
        verdicts = [
            verdict(claims[0], State.DONE, result='"r"'),
            verdict(claims[1], State.READY, delay=0.0, error="e"),
            verdict(claims[2], State.FAILED, error="e"),
            verdict(claims[3], State.DONE, keep=0.0),
        ]
        answers = store.run(lambda verdicts=verdicts: app.dialect.settle(verdicts, worker=WORKER))  # type: ignore[misc]
        assert set(answers.values()) <= {Settled.NOW, Settled.ALREADY}
        done, ready, failed, deleted = (claim.id for claim in claims)
        assert queue.statuses() == {done: State.DONE, ready: State.READY, failed: State.FAILED}
        assert (queue.record(done).result, queue.record(ready).attempts) == ("r", 1)
        assert queue.keys() == {"k0": done, "k1": ready}
        assert deleted in answers


@every_way
def test_renew(queue: Queue, when: str, how: str) -> None:
    """All leases are renewed and none is taken for lost."""
    for app, store, _ in strikes(queue, when, how):
        claims = mixed(queue)
        queue.lapse(*[claim.id for claim in claims])
        held = [(claim.id, claim.claims) for claim in claims]
        renewal = store.run(lambda held=held: app.dialect.renew(held, worker=WORKER, lease=60.0))  # type: ignore[misc]
        assert renewal == ({claim.id for claim in claims}, set(), set())
        assert queue.expire() == {}


@one_way
def test_mark_started(queue: Queue, when: str, how: str) -> None:
    """A run is counted once."""
    for app, store, _ in strikes(queue, when, how):
        queue.enqueue(*[new_job() for _ in range(3)])
        held = {claim.id: claim.claims for claim in queue.claim(start=0)}
        store.run(lambda held=held: app.dialect.mark_started(held, worker=WORKER))  # type: ignore[misc]
        assert [queue.record(job_id).attempts for job_id in held] == [1, 1, 1]


@one_way
def test_expire(queue: Queue, when: str, how: str) -> None:
    """Each lease that ran out is one crash, and the job is where it belongs."""
    for app, store, _ in strikes(queue, when, how):
        claims = mixed(queue)
        queue.write(claims[0].id, max_attempts=1)
        queue.cancel(claims[1].id)
        queue.lapse(*[claim.id for claim in claims])
        store.run(lambda: app.dialect.expire(reachable=1e9, limit=10))
        records = [queue.record(claim.id) for claim in claims]
        assert [record.status for record in records] == [State.FAILED, State.CANCELLED, State.READY, State.READY]
        assert [record.crashes for record in records] == [1, 1, 1, 1]
        assert sorted(queue.keys()) == ["k2", "k3"]


@one_way
def test_prune_and_fold(queue: Queue, when: str, how: str) -> None:
    """What is over is gone, what is not is there, and the counts of duplicates are what they were."""
    for chore in ("prune", "fold"):
        for app, store, _ in strikes(queue, when, how):
            over, kept = queue.job_in(State.DONE, key="over"), queue.add(key="kept")
            for _ in range(3):
                queue.enqueue(new_job(key="kept"), new_job(key="over"))
            queue.write(over, expires_at=PAST)
            if chore == "fold":
                store.run(lambda: app.dialect.fold(limit=100))
                assert queue.count("dibs_duplicates") == 2
                assert queue.record(over).duplicates == 3
            else:
                app.prune()
                assert list(queue.statuses()) == [kept]
                assert queue.keys() == {"kept": kept}
            assert queue.record(kept).duplicates == 3


@one_way
def test_a_chore_that_was_taken_may_be_left_once(queue: Queue, when: str, how: str) -> None:
    """If only the answer was lost nobody does it this time; it is never done twice, and it comes up again."""
    for app, store, _ in strikes(queue, when, how):
        mine = store.run(lambda: app.dialect.chore("prune", every=3600.0))
        assert mine or when == "after"
        assert not queue.do(lambda: queue.dialect.chore("prune", every=3600.0))


# -- what a person does ------------------------------------------------------------------------------


@every_way
def test_cancel(queue: Queue, when: str, how: str) -> None:
    """Ready ones are cancelled, running ones are asked to end, and the keys are let go of."""
    for app, *_ in strikes(queue, when, how):
        running, ready = queue.running(key="running"), queue.add(key="ready")
        app.cancel([running.id, ready], reason="because")
        assert queue.status(ready) is State.CANCELLED
        assert queue.record(running.id).cancel_requested_at is not None
        assert queue.keys() == {"running": running.id}


@one_way
def test_requeue(queue: Queue, when: str, how: str) -> None:
    """Round again with their keys; the fence goes on."""
    for app, *_ in strikes(queue, when, how):
        jobs = [queue.job_in(State.FAILED, key="k"), queue.job_in(State.CANCELLED)]
        app.requeue(jobs)
        assert queue.statuses() == dict.fromkeys(jobs, State.READY)
        assert queue.keys() == {"k": jobs[0]}
        assert [(claim.attempts, claim.claims) for claim in queue.claim()] == [(1, 2), (1, 2)]


@one_way
def test_pause_and_resume(queue: Queue, when: str, how: str) -> None:
    """Paused is paused, resumed is resumed."""
    calls: list[tuple[Callable[[Dibs], object], int]] = [
        (lambda app: app.pause("q"), 1),
        (lambda app: app.resume("q"), 0),
    ]
    for call, paused in calls:
        for app, *_ in strikes(queue, when, how):
            if not paused:
                queue.app.pause("q")
            call(app)
            assert len(queue.do(queue.dialect.paused)) == paused


@one_way
def test_reading(queue: Queue, when: str, how: str) -> None:
    """A question is simply asked again."""
    for app, store, _ in strikes(queue, when, how):
        job_id = queue.add(key="k")
        queue.enqueue(new_job(key="k"))
        assert app.job(job_id).duplicates == 1
        assert app.counts() == {"q": {"ready": 1}}
        assert store.run(lambda: app.dialect.lanes(None)) == [Lane("q", 0)]
