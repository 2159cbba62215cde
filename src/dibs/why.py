"""Why nothing of a queue is being claimed: from what was read of it to one answer, with the others that hold too.

Pure: no I/O and no clock. What is read, and how much of it at most, is in `diagnosis`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from shlex import quote
from typing import NamedTuple

import msgspec

from dibs import wording
from dibs.holders import LockHolder, described
from dibs.register import WorkerRecord


class Reason(StrEnum):
    """What a queue's state comes to. Where several hold, the first of them is the answer."""

    MISDIRECTED = "misdirected"
    PAUSED = "paused"
    WORKING = "working"
    UNSERVED = "unserved"
    UNKNOWN_TASK = "unknown_task"
    LOCKED = "locked"
    EXPIRED = "expired"
    LEASED = "leased"
    RETRYING = "retrying"
    SCHEDULED = "scheduled"
    FAILED = "failed"
    EMPTY = "empty"


#: A queue is being worked on where a claim is not older than this (seconds).
LATELY = 1.0

#: Upkeep looks for leases that are over every ten seconds at least; so much later (seconds) than it was to, it is not running.
UPKEEP_LATE = 30.0


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """Another place on the same server: what of this queue's name is there.

    `database` is None where that is the same one. `waiting` counts its due jobs (a few are looked at), `workers` those alive
    there that serve it.
    """

    database: str | None = None
    schema: str
    prefix: str
    waiting: int
    workers: int


class Half(NamedTuple):
    """What is in one place of a queue: due jobs, since when and of which tasks; who serves it; when it last got a job."""

    waiting: int
    since: datetime | None
    tasks: frozenset[str]
    serving: tuple[WorkerRecord, ...]
    enqueued: datetime | None


def are_halves(here: Half, there: Half) -> bool:
    """Do jobs and workers of one queue seem to be apart: one in this place, one in that?

    Two programs may have queues of one name side by side, on one server. So what is missing here must be there, and fit: a
    worker that knows the task. And a place that has got a job of the queue since the other one's began to wait has a
    producer of its own: it is a queue of its own, whose workers are busy, or down.
    """
    if here.waiting:
        return not here.serving and _knows(there, here) and not _got_a_job_since(there, here.since)
    if here.serving:
        return (
            bool(there.waiting)
            and not there.serving
            and _knows(here, there)
            and not _got_a_job_since(here, there.since)
        )
    used = bool(there.waiting) or any(worker.queues is not None for worker in there.serving)
    return used and not _got_a_job_since(here, there.enqueued or there.since)


def _knows(served: Half, waiting: Half) -> bool:
    return any(worker.knows(task) for worker in served.serving for task in waiting.tasks)


def _got_a_job_since(half: Half, moment: datetime | None) -> bool:
    return half.enqueued is not None and (moment is None or half.enqueued >= moment)


class Figures(msgspec.Struct, kw_only=True):
    """What was read of a queue. Moments are aware UTC, by the database's clock; None: there is none, or it is not known.

    - `due`: jobs that may be claimed now, as far as they were looked at (500 of a lane; `capped` says that there may be
      more of this or that). `locked`: those of them that others' transactions hold; `held_by` who, as far as can be told.
    - `running`: jobs under a lease that is good, until `lease_until` at the earliest, `last_lease_until` at the latest;
      running workers renew theirs. `expired`: those whose lease is over, since `expired_since`.
    - `upkeep_late`: where leases are over, for how many seconds nobody has looked for such, though it was time; None: somebody
      does.
    - `workers`: those alive; `serving`: those of them that serve the queue. None where the register can't be read, or they
      can't write to it.
    - `unknown_tasks`: tasks of due jobs that none of these knows.
    - `failed`: failed jobs that are kept; `others_done`: was any job of the queue done lately?
    """

    now: datetime | None = None
    due: int = 0
    oldest_due_at: datetime | None = None
    locked: int = 0
    table_locked: bool = False
    held_by: list[LockHolder] = []
    running: int = 0
    lease_until: datetime | None = None
    last_lease_until: datetime | None = None
    owners: list[str] = []
    expired: int = 0
    expired_since: datetime | None = None
    upkeep_late: float | None = None
    scheduled: int = 0
    next_scheduled_at: datetime | None = None
    retrying: int = 0
    next_retry_at: datetime | None = None
    failed: int = 0
    last_failed_at: datetime | None = None
    others_done: bool = False
    paused_at: datetime | None = None
    paused_by: str | None = None
    workers: int | None = None
    serving: list[str] | None = None
    unknown_tasks: list[str] = []
    claimed_at: datetime | None = None
    capped: bool = False
    replica: str | None = None
    elsewhere: list[Elsewhere] = []


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `app.why(queue)`.

    - `reason`: the first that holds; see `Reason`. `also`: all others that hold, in their order.
    - `answer`: the reason in words. `next`: what to do about it, as sentences or commands; may be empty.
    - `detail`: the figures behind it. `database`: where this was looked up, without secrets.
    """

    queue: str
    database: str
    reason: Reason
    answer: str
    next: list[str]
    also: list[Reason]
    detail: Figures


def is_lately(moment: datetime | None, now: datetime | None) -> bool:
    """Was that within the last second?"""
    return moment is not None and now is not None and now - moment <= timedelta(seconds=LATELY)


def holding(figures: Figures) -> list[Reason]:
    """Return all reasons that hold, the first of which is the answer. There is always one.

    >>> holding(Figures(scheduled=2, serving=["w"]))
    [<Reason.SCHEDULED: 'scheduled'>]
    """
    f = figures
    nothing_waits = not (f.due or f.scheduled or f.retrying)
    nothing_here = nothing_waits and not f.running and not f.expired
    conditions = {
        Reason.MISDIRECTED: f.replica is not None or bool(f.elsewhere),
        Reason.PAUSED: f.paused_at is not None,
        Reason.WORKING: is_lately(f.claimed_at, f.now),
        Reason.UNSERVED: f.serving is not None and not f.serving and f.replica is None,
        Reason.UNKNOWN_TASK: bool(f.unknown_tasks),
        Reason.LOCKED: f.locked > 0 or f.table_locked,
        Reason.EXPIRED: f.expired > 0,
        Reason.LEASED: f.running > 0,
        Reason.RETRYING: f.retrying > 0,
        Reason.SCHEDULED: f.scheduled > 0,
        # Everything failed: a queue where something failed and other jobs were done since is empty.
        Reason.FAILED: f.failed > 0 and not f.others_done and nothing_here,
        Reason.EMPTY: nothing_here and f.replica is None and not f.table_locked,
    }
    found = [reason for reason in Reason if conditions[reason]]
    # What is due and free, and nothing in its way: it has just come, or the workers are about to take it.
    in_the_way = {*Reason} - {Reason.RETRYING, Reason.SCHEDULED}
    if f.due > f.locked and not in_the_way & {*found}:
        found.insert(0, Reason.WORKING)
    return found


def answered(queue: str, database: str, figures: Figures) -> Why:
    """Return the answer that the figures come to."""
    reasons = holding(figures)
    say, then = _SAID[reasons[0]]
    return Why(
        queue=queue,
        database=database,
        reason=reasons[0],
        answer=say(queue, figures),
        next=then(queue, figures),
        also=reasons[1:],
        detail=figures,
    )


# -- in words --------------------------------------------------------------------------------------


def _jobs(number: int, figures: Figures | None = None) -> str:
    more = "at least " if figures is not None and figures.capped else ""
    return f"{more}{wording.jobs(number)}"


def _verb(number: int) -> str:
    return "is" if number == 1 else "are"


def _at(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else wording.moment(moment)


def _holders(f: Figures) -> str:
    if not f.held_by:
        return "by whom, this user may not see or the database can't tell"
    more = len(f.held_by) - 1
    return described(f.held_by[0]) + (f"; and {more} more" if more else "")


def _place(there: Elsewhere) -> str:
    """Name a place; where a schema is a database, once.

    >>> _place(Elsewhere(schema="shop", prefix="night_", waiting=0, workers=1))
    "schema shop, prefix 'night_'"
    """
    database = f"database {there.database}, " * (there.database is not None)
    schema = f"schema {there.schema}, " * (there.schema != there.database)
    return f"{database}{schema}prefix {there.prefix!r}"


def _misdirected(queue: str, f: Figures) -> str:
    if f.replica is not None:
        return f"this connection leads to a server that takes no writes: {f.replica}"
    there = "; ".join(f"{_place(each)}: {each.waiting} waiting, {each.workers} workers" for each in f.elsewhere)
    return f"jobs and workers of {queue} are not in the same tables, it seems: {there}"


def _then_misdirected(queue: str, f: Figures) -> list[str]:
    if f.replica is not None:
        return ["point the URL at the primary, in workers, producers and this command alike"]
    return ["compare schema= and prefix= of Dibs(…), and the URL, in the program that enqueues and in the worker's"]


def _paused(queue: str, f: Figures) -> str:
    return f"{queue} is paused since {_at(f.paused_at)}, by {f.paused_by or 'somebody'}"


def _working(queue: str, f: Figures) -> str:
    if is_lately(f.claimed_at, f.now):
        return f"{queue} is being worked on: the last claim was at {_at(f.claimed_at)}"
    free = f.due - f.locked
    return f"{_jobs(free, f)} of {queue} {_verb(free)} due and free, and nothing in the way: they have just come, or are about to be claimed"


def _then_working(queue: str, f: Figures) -> list[str]:
    if is_lately(f.claimed_at, f.now):
        return []
    return ["dibs workers", "ask again in some seconds: if they are still there, the workers' slots are full or stuck"]


def _unserved(queue: str, f: Figures) -> str:
    alive = f"; {f.workers} serve other queues" if f.workers else ": none is registered"
    waiting = f"; {_jobs(f.due, f)} {_verb(f.due)} due" if f.due else ""
    return f"no worker serves {queue}{alive}{waiting}"


def _unknown(queue: str, f: Figures) -> str:
    return f"{queue} has due jobs of tasks that no worker of it knows: {', '.join(f.unknown_tasks)}"


def _locked(queue: str, f: Figures) -> str:
    if f.table_locked and not f.locked:
        return f"a table that {queue} is in is locked as a whole, so nothing can be claimed: {_holders(f)}"
    return f"of {_jobs(f.due, f)} of {queue} that may run now {f.locked:,} {_verb(f.locked)} locked: {_holders(f)}"


def _then_locked(queue: str, f: Figures) -> list[str]:
    ends = "end its session"
    if f.held_by:
        holder = f.held_by[0]
        ends = holder.ends_with if holder.session is None else f"dibs locks {quote(queue)} --kill {holder.session}"
    return [
        f"see what it does, and what would end it: dibs locks {quote(queue)}",
        f"end that transaction, and the jobs are claimed at once: commit, roll back, or {ends}",
    ]


def _expired(queue: str, f: Figures) -> str:
    upkeep = "upkeep takes them back within two leases"
    if not f.workers and f.workers is not None:
        upkeep = "no upkeep is running, since no worker is"
    elif f.upkeep_late is not None:
        upkeep = f"no upkeep is running: nobody has looked for {f.upkeep_late:,.0f} s"
    return f"the lease of {_jobs(f.expired, f)} of {queue} is over since {_at(f.expired_since)}; {upkeep}"


def _then_expired(queue: str, f: Figures) -> list[str]:
    if f.upkeep_late is not None or f.workers == 0:
        return ["start a worker: any worker of this app takes them back, whatever it serves"]
    return ["wait a moment; if they stay, somebody's transaction holds their rows"]


def _leased(queue: str, f: Figures) -> str:
    if f.due:
        return (
            f"{_jobs(f.running, f)} of {queue} {_verb(f.running)} running, and {_jobs(f.due, f)} wait for a free slot"
        )
    who = f" ({', '.join(f.owners[:3])})" if f.owners else ""
    return (
        f"nothing of {queue} is due, and {_jobs(f.running, f)} {_verb(f.running)} running, under leases until "
        f"{_at(f.lease_until)} and later, renewed while their workers live{who}"
    )


def _then_leased(queue: str, f: Figures) -> list[str]:
    return [f"dibs jobs --status running -q {quote(queue)}", "dibs workers"]


def _retrying(queue: str, f: Figures) -> str:
    return f"{_jobs(f.retrying, f)} of {queue} failed and will be tried again, the next at {_at(f.next_retry_at)}"


def _scheduled(queue: str, f: Figures) -> str:
    return (
        f"{_jobs(f.scheduled, f)} of {queue} {_verb(f.scheduled)} not due yet, the next at {_at(f.next_scheduled_at)}"
    )


def _failed(queue: str, f: Figures) -> str:
    return (
        f"nothing of {queue} waits, and all that ended failed: {_jobs(f.failed)}, the last at {_at(f.last_failed_at)}"
    )


def _empty(queue: str, f: Figures) -> str:
    failed = f"; {_jobs(f.failed)} that failed are kept" if f.failed else ""
    return f"{queue} is empty: nothing is ready, later or now, and nothing runs{failed}"


def _then_empty(queue: str, f: Figures) -> list[str]:
    steps = [f"dibs failed -q {quote(queue)}"] if f.failed else []
    return [*steps, "if something should be there: does the producer commit, and enqueue into this database?"]


_SAID: dict[Reason, tuple[Callable[[str, Figures], str], Callable[[str, Figures], list[str]]]] = {
    Reason.MISDIRECTED: (_misdirected, _then_misdirected),
    Reason.PAUSED: (_paused, lambda queue, _: [f"dibs resume {quote(queue)}"]),
    Reason.WORKING: (_working, _then_working),
    Reason.UNSERVED: (
        _unserved,
        lambda queue, _: [f"start a worker that serves it: dibs worker APP -q {quote(queue)}", "dibs workers"],
    ),
    Reason.UNKNOWN_TASK: (
        _unknown,
        lambda queue, _: ["deploy workers whose code has these tasks, or give renamed ones an alias", "dibs workers"],
    ),
    Reason.LOCKED: (_locked, _then_locked),
    Reason.EXPIRED: (_expired, _then_expired),
    Reason.LEASED: (_leased, _then_leased),
    Reason.RETRYING: (_retrying, lambda queue, _: [f"dibs jobs --status ready -q {quote(queue)}"]),
    Reason.SCHEDULED: (_scheduled, lambda *_: []),
    Reason.FAILED: (_failed, lambda queue, _: [f"dibs failed -q {quote(queue)}"]),
    Reason.EMPTY: (_empty, _then_empty),
}
