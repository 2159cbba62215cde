"""Claims: which jobs a claim gives, in which order, and what it writes on them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from conformance.hands import FUTURE, PAST, WORKER, Queue, new_job
from conftest import wait_for
from dibs.jobs import Lane
from dibs.states import State


def ids(claims: list) -> list[int]:  # type: ignore[type-arg]
    return [claim.id for claim in claims]


def test_what_a_claim_says(queue: Queue) -> None:
    """All that a worker needs to know, as it was enqueued, and the fence one higher."""
    (job_id,) = ids(
        queue.enqueue(
            new_job(
                payload={"n": 2**64, "text": "ü%s"},
                priority=-5,
                max_attempts=3,
                key="k",
                key_until="finished",
                retention=7.5,
            )
        )
    )
    (claim,) = queue.claim(priority=-5)
    assert (claim.id, claim.queue, claim.task, claim.priority) == (job_id, "q", "t", -5)
    assert claim.payload == '{"n":18446744073709551616,"text":"ü%s"}'
    assert (claim.attempts, claim.max_attempts, claim.crashes, claim.releases, claim.claims) == (1, 3, 0, 0, 1)
    assert (claim.task_key, claim.key_until, claim.retention) == ("k", "finished", 7.5)
    assert (claim.errors, claim.meta, claim.checkpoint, claim.started) == (None, None, None, True)
    assert claim.created_at.utcoffset() == claim.claimed_at.utcoffset() == timedelta(0)
    assert timedelta(0) <= claim.claimed_at - claim.created_at < timedelta(seconds=30)


def test_what_a_claim_writes(queue: Queue) -> None:
    """Whose it is, until when, and that a run has begun, all by the database's clock."""
    claim = queue.running(lease=45.0)
    record = queue.record(claim.id)
    assert (record.status, record.claims, record.attempts) == (State.RUNNING, 1, 1)
    assert (record.lease_owner, record.lease) == (WORKER, 45.0)
    assert record.lease_until is not None
    assert abs(record.lease_until - claim.claimed_at - timedelta(seconds=45)) < timedelta(seconds=1)
    assert record.started_at is not None
    assert abs(record.started_at - claim.claimed_at) < timedelta(seconds=1)
    assert record.finished_at is record.expires_at is None


def test_in_the_order_of_run_at(queue: Queue) -> None:
    """Earliest first; of one moment in the order of their ids, as they were enqueued."""
    late, early, same, middle = queue.add(), queue.add(), queue.add(), queue.add()
    for job_id, second in ((late, 3), (early, 1), (same, 1), (middle, 2)):
        queue.write(job_id, run_at=f"2001-01-01 00:00:0{second}.000")
    assert ids(queue.claim(limit=3)) == [early, same, middle]
    assert ids(queue.claim()) == [late]


def test_no_more_than_asked_for(queue: Queue) -> None:
    """The limit is a limit, also with many due."""
    added = ids(queue.enqueue(*[new_job() for _ in range(20)]))
    taken = ids(queue.claim(limit=7)) + ids(queue.claim(limit=7)) + ids(queue.claim(limit=7))
    assert taken == added
    assert queue.claim() == []


def test_one_lane_at_a_time(queue: Queue) -> None:
    """A claim looks at one queue at one priority."""
    jobs = {
        (name, priority): queue.add(queue=name, priority=priority)
        for name in ("q", "other")
        for priority in (-1, 0, 32_767)
    }
    for (name, priority), job_id in jobs.items():
        assert ids(queue.claim(queue=name, priority=priority)) == [job_id]


def test_not_before_it_is_due(queue: Queue) -> None:
    """What is scheduled is left until then."""
    later = queue.add(delay=3600.0)
    now = queue.add()
    assert ids(queue.claim()) == [now]
    queue.write(later, run_at=PAST)
    assert ids(queue.claim()) == [later]


def test_unknown_tasks_are_left_alone(queue: Queue) -> None:
    """Untouched, for a worker that knows them; and they do not stand in the way of the others."""
    unknown = [queue.add(task="unknown") for _ in range(5)]
    known = queue.add(task="t")
    also = queue.add(task="t2")
    assert ids(queue.claim(tasks=["t", "t2"], limit=2)) == [known, also]
    for job_id in unknown:
        record = queue.record(job_id)
        assert (record.status, record.claims) == (State.READY, 0)
    assert ids(queue.claim(tasks=["unknown"])) == unknown


@pytest.mark.parametrize("state", [State.RUNNING, State.DONE, State.FAILED, State.CANCELLED])
def test_only_ready_jobs(queue: Queue, state: State) -> None:
    """Not even where the times on the row would allow it."""
    job_id = queue.job_in(state)
    queue.write(job_id, run_at=PAST, lease_until=PAST)
    assert queue.claim() == []


def test_a_paused_queue_gives_nothing(queue: Queue) -> None:
    """Read with each claim: paused means from now on, and resumed too; other queues go on."""
    paused, other = queue.add(), queue.add(queue="other")
    assert queue.app.pause("q")
    assert queue.claim() == []
    assert ids(queue.claim(queue="other")) == [other]
    assert queue.app.resume("q")
    assert ids(queue.claim()) == [paused]


# -- started and held ------------------------------------------------------------------------------


def test_started_and_held(queue: Queue) -> None:
    """The first `start` go into free slots and count as runs begun; the others are held, and uncharged."""
    added = ids(queue.enqueue(*[new_job() for _ in range(5)]))
    claims = queue.claim(start=2)
    assert ids(claims) == added
    assert [claim.started for claim in claims] == [True, True, False, False, False]
    for claim, started in zip(claims, [True, True, False, False, False], strict=True):
        record = queue.record(claim.id)
        assert claim.attempts == record.attempts == int(started)
        assert (record.started_at is not None) is started
        assert (record.status, record.claims) == (State.RUNNING, 1)


def test_held_jobs_are_marked_when_they_begin(queue: Queue) -> None:
    """Marking counts the run, once however often it is said, and not for what another claim holds."""
    queue.enqueue(*[new_job() for _ in range(3)])
    first, second, third = queue.claim(start=0)
    for _ in range(2):
        queue.do(lambda: queue.dialect.mark_started({first.id: 1, second.id: 1}, worker=WORKER))
    assert [queue.record(job.id).attempts for job in (first, second, third)] == [1, 1, 0]
    assert queue.record(first.id).started_at is not None
    assert queue.record(third.id).started_at is None


def test_what_once_crashed_is_never_held(queue: Queue) -> None:
    """A job whose lease ran out before is claimed into a free slot or not at all: it pays for itself each time."""
    added = ids(queue.enqueue(*[new_job() for _ in range(4)]))
    queue.write(added[1], crashes=1)
    queue.write(added[3], crashes=2)
    claims = queue.claim(start=1)
    assert [(claim.id, claim.started) for claim in claims] == [(added[0], True), (added[2], False)]
    assert queue.record(added[1]).claims == 0
    claims = queue.claim(start=2)
    assert [(claim.id, claim.started, claim.attempts) for claim in claims] == [
        (added[1], True, 1),
        (added[3], True, 1),
    ]


def test_a_crashed_job_at_the_head_takes_the_free_slot(queue: Queue) -> None:
    """It is started in its turn: nothing is put before it for having crashed."""
    crashed, other = queue.add(), queue.add()
    queue.write(crashed, crashes=1)
    claims = queue.claim(start=1)
    assert [(claim.id, claim.started) for claim in claims] == [(crashed, True), (other, False)]


# -- the cursor ------------------------------------------------------------------------------------


def test_from_a_position_on(queue: Queue) -> None:
    """From the position itself on, by run_at and then by id; what stands before it is found from the beginning."""
    added = ids(queue.enqueue(*[new_job() for _ in range(9)]))
    for job_id in added:
        queue.write(job_id, run_at="2001-01-01 00:00:01.000")
    before = queue.add()
    queue.write(before, run_at="2001-01-01 00:00:00.500")
    since = queue.claim(limit=4)[-1].position
    assert since.id == added[2]
    queue.write(added[0], status="ready")
    queue.write(added[2], status="ready")
    assert ids(queue.claim(since=since, limit=3)) == [added[2], added[3], added[4]]
    assert ids(queue.claim(since=since)) == added[5:]
    assert ids(queue.claim()) == [added[0]]


def test_a_position_does_not_hide_what_comes_later(queue: Queue) -> None:
    """What is due later than the position is claimed from there as soon as it is due, and not before."""
    claim = queue.running()
    future = queue.add()
    queue.write(future, run_at=FUTURE)
    next_one = queue.add()
    assert ids(queue.claim(since=claim.position)) == [next_one]


def test_every_way_back_stands_behind_the_cursor(queue: Queue) -> None:
    """Retried, released, expired, requeued: `run_at` is now or later, so that a claim from the position finds it."""
    claims = [queue.running() for _ in range(5)]
    for claim in claims:
        queue.write(claim.id, run_at=PAST)
    retried, released, expired, failed, cancelled = claims
    since = queue.running().position
    wait_for(lambda: queue.running().position.run_at > since.run_at, what="the database's clock to go on")
    queue.end(retried, State.READY, delay=0.0)
    queue.end(released, State.READY, attempts=0)
    queue.end(failed, State.FAILED)
    queue.end(cancelled, State.CANCELLED)
    queue.lapse(expired.id)
    queue.expire()
    queue.requeue(failed.id, cancelled.id)
    assert sorted(ids(queue.claim(since=since))) == sorted(ids(claims))


def test_an_unknown_task_of_late(queue: Queue) -> None:
    """It is found among all that is due, and among what became due since a moment; not in a paused queue."""

    def look(since: object = None) -> str | None:
        dialect = queue.dialect
        return queue.do(lambda: dialect.unknown_task(Lane("q", 0), tasks=dialect.names(["t"]), since=since))

    queue.add()
    assert look() is None
    queue.write(queue.add(task="old"), run_at=PAST)
    moment = queue.do(queue.dialect.time)
    assert (look(), look(moment)) == ("old", None)
    queue.add(task="new")
    assert look(moment) == "new"
    queue.app.pause("q")
    assert look() is None


# -- lanes -----------------------------------------------------------------------------------------


def test_lanes(queue: Queue) -> None:
    """Those with ready jobs, due or not, each once; of the queues that were asked for, if any were."""
    for name, priority in [("b", 0), ("b", 0), ("b", -3), ("a", 5), ("c", 0), ("ü", 32_767)]:
        queue.add(queue=name, priority=priority)
    queue.add(queue="later", delay=3600.0)
    queue.job_in(State.DONE, queue="done")
    queue.job_in(State.RUNNING, queue="running")
    every = queue.do(lambda: queue.dialect.lanes(None))
    assert len(every) == len(set(every))
    assert set(every) == {
        Lane("a", 5),
        Lane("b", 0),
        Lane("b", -3),
        Lane("c", 0),
        Lane("later", 0),
        Lane("ü", 32_767),
    }
    some = queue.do(lambda: queue.dialect.lanes(["c", "none", "b", "done"]))
    assert sorted(some) == [Lane("b", -3), Lane("b", 0), Lane("c", 0)]
    assert queue.do(lambda: queue.dialect.lanes(["none"])) == []


@pytest.mark.parametrize("queues", [None, ["c", "none", "b", "later"]])
def test_lanes_beside_those_that_are_known(queue: Queue, queues: list[str] | None) -> None:
    """Whatever is known, before, between and behind it each lane with ready jobs is found. What is known and has none may
    be in the answer; nothing else may."""
    lanes = {
        Lane("a", 5),
        Lane("b", -3),
        Lane("b", 0),
        Lane("b", 32_767),
        Lane("c", -32_767),
        Lane("later", 0),
        Lane("ü", 1),
    }
    for lane in lanes:
        queue.add(queue=lane.queue, priority=lane.priority)
    wanted = {lane for lane in lanes if queues is None or lane.queue in queues}
    gone = [Lane("a a", 0), Lane("b", 7), Lane("z", 0)]
    for known in ([], [Lane("b", 0)], sorted(wanted), [Lane("b", -3), *gone], gone):
        known = [lane for lane in known if queues is None or lane.queue in queues]
        found = queue.do(lambda known=known: queue.dialect.lanes(queues, known=known))  # type: ignore[misc]
        assert len(found) == len(set(found))
        assert wanted <= set(found) <= wanted | set(known)


def test_a_worker_goes_by_priority(queue: Queue) -> None:
    """Within a queue strictly: the highest lane first."""
    order: list[int] = []
    app = queue.db.app()

    @app.task(queue="q")
    def note(priority: int) -> None:
        order.append(priority)

    app.enqueue_many(note.using(priority=priority).call(priority=priority) for priority in (0, 5, -5, 32_767, 0, 5))
    app.worker(concurrency=1, burst=True).run()
    app.close()
    assert order == [32_767, 5, 5, 0, 0, -5]
