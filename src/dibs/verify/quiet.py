"""The checks that need no other process: what a claim sees, what a key holds, what a transaction takes back.

Each is a function that returns its evidence, raises Failed with it, or Skipped with a reason. Each has a queue of its
own on the scratch tables, so that they can run side by side.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Barrier, Event

from dibs import ops
from dibs.bindings.binding import OwnConnection
from dibs.bindings.inside import inside
from dibs.errors import JobNotFound
from dibs.jobs import Claim, Lane, Wanted
from dibs.ops import Op
from dibs.sessions import are_lent
from dibs.states import State
from dibs.troubles import Trouble
from dibs.verify.ground import Failed, Ground
from dibs.verify.tasks import STAY
from dibs.worker.worker import DEAF_POLL

#: Further apart than this (seconds) the clocks of this machine and the database should not be.
MOST_APART = 1.0

#: How often the database is asked for its time; the quickest answer says the most.
READINGS = 9

#: Seconds in which a notification must have come.
HEARD_WITHIN = 2.0

#: A claim that takes longer (seconds) has waited for somebody's lock.
AT_ONCE = 2.0

#: Enqueues with one key at the same moment.
AT_A_TIME = 5


@contextmanager
def transaction(ground: Ground) -> Iterator[OwnConnection]:
    """Yield a connection in a transaction; what it has not committed by the end of the block is rolled back."""
    connection = ground.app.store.open()
    try:
        connection.begin()
        yield connection
        connection.rollback()
    finally:
        connection.close()


def claim(ground: Ground, queue: str, limit: int) -> Op[list[Claim]]:
    """Claim as a worker of this check's would, with a lease that lasts."""
    dialect = ground.app.dialect
    return dialect.claim(
        Wanted(
            Lane(queue, 0),
            since=None,
            tasks=dialect.names([STAY]),
            worker=f"verify {queue}",
            lease=60.0,
            start=limit,
            limit=limit,
        )
    )


def ids(claims: list[Claim]) -> list[int]:
    return [claim.id for claim in claims]


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def server(ground: Ground) -> str:
    """Topology: a server that a queue can run on, and what is between."""
    facts = ground.app.store.run(ground.statements.facts)
    return ", ".join([*facts, _notifications(ground)] if ground.app.dialect.channel else facts)


def _notifications(ground: Ground) -> str:
    if are_lent(ground.app.store, ground.app.dialect):
        return f"notifications are not heard, since a pooler lends the sessions: idle workers poll every {DEAF_POLL:g} s instead"
    connection = ground.app.store.open()
    try:
        ops.run(ground.app.dialect.listen(), connection)
        ground.tasks.stay.using(queue="heard").enqueue(0.0)
        began = time.monotonic()
        if connection.hear(HEARD_WITHIN):
            return f"notifications heard after {ms(time.monotonic() - began)}"
    finally:
        connection.close()
    return f"notifications are not heard (a pooler between?): idle workers poll every {DEAF_POLL:g} s instead"


def clock(ground: Ground) -> str:
    """The database's clock, by which all of dibs' times go, against this machine's."""
    dialect = ground.app.dialect
    readings: list[tuple[float, float]] = []
    for _ in range(READINGS):
        before = datetime.now(UTC)
        theirs = dialect.moment(ground.app.store.run(dialect.time))
        after = datetime.now(UTC)
        way = (after - before).total_seconds()
        readings.append((way, (theirs - before - timedelta(seconds=way / 2)).total_seconds()))
    way, apart = min(readings)
    evidence = f"the database is {ms(abs(apart))} {'ahead' if apart > 0 else 'behind'}, ± {ms(way / 2)}"
    if abs(apart) > MOST_APART + way / 2:
        raise Failed(f"{evidence}: set both by NTP, or times that your code makes (run_at) come early or late by that")
    return evidence


def contention(ground: Ground) -> str:
    """Row contention: while a transaction is paused on its jobs, another claim takes the next ones, and at once."""
    queue = "contention"
    jobs = [job.id for job in ground.app.enqueue_many([ground.tasks.stay.using(queue=queue).call(0.0)] * 6)]
    if ground.app.dialect.one_writer:
        return _one_after_the_other(ground, queue, jobs)
    with transaction(ground) as paused:
        held = ids(ops.run(claim(ground, queue, 2), paused))
        began = time.monotonic()
        taken = ids(ground.app.store.run(lambda: claim(ground, queue, 2)))
        took = time.monotonic() - began
    given_back = ids(ground.app.store.run(lambda: claim(ground, queue, 2)))
    if (held, taken, given_back) != (jobs[:2], jobs[2:4], jobs[:2]):
        raise Failed(
            f"of jobs {jobs} a paused transaction took {held}, a claim beside it {taken}, one after its rollback "
            f"{given_back}"
        )
    if took > AT_ONCE:
        raise Failed(f"a claim beside a paused transaction waited {took:.1f} s")
    return (
        f"jobs {held} held by a paused transaction, {taken} claimed beside it in {ms(took)}, {held} after its rollback"
    )


def _one_after_the_other(ground: Ground, queue: str, jobs: list[int]) -> str:
    """With one writer at a time the second claim waits for the first, and takes what that has left."""
    ended = Event()

    def beside() -> tuple[list[int], bool]:
        taken = ids(ground.app.store.run(lambda: claim(ground, queue, 2)))
        return taken, ended.is_set()

    with ThreadPoolExecutor(1) as thread:
        with transaction(ground) as paused:
            held = ids(ops.run(claim(ground, queue, 2), paused))
            future = thread.submit(beside)
            time.sleep(0.2)
            ended.set()
            paused.commit()
        taken, waited = future.result()
    if (held, taken) != (jobs[:2], jobs[2:4]) or not waited:
        raise Failed(f"of jobs {jobs} a paused transaction took {held}, a claim beside it {taken}; it waited: {waited}")
    return f"jobs {held} claimed in a paused transaction; a claim beside it waited for its commit and took {taken}"


def empty(ground: Ground) -> str:
    """A claim that finds nothing: nothing is there, somebody has it locked, or it is leased. Each can be told."""
    app, queue = ground.app, "empty"
    lane, tasks = Lane(queue, 0), app.dialect.names([STAY])

    def due() -> bool:
        return app.store.run(lambda: app.dialect.first_due(lane, tasks=tasks)) is not None

    def found() -> list[int]:
        return ids(app.store.run(lambda: claim(ground, queue, 1)))

    if found() or due():
        raise Failed("an empty queue gave a job")
    job = ground.tasks.stay.using(queue=queue).enqueue(0.0).id
    locked = "locked: not here, where one writes at a time"
    if not app.dialect.one_writer:
        with transaction(ground) as holder:
            ops.run(ground.statements.lock(job), holder)
            if (got := found()) or not due():
                raise Failed(f"job {job} was locked by a transaction: a claim gave {got}, due said {due()}")
            if not _refused(ground, job):
                raise Failed(f"job {job} was locked by a transaction, and locked once more with NOWAIT")
        locked = f"locked: job {job} is due and NOWAIT is refused"
    if found() != [job]:
        raise Failed(f"job {job} is due, and a claim does not give it")
    record = app.job(job)
    if (got := found()) or due() or record.status is not State.RUNNING or record.lease_until is None:
        raise Failed(f"job {job} is leased: a claim gave {got}, it is {record.status} until {record.lease_until}")
    left = (record.lease_until - app.dialect.moment(app.store.run(app.dialect.time))).total_seconds()
    return f"nothing: none due; {locked}; leased: job {job} is running, its lease ends in {left:.1f} s"


def _refused(ground: Ground, job: int) -> bool:
    with transaction(ground) as other:
        try:
            ops.run(ground.statements.lock(job), other)
        except Exception as error:
            if other.trouble(error) is not Trouble.LOCKED:
                raise
            return True
    return False


def duplicates(ground: Ground) -> str:
    """The same key again, and at the same time from several connections: one job."""
    queue = "duplicates"
    keyed = ground.tasks.stay.using(queue=queue, key="verify again")
    first, again = keyed.enqueue(0.0), keyed.enqueue(0.0)
    if (first.created, again.created, again.id) != (True, False, first.id):
        raise Failed(f"a second enqueue with the key of job {first.id} gave job {again.id}, new: {again.created}")
    barrier = Barrier(AT_A_TIME)
    at_once = ground.tasks.stay.using(queue=queue, key="verify at once")

    def enqueue(_: int) -> tuple[int, bool]:
        barrier.wait(30)
        job = at_once.enqueue(0.0)
        return job.id, job.created

    with ThreadPoolExecutor(AT_A_TIME) as threads:
        answers = list(threads.map(enqueue, range(AT_A_TIME)))
    jobs = {job for job, _ in answers}
    created = sum(created for _, created in answers)
    rows = [job.id for job in ground.app.jobs(queue=queue)]
    if len(jobs) != 1 or created != 1 or sorted(rows) != sorted([first.id, *jobs]):
        raise Failed(f"{AT_A_TIME} enqueues with one key at once gave {answers}; the queue has jobs {sorted(rows)}")
    return f"replayed: job {first.id} both times; {AT_A_TIME} at once: job {jobs.pop()}, new for one of them"


def transactional(ground: Ground) -> str:
    """An enqueue in your transaction is there with its commit, and never was with its rollback."""
    queue = "transactional"
    jobs = []
    for commit in (False, True):
        with transaction(ground) as connection:
            job = ground.tasks.stay.using(queue=queue, connection=inside(connection)).enqueue(0.0).id
            jobs.append(job)
            if _there(ground, job):
                raise Failed(f"job {job} was seen before its transaction was committed")
            if commit:
                connection.commit()
        if _there(ground, job) is not commit:
            raise Failed(f"job {job} is {'not there after COMMIT' if commit else 'there after ROLLBACK'}")
    return f"job {jobs[0]} was gone with its rollback, job {jobs[1]} was seen only after its commit"


def _there(ground: Ground, job: int) -> bool:
    """Is a job there? Numbers may come again after a rollback, so the queue is asked."""
    try:
        return ground.app.job(job).status is State.READY
    except JobNotFound:
        return False
