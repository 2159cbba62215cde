"""Who holds rows of the queue, or stands in the way of its statements: what was found, put together. Pure.

A dialect's questions each find a part (`Found`); `report` makes of them what a person wants to know.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import TypeAlias

import msgspec

from dibs.register import WorkerRecord
from dibs.wording import jobs, moment

#: Who it is: the id of a session at the server (of a process, where there is no server), or the name of a prepared
#: transaction.
Who: TypeAlias = "int | str"

#: Characters of a statement that are shown.
LONGEST_QUERY = 300

#: A transaction of dibs' own takes milliseconds. It is shown from this age (seconds) on, or where others wait for it.
LONG = 1.0

_PASSWORD = re.compile(
    r"(?i)(\b(?:identified\s+(?:\w+\s+\S+\s+)?(?:by|as)(?:\s+password)?|password|passwd|pwd)\b\s*(?:=>|:=|=|\()?\s*)"
    r"(''[^']+''|'(?:[^'\\]|''|\\.)*'?|\"(?:[^\"\\]|\"\"|\\.)*\"?)"
)
_BARE_PASSWORD = re.compile(r"(?i)(\b(?:password|passwd|pwd)\s*=\s*)[^\s'\"]+")
_IN_URL = re.compile(r"(\w+://[^\s:/@]*:)[^\s@/]*(?=@)")


class LockHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that holds rows of the queue, or blocks its statements. Times are by the database's clock.

    - `session`: the id of its session at the server, of its process where the database is a file. None for a
      transaction that was prepared (two-phase commit): that has none any more, and `prepared` is its name.
    - `kind`: `worker` (a connection of dibs' own: see `worker`), `transaction` (somebody's), `prepared`, or `process`
      (that has the file open).
    - `state`: what it does, in words. `wait`: what it waits for, as the server calls it. `since`, `seconds`: when its
      transaction began, and for how long it has been open; None where that can't be known.
    - `query`: its statement of this moment, or the last one, shortened, without passwords.
    - `rows`: how many rows of jobs it holds, of the queue that was asked for; None where the database does not tell.
      `queues`: the same by queue. `jobs`: the ids of some of them. `certain` is False where it is only known that the
      transaction is open and may hold rows of the queue.
    - `tables`: locks of whole tables that keep dibs out, or will as soon as they are had.
    - `waits_for`: the sessions that it waits for. `blocks`: those that wait for it. 0 stands for a prepared transaction.
      Who skips a row waits for nobody, so an empty `blocks` does not mean that it holds up nothing.
    - `worker`: the worker whose connection it is, as the register knows it.
    - `ends_with`: what would end it. It is never run unless you ask for it.
    """

    session: int | None
    kind: str
    state: str
    since: datetime | None = None
    seconds: float | None = None
    wait: str | None = None
    query: str | None = None
    application: str | None = None
    client: str | None = None
    user: str | None = None
    prepared: str | None = None
    worker: str | None = None
    rows: int | None = None
    queues: dict[str, int] = {}
    jobs: list[int] = []
    certain: bool = True
    tables: list[str] = []
    waits_for: list[int] = []
    blocks: list[int] = []
    ends_with: str = ""


class LockReport(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds what, those that others wait for first, then the oldest.

    `notes`: what could not be known, and why. `complete` is False where a part could not be looked at at all: then nobody in
    `holders` does not mean that nobody holds anything.
    """

    holders: list[LockHolder]
    notes: list[str]
    complete: bool = True


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that is open, as the server shows it."""

    who: Who
    state: str
    kind: str = "transaction"
    since: datetime | None = None
    seconds: float | None = None
    wait: str | None = None
    query: str | None = None
    application: str | None = None
    client: str | None = None
    user: str | None = None
    may_hold: bool = False  # can it not be told whether it holds rows of the queue?
    ends_with: str = ""


class RowsHeld(msgspec.Struct, frozen=True):
    """How many jobs of a queue somebody holds, and the ids of some."""

    who: Who
    queue: str
    number: int
    jobs: list[int]


class TableLock(msgspec.Struct, frozen=True):
    """A lock of one of dibs' tables. `strong`: dibs' statements can't go on beside it."""

    who: Who
    table: str
    mode: str
    granted: bool
    strong: bool
    writes: bool = False


class Found(msgspec.Struct, frozen=True):
    """What one question found out."""

    sessions: list[Session] = []
    rows: list[RowsHeld] = []
    tables: list[TableLock] = []
    waits: list[tuple[Who, Who]] = []  # who waits, and for whom
    notes: list[str] = []
    counted: bool = False  # is `rows` all that there is?
    complete: bool = True  # could it be looked at?


def report(found: Iterable[Found], workers: Iterable[WorkerRecord], *, queue: str | None, host: str) -> LockReport:
    """Put together what was found: only who really holds something, or blocks somebody; not who merely waits.

    `host` is this machine's name: the ids of processes mean something here alone.
    """
    parts = list(found)
    sessions: dict[Who, Session] = {}
    for session in (each for part in parts for each in part.sessions):
        sessions.setdefault(session.who, session)
    rows: dict[Who, list[RowsHeld]] = defaultdict(list)
    for held in (each for part in parts for each in part.rows):
        if queue is None or held.queue == queue:
            rows[held.who].append(held)
    tables: dict[Who, list[TableLock]] = defaultdict(list)
    for lock in (each for part in parts for each in part.tables):
        tables[lock.who].append(lock)
    counted = any(part.counted for part in parts)
    blocks: dict[Who, set[int]] = defaultdict(set)
    waits: dict[Who, set[int]] = defaultdict(set)
    for waiter, other in (each for part in parts for each in part.waits):
        if isinstance(waiter, int):
            blocks[other].add(waiter)
        if isinstance(other, int):
            waits[waiter].add(other)
    known = list(workers)
    holders = []
    for who, session in sessions.items():
        strong = [lock for lock in tables[who] if lock.strong]
        writes = any(lock.writes for lock in tables[who])
        blocked = sorted(each for each in blocks[who] if tables[each] or rows[each])
        worker = _worker_of(session, known, host)
        ours = worker is not None or (session.application or "").startswith("dibs ")
        old = session.seconds is None or session.seconds >= LONG
        waits_only = bool(waits[who]) and not rows[who]
        uncommitted = queue is None and writes and old and not waits_only
        if not (rows[who] or strong or blocked or uncommitted or (session.may_hold and not counted)):
            continue
        if ours and not old and not blocked:
            continue
        by_queue: dict[str, int] = {}
        for held in rows[who]:
            by_queue[held.queue] = by_queue.get(held.queue, 0) + held.number
        holders.append(
            LockHolder(
                session=who if isinstance(who, int) else None,
                prepared=who if isinstance(who, str) else None,
                kind="worker" if ours else session.kind,
                state=session.state,
                since=session.since,
                seconds=None if session.seconds is None else round(session.seconds, 3),
                wait=session.wait,
                query=shortened(session.query),
                application=session.application or None,
                client=session.client or None,
                user=session.user,
                worker=worker,
                rows=sum(by_queue.values()) if counted else None,
                queues=by_queue,
                jobs=[job for held in rows[who] for job in held.jobs][:5],
                certain=bool(rows[who] or strong or blocked or writes or session.kind == "process"),
                tables=[f"{lock.mode} on {lock.table}{'' if lock.granted else ' (waiting)'}" for lock in strong],
                waits_for=sorted(waits[who]),
                blocks=blocked,
                ends_with=session.ends_with,
            )
        )
    holders.sort(key=lambda holder: (-len(holder.blocks), -(holder.seconds or 0.0), holder.session or 0))
    notes = list(dict.fromkeys(note for part in parts for note in part.notes))
    return LockReport(holders=holders, notes=notes, complete=all(part.complete for part in parts))


def _worker_of(session: Session, workers: list[WorkerRecord], host: str) -> str | None:
    """Return the worker whose connection this is. Ids of sessions come again, so the name it connects under counts, too."""
    if session.application and not session.application.startswith("dibs"):
        return None
    for worker in workers:
        if session.kind == "process":
            if worker.host == host and worker.pid == session.who:
                return worker.worker
        elif session.who in (worker.detail or {}).get("sessions", ()):
            return worker.worker
    return None


def described(holder: LockHolder) -> str:
    """Return in a line who it is, what it holds, what it does, and since when."""
    return f"{_who(holder)} {_what(holder)}, {holder.state}{_since(holder)}"


def _who(holder: LockHolder) -> str:
    if holder.worker:
        return f"worker {holder.worker} (session {holder.session})"
    if holder.kind == "worker":
        return f"dibs' own session {holder.session}"
    if holder.prepared is not None:
        return f"prepared transaction {holder.prepared}"
    return f"{'process' if holder.kind == 'process' else 'session'} {holder.session}"


def _what(holder: LockHolder) -> str:
    if holder.rows:
        return f"holds {jobs(holder.rows)}"
    if holder.kind == "process":
        return "keeps all others from writing"
    if any(table.endswith("(waiting)") for table in holder.tables):
        return "stands in line for a whole table, and others behind it"
    if holder.tables:
        return "holds a whole table"
    if holder.blocks:
        return "is waited for"
    if holder.certain:
        return "has written and not committed, perhaps new jobs or keys"
    return "may hold jobs"


def _since(holder: LockHolder) -> str:
    if holder.since is None or holder.seconds is None:
        return ""
    return f", open for {holder.seconds:,.0f} s, since {moment(holder.since)}"


def shortened(query: str | None) -> str | None:
    """Return a statement on one line, cut, and without passwords.

    >>> shortened("ALTER USER shop\\n  PASSWORD 'very secret'")
    "ALTER USER shop PASSWORD '…'"
    """
    if not query:
        return None
    query = _BARE_PASSWORD.sub(r"\1…", _PASSWORD.sub(r"\1'…'", query))
    line = " ".join(_IN_URL.sub(r"\1…", query).split())
    return line if len(line) <= LONGEST_QUERY else f"{line[: LONGEST_QUERY - 1]}…"
