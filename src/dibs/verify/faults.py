"""The checks in which real worker processes are killed, frozen, and cut from the database.

As in `quiet`, each returns its evidence, raises Failed with it or Skipped with a reason, and has a queue of its own.
"""

from __future__ import annotations

import time

from dibs import ops
from dibs.jobs import JobRecord
from dibs.states import State
from dibs.troubles import Trouble
from dibs.verify.ground import LEASE, Failed, Ground, Skipped, WorkerProcess

#: Longer than any check, so that a job that is killed has not ended by itself.
LONG = 60.0

#: How long (seconds) a job of a worker that is frozen had still to run, and runs again at the other worker: that one
#: is at it when the frozen one wakes up.
SHORT = 1.0
STILL = 2.0


def crash(ground: Ground) -> str:
    """Crash recovery: a worker is killed with a job in its hands, and another runs it after the lease."""
    queue = "crash"
    job = ground.tasks.stay.using(queue=queue).enqueue(LONG).id
    killed = ground.worker(queue)
    ground.until(lambda: killed.says("began", job), f"a worker has begun job {job}")
    killed.kill()
    began = time.monotonic()
    other = ground.worker(queue)
    record = ground.until_done(job)
    took = time.monotonic() - began
    if (record.claims, record.result, record.crashes) != (2, other.pid, 1):
        raise Failed(f"job {job} of killed worker {killed.pid}: {told(record)}, run by {record.result}")
    return (
        f"job {job}: kill -9 of pid {killed.pid}, run again by pid {other.pid} and done {took:.1f} s later "
        f"(lease {LEASE:g} s), claims {record.claims}, crashes {record.crashes}"
    )


def fencing(ground: Ground) -> str:
    """Fencing: a worker that stood still past its lease wakes up, and nothing that it writes counts."""
    queue = "fencing"
    booked = ground.tasks.book.using(queue=queue).enqueue("begin", SHORT, later=STILL).id
    stayed = ground.tasks.stay.using(queue=queue).enqueue(SHORT, later=STILL).id

    def at_both(worker: WorkerProcess) -> bool:
        return worker.says("begin", booked) and worker.says("began", stayed)

    zombie = ground.worker(queue)
    ground.until(lambda: at_both(zombie), f"a worker has begun jobs {booked} and {stayed}")
    zombie.freeze()
    began = time.monotonic()
    other = ground.worker(queue)
    ground.until(lambda: at_both(other), f"another worker has begun jobs {booked} and {stayed}")
    asleep = time.monotonic() - began
    zombie.thaw()
    ground.until(
        lambda: zombie.says("refused", booked) or zombie.says("end", booked), f"the zombie has tried to finish {booked}"
    )
    ground.until_done(booked)
    ground.until_done(stayed)
    effects = effects_of(ground, booked)
    record, result = ground.app.job(booked), ground.app.job(stayed)
    refused = zombie.says("refused", booked)
    if (
        not refused
        or effects != [(2, other.pid)]
        or result.result != other.pid
        or {record.claims, result.claims} != {2}
    ):
        raise Failed(
            f"job {booked}: {told(record)}, effects by (claims, pid) {effects}; job {stayed}: {told(result)}, result of "
            f"pid {result.result}; the zombie was pid {zombie.pid}, the one in the right {other.pid}"
        )
    ground.until(lambda: zombie.says("lost", stayed), f"the zombie knows that it has lost job {stayed}")
    return (
        f"pid {zombie.pid} stood still for {asleep:.1f} s (lease {LEASE:g} s): LostClaim for its finish() of job "
        f"{booked}, which pid {other.pid} ran by then and whose one effect is of that; its late result of job {stayed} was "
        "refused"
    )


def exactly_once(ground: Ground) -> str:
    """An effect settled in the job's own transaction is there once, whether the kill comes before COMMIT or after."""
    queue = "exactly once"
    before = ground.tasks.book.using(queue=queue).enqueue("commit", LONG).id
    first = ground.worker(queue)
    ground.until(lambda: first.says("commit", before), f"a worker has written the effect of job {before}")
    first.kill()
    second = ground.worker(queue)
    record = ground.until_done(before)
    effects = effects_of(ground, before)
    if effects != [(2, second.pid)] or record.claims != 2:
        raise Failed(f"job {before}, killed before COMMIT: {told(record)}, effects by (claims, pid) {effects}")
    after = ground.tasks.book.using(queue=queue).enqueue("end", LONG).id
    ground.until(lambda: second.says("end", after), f"a worker has committed job {after}")
    second.kill()
    record = ground.app.job(after)
    effects = effects_of(ground, after)
    if effects != [(1, second.pid)] or record.status is not State.DONE:
        raise Failed(f"job {after}, killed after COMMIT: {told(record)}, effects by (claims, pid) {effects}")
    return (
        f"job {before}: kill -9 before COMMIT, its one effect is of the second run; job {after}: kill -9 after COMMIT, "
        "its one effect is of the first run, and it is done"
    )


def lost_connection(ground: Ground) -> str:
    """A worker whose sessions are all ended renews and settles the job that it runs, and goes on working."""
    if not ground.statements.has_sessions:
        raise Skipped("this database is a file: there is no session to lose")
    queue = "lost connection"
    job = ground.tasks.stay.using(queue=queue).enqueue(2 * LEASE).id
    worker = ground.worker(queue)
    ground.until(lambda: worker.says("began", job), f"a worker has begun job {job}")
    ended = _end_sessions(ground, worker)
    if not ended:
        raise Skipped(
            "the worker's sessions can't be told on the server: a pooler between, or an application_name in the URL"
        )
    record = ground.until_done(job)
    began = time.monotonic()
    following = ground.tasks.stay.using(queue=queue).enqueue(0.0).id
    ground.until_done(following)
    took = time.monotonic() - began
    if (record.claims, record.result) != (1, worker.pid):
        raise Failed(f"job {job}, whose worker lost its sessions: {told(record)}, result of {record.result}")
    return (
        f"{ended} sessions of pid {worker.pid} ended: job {job}, which ran, is done at its first claim; job {following} "
        f"was run {took:.1f} s after its enqueue"
    )


def _end_sessions(ground: Ground, worker: WorkerProcess) -> int:
    """End all sessions of a worker; return how many. Raises Skipped where that is forbidden."""
    connection = ground.app.store.open()
    try:
        return sum(
            ops.run(ground.statements.end_session(number, name=ground.name), connection) for number in worker.sessions
        )
    except Exception as error:
        if connection.trouble(error) is not Trouble.DENIED:
            raise
        raise Skipped(f"this user may not end sessions: {error}") from error
    finally:
        connection.close()


def effects_of(ground: Ground, job: int) -> list[tuple[int, int]]:
    return ground.app.store.run(lambda: ground.statements.effects_of(job))


def told(record: JobRecord) -> str:
    """Return what its row says of how a job went."""
    return f"{record.status}, attempts {record.attempts}, claims {record.claims}, crashes {record.crashes}"
