"""One key at the same time from several sides; and a duplicate that a user's transaction leaves open.

The second once sank a design that counted duplicates on the job's row: one open duplicate hid the job from claims
and stopped the renewing and settling of everything in the same batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from conformance.connections.kind import Kind, done
from conformance.connections.pairs import on_each
from conformance.hands import PAST, WORKER, Queue, new_job, promptly, run_in, verdict
from conftest import wait_for
from dibs.jobs import Claim, Enqueued, Settled
from dibs.states import State

THREADS = 8


def at_once(*calls: Callable[[], object]) -> list[object]:
    """Make calls in threads that start together; return what they returned."""
    barrier = threading.Barrier(len(calls))

    def together(call: Callable[[], object]) -> object:
        barrier.wait(10)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(together, calls))


def test_one_key_from_eight_threads(queue: Queue) -> None:
    """One job, and seven that are told of it; round after round."""
    store = queue.app.new_store(size=THREADS)
    for key in ("a", "b", "c"):
        calls = [lambda: store.run(lambda: queue.dialect.enqueue([new_job(key=key)], tell=False))[0]] * THREADS
        answers = [answer for answer in at_once(*calls) if isinstance(answer, Enqueued)]
        assert sorted(answer.created for answer in answers) == [False] * 7 + [True]
        assert len({answer.id for answer in answers}) == 1
        assert queue.record(answers[0].id).duplicates == 7
    assert queue.count("dibs_jobs") == 3
    store.close()


@pytest.mark.parametrize("number", [40, 450])
def test_bulks_with_the_same_keys_in_any_order(queue: Queue, number: int) -> None:
    """They wait for each other or are tried again, also where a bulk takes several statements; each key has one job."""
    app = queue.db.app()
    task = app.task(name="t", queue="q")(_take)
    keys = [f"k{n}" for n in range(number)]

    def bulk(turn: int) -> Callable[[], object]:
        order = (keys[turn:] + keys[:turn])[:: -1 if turn % 2 else 1]
        return lambda: app.enqueue_many(task.using(key=key).call() for key in order)

    jobs: list[Any] = [job for jobs in at_once(*[bulk(turn * number // 4) for turn in range(4)]) for job in jobs]  # type: ignore[attr-defined]
    app.close()
    assert queue.count("dibs_jobs") == len({job.id for job in jobs}) == number
    assert sum(job.created for job in jobs) == number
    assert queue.fetch("SELECT sum(times) FROM dibs_duplicates") == [(3 * number,)]


@pytest.mark.parametrize("commits", [True, False])
def test_the_same_key_waits_for_who_is_taking_it(locking: Queue, commits: bool) -> None:
    """While another transaction is taking the key nobody can know; then it is a duplicate, or the key is free."""
    queue = locking
    with ThreadPoolExecutor(1) as thread, queue.transaction(undone=not commits) as user:
        (first,) = run_in(user, queue.dialect.enqueue([new_job(key="k")], tell=False))
        with promptly():
            assert queue.enqueue(new_job(key="another"))[0].created, "other keys don't wait"
        second = thread.submit(queue.enqueue, new_job(key="k"))
        # InnoDB's view of its transactions is only brought up to date for whoever asks seldom enough.
        wait_for(lambda: _waiting(queue), what="the second enqueue to wait for the first", every=0.15)
        assert not second.done()
        (user.commit if commits else user.rollback)()
        (answer,) = second.result(timeout=10)
    assert answer.created is not commits
    assert queue.keys()["k"] == answer.id
    assert (answer.id == first.id) is commits


def _waiting(queue: Queue) -> bool:
    """Does a session of this database wait for a lock?"""
    if queue.db.kind == "postgres":
        sql = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    else:
        sql = """
            SELECT 1 FROM information_schema.innodb_trx t
            JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
            WHERE t.trx_state = 'LOCK WAIT' AND p.db = database()
        """
    return bool(queue.fetch(sql))


# -- a duplicate left open -------------------------------------------------------------------------


@on_each(lambda kind: kind.name in ("psycopg", "PyMySQL"))
@pytest.mark.parametrize("level", ["as dibs", "repeatable read"])
def test_a_duplicate_left_open_delays_nobody(queue: Queue, kind: Kind, level: str) -> None:
    """It hides no job from claims, and delays no renewal, no settle, no cancel and no other enqueue."""
    queue.app.tasks.clear()
    task = queue.app.task(name="t", queue="q")(_take)
    running = queue.running(key="running")
    ending = queue.running(key="ending")
    ready = queue.add(key="ready")
    wanted = queue.add(key="wanted")

    async def scenario() -> None:
        opened = kind.open if level == "as dibs" else kind.repeatable
        assert opened is not None
        async with opened(queue.db) as user:
            await done(user.begin())
            for key in ("running", "ending", "ready", "wanted"):
                again = await user.enqueue(task.using(connection=user.connection, key=key))
                assert not again.created
            with promptly():
                assert queue.renew(running, ending).renewed == {running.id, ending.id}
            with promptly():
                assert queue.cancel(wanted) == [wanted]
            with promptly():
                assert [claim.id for claim in queue.claim()] == [ready]
            with promptly():
                assert queue.end(ending, State.DONE) is Settled.NOW
            with promptly():
                assert queue.enqueue(new_job(key="fresh"), new_job())[0].created
            with promptly():
                again, more = queue.enqueue(new_job(key="running"), new_job(key="ready"))
                assert (again.id, more.id) == (running.id, ready)
            with promptly():
                assert queue.record(running.id).duplicates == 1, "those that are committed"
            await done(user.commit())

    kind.run(scenario())
    assert queue.record(running.id).duplicates == 2
    assert queue.status(ending.id) is State.DONE


@on_each(lambda kind: kind.name in ("psycopg", "PyMySQL"))
@pytest.mark.parametrize("level", ["as dibs", "repeatable read"])
@pytest.mark.parametrize("end", [State.FAILED, State.CANCELLED, State.DONE])
def test_a_duplicate_left_open_delays_no_end_that_frees_the_key(
    queue: Queue, kind: Kind, level: str, end: State
) -> None:
    """A job that lets its key go can end, too, and the key is free when the user's transaction is over."""
    queue.app.tasks.clear()
    task = queue.app.task(name="t", queue="q")(_take)
    claim = queue.running(key="k", key_until="finished")
    other = queue.running(key="other")

    async def scenario() -> None:
        opened = kind.open if level == "as dibs" else kind.repeatable
        assert opened is not None
        async with opened(queue.db) as user:
            await done(user.begin())
            await user.enqueue(task.using(connection=user.connection, key="k"))
            with promptly():
                answers = queue.settle(verdict(claim, end), verdict(other, State.DONE))
                assert answers == [Settled.NOW, Settled.NOW]
            await done(user.commit())

    kind.run(scenario())
    assert queue.status(claim.id) is end
    queue.do(lambda: queue.dialect.fold(limit=100))
    assert queue.keys() == {"other": other.id}
    assert queue.enqueue(new_job(key="k"))[0].created


def fail(queue: Queue, claim: Claim) -> None:
    assert queue.end(claim, State.FAILED) is Settled.NOW


def finish(queue: Queue, claim: Claim) -> None:
    op = queue.dialect.finish
    fence = {"claims": claim.claims, "worker": WORKER}
    assert queue.do(lambda: op(claim.id, **fence, attempts=1, result=None, keep=60.0, frees_key=True))  # type: ignore[arg-type]


def cancel(queue: Queue, claim: Claim) -> None:
    queue.end(claim, State.READY, delay=60.0)
    assert queue.cancel(claim.id) == [claim.id]


def expire(queue: Queue, claim: Claim) -> None:
    queue.write(claim.id, crashes=4, lease_until=PAST)
    assert queue.expire() == {claim.id: State.FAILED}


def delete_at_once(queue: Queue, claim: Claim) -> None:
    assert queue.end(claim, State.DONE, keep=0.0) is Settled.NOW


def prune(queue: Queue, claim: Claim) -> None:
    queue.end(claim, State.DONE)
    queue.write(claim.id, expires_at=PAST)
    assert queue.app.prune() == 1


@on_each(lambda kind: kind.name == "PyMySQL")
@pytest.mark.parametrize("end", [fail, finish, cancel, expire, delete_at_once, prune])
def test_a_duplicate_that_locks_the_key(queue: Queue, kind: Kind, end: Callable[[Queue, Claim], None]) -> None:
    """A snapshot older than the key: the duplicate is found by an insert, which locks the key's row. The job ends all
    the same, at once, and its key is let go of by upkeep when the user's transaction is over."""
    queue.app.tasks.clear()
    task = queue.app.task(name="t", queue="q")(_take)

    async def scenario() -> None:
        assert kind.repeatable is not None
        async with kind.repeatable(queue.db) as user:
            await done(user.begin())
            await done(user.execute("SELECT count(*) FROM dibs_jobs"))
            claim = queue.running(key="k", key_until="finished")
            again = await user.enqueue(task.using(connection=user.connection, key="k"))
            assert (again.id, again.created) == (claim.id, False)
            with promptly():
                assert queue.renew(claim).renewed == {claim.id}
            with promptly():
                end(queue, claim)
            with promptly():
                queue.do(lambda: queue.dialect.fold(limit=100))
            assert queue.keys() == {"k": claim.id}, "the user's transaction holds it"
            await done(user.commit())

    kind.run(scenario())
    queue.do(lambda: queue.dialect.fold(limit=100))
    assert queue.keys() == {}
    assert queue.count("dibs_loose_keys") == 0
    assert queue.enqueue(new_job(key="k"))[0].created


def _take() -> None:
    """The task whose jobs are enqueued; nobody runs it here."""
