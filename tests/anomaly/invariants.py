"""What holds at the end of every scenario, whatever was done to the workers in it.

Judged by the diary, which the tasks write themselves, beside the rows of the queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from dibs.jobs import JobRecord
from dibs.states import State
from worker.diary import Entry
from worker.harness import Site, WorkerProcess

#: Transactions of dibs' own connections that have been open for more than a second.
OLD_TRANSACTIONS = {
    "postgres": """
        SELECT application_name, state, query FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'dibs%' AND xact_start < now() - interval '1 second'
    """,
    "mysql": """
        SELECT p.id, t.trx_state, t.trx_query
        FROM information_schema.innodb_trx AS t JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id
        WHERE p.db = DATABASE() AND t.trx_started < NOW() - INTERVAL 1 SECOND
    """,
}


def nothing_lost_nothing_twice(
    site: Site[Any], job_ids: Iterable[int], *, gone: Iterable[WorkerProcess] = (), crashed: bool = True
) -> list[JobRecord]:
    """Each job is in one final state, which belongs to its last attempt; no work was done twice at the same time; nothing is
    left running; no worker has ended but those that were ended (`gone`). Return the jobs.

    `crashed`: may leases have run out? If not, each job was started exactly as often as its attempts say.
    """
    jobs = site.jobs(job_ids)
    started, ended = defaultdict[int, list[Entry]](list), defaultdict[int, list[Entry]](list)
    for entry in site.diary.entries():  # read once: there may be thousands of jobs
        if entry.event in ("start", "end"):
            (started if entry.event == "start" else ended)[entry.job].append(entry)
    for job in jobs:
        starts, ends = started[job.id], ended[job.id]
        assert job.status in (State.DONE, State.FAILED, State.CANCELLED), job
        if job.status is State.DONE:
            assert job.claims in [entry.claims for entry in ends], f"done without its work: {job}"
            assert job.claims == max(entry.claims for entry in starts), f"done by an attempt before the last: {job}"
        if not crashed:
            assert len(starts) == job.attempts, job
            assert job.crashes == 0, job
    assert site.running() == set()
    gone = set(gone)
    assert [worker.pid for worker in site.workers if worker not in gone and not worker.alive] == []
    if site.db.kind in OLD_TRANSACTIONS:
        assert site.db.fetch(OLD_TRANSACTIONS[site.db.kind]) == []
    return jobs
