"""What `dibs doctor` asks of every database, and the checks of the server that each answers in its own way.

Everything here only reads. What it reads is bounded: a range of an index up to a limit, the newest rows, what runs, the
views of the server. A check that a database has no use for says that it is skipped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from dibs.dialects.dialect import Dialect
from dibs.dialects.spelling import spell_constants
from dibs.dialects.urls import DatabaseUrl
from dibs.findings import Finding, Limits, fail, ok, skipped, warn
from dibs.jobs import Lane, Position
from dibs.ops import Op, fetch

#: Running jobs that are looked at, at most, and rows of a lane in which tasks are looked for.
MOST_RUNNING = 10_000
MOST_OF_LANE = 1_000

#: A server that counts for a shorter time has had a few deadlocks by chance.
LEAST_MINUTES = 100

#: Statements that take longer (seconds) are cut short, where the server can.
LONGEST_STATEMENT = 5.0

#: As long as that where one was cut short before: somebody locks the table, and will for the other checks.
LONGEST_AFTERWARDS = 1.0


class Index(NamedTuple):
    """An index as the catalogue has it. `where`: is it a partial one?"""

    columns: tuple[str, ...]
    valid: bool = True
    where: bool = False


class Catalogue(NamedTuple):
    """The tables of this queue, as they are: the type of each column, by table, and the indexes by name."""

    columns: dict[str, dict[str, str]]
    indexes: dict[str, Index]


class Ended(NamedTuple):
    """One of the newest jobs, as far as it tells how the queue fares. `ran` (seconds) is None where it has not ended."""

    task: str
    status: str
    attempts: int
    crashes: int
    lease: float | None
    ran: float | None


class PastLease(NamedTuple):
    """A lease that is past, for so long (seconds), and how long it was to last."""

    owner: str
    past: float
    lease: float


class Examining(ABC):
    """The statements that examine one database."""

    def __init__(self, dialect: Dialect, url: DatabaseUrl) -> None:
        self.dialect = dialect
        self.url = url
        spell_constants(self, dialect.spell)

    def look(self, account: str) -> str:
        """Return the statement that grants a look at the views of the server to an account, as the server names it."""
        del account
        return ""

    def hurry(self, longest: float) -> Op[None]:
        """Have statements of this transaction, or this session, end after so many seconds, where the server can."""
        del longest
        yield from ()

    # -- the tables --------------------------------------------------------------------------------

    @abstractmethod
    def catalogue(self) -> Op[Catalogue]:
        """Return the columns and indexes of this queue's tables; types as the migrations write them, in lower case."""

    def rebuild(self, index: str, create: str) -> str:
        """Return what mends an index that is there and of no use; `create` makes one that is not there."""
        del index
        return create

    def of_claim(self, lane: Lane, tasks: list[str]) -> dict[str, Any]:
        """Return what a claim of a lane from its beginning takes."""
        place = Position(self.dialect.beginning, 0)
        return {**lane._asdict(), **place._asdict(), "limit": 10, "tasks": self.dialect.names(tasks or ["?"])}

    @abstractmethod
    def plan(self, lane: Lane, tasks: list[str]) -> Op[Finding]:
        """Judge the plan of the part of a claim that picks rows, which is not run."""

    # -- the server ----------------------------------------------------------------------------------

    def server(self) -> Op[Finding]:
        """Is it one on which a queue can run? What speaks against it is raised, as for a worker."""
        yield from self.dialect.suitable()
        return ok(f"{self.dialect.name}, takes writes")

    def snapshots(self, limits: Limits) -> Op[Finding]:
        """Who holds a view of the past, so that what was since deleted can't be cleaned away?"""
        del limits
        yield from ()
        return skipped("nobody sees the past here")

    def dead(self, limits: Limits) -> Op[Finding]:
        """Are dead rows cleaned away as fast as they come?"""
        del limits
        yield from ()
        return skipped("")

    def isolation(self) -> Op[Finding]:
        """What do transactions get that say nothing about their isolation, and do sessions commit by themselves?"""
        yield from ()
        return skipped("one writer at a time: transactions are serializable")

    @abstractmethod
    def timeouts(self, limits: Limits) -> Op[Finding]:
        """Is there one that cuts dibs short?"""

    def connections(self, limits: Limits, *, wanted: int) -> Op[Finding]:
        """Are there enough for what the registered workers may open?"""
        del limits, wanted
        yield from ()
        return skipped("there is no server")

    def zones(self, *, wanted: bool) -> Op[Finding]:
        """Does the server know time zones by name? Only where somebody wants them."""
        del wanted
        yield from ()
        return skipped("it needs no tables for them")

    def deadlocks(self, limits: Limits) -> Op[Finding]:
        """How many were there?"""
        del limits
        yield from ()
        return skipped("one writer at a time: there are none")

    def storage(self) -> Op[Finding]:
        """Is a file where processes can share it?"""
        yield from ()
        return skipped("there is a server")

    def deadlock_rate(self, number: int, seconds: float, limits: Limits) -> Finding:
        """Judge how many deadlocks there were in so many seconds."""
        found = f"{number:,} in {seconds / 3600:,.1f} h"
        if number > limits.deadlocks * max(seconds / 60, LEAST_MINUTES):
            return warn(
                found,
                "each undoes somebody's work. dibs tries its own again; yours may fail",
                "have your transactions lock rows in one order; the server's log can name them",
            )
        return ok(found)

    # -- the queue, alike on every database -----------------------------------------------------------

    NEWEST: ClassVar[str] = """
        SELECT task, status, attempts, crashes, lease, started_at, finished_at FROM dibs_jobs ORDER BY id DESC LIMIT :limit
    """

    def newest(self, limit: int) -> Op[list[Ended]]:
        """Return the newest jobs."""
        rows = yield from fetch(self.NEWEST, limit=limit)
        return [
            Ended(task, status, attempts, crashes, lease, self._between(start, end))
            for task, status, attempts, crashes, lease, start, end in rows
        ]

    def _between(self, start: Any, end: Any) -> float | None:
        if start is None or end is None:
            return None
        return (self.dialect.moment(end) - self.dialect.moment(start)).total_seconds()

    HELD: ClassVar[str] = f"""
        SELECT lease_owner, lease_until, lease, {{now}} FROM dibs_jobs WHERE status = 'running' LIMIT {MOST_RUNNING}
    """

    def past_leases(self) -> Op[list[PastLease]]:
        """Return the leases of running jobs that are past."""
        rows = yield from fetch(self.HELD)
        held = [
            PastLease(owner or "?", -(self._between(now, until) or 0.0), lease or 0.0)
            for owner, until, lease, now in rows
        ]
        return [each for each in held if each.past > 0]

    LATE: ClassVar[str] = f"""
        SELECT count(*) FROM (
            SELECT expires_at FROM dibs_jobs WHERE expires_at < {{soon}} ORDER BY expires_at LIMIT {MOST_RUNNING}) AS late
    """

    def retention(self, limits: Limits) -> Op[Finding]:
        """Are finished rows deleted when their retention is over?"""
        ((number,),) = yield from fetch(self.LATE, delay=-limits.late)
        if not number:
            return ok(f"no finished row is more than {limits.late:g} s past its retention")
        more = " or more" if number == MOST_RUNNING else ""
        return warn(
            f"{number:,}{more} finished rows are more than {limits.late:g} s past their retention",
            "workers delete them by the way: none does, or they can't keep up, and the table grows",
            "dibs prune",
        )

    TASKS: ClassVar[str] = f"""
        SELECT DISTINCT task FROM (
            SELECT task FROM dibs_jobs WHERE status = 'ready' AND queue = :queue AND priority = :priority
            AND run_at <= {{now}} ORDER BY run_at, id LIMIT {MOST_OF_LANE}) AS due
    """

    def tasks(self, lane: Lane) -> Op[list[str]]:
        """Return the tasks of the jobs that are next in a lane."""
        rows = yield from fetch(self.TASKS, queue=lane.queue, priority=lane.priority)
        return sorted(row[0] for row in rows)


class Room(NamedTuple):
    """Connections that are in use, and how many there may be. `whose`: what a limit is of, if it is not all the server's."""

    whose: str
    used: int
    limit: int
    fix: str


def room(rooms: Sequence[Room], *, wanted: int, limits: Limits) -> Finding:
    """Judge whether there are connections left, by the limit that is nearest."""
    nearest = min(rooms, key=lambda each: each.limit - max(each.used, wanted))
    found = f"{nearest.used} of {nearest.whose}{nearest.limit} in use; the registered workers may open {wanted}"
    if nearest.used > nearest.limit * limits.busy or wanted > nearest.limit:
        return warn(found, "who finds none left waits, and a worker's leases run out meanwhile", nearest.fix)
    return ok(found)


def judge_plan(index: str, problems: list[str], fix: str) -> Finding:
    """Judge what is wrong with a claim's plan."""
    if problems:
        return fail(
            "; ".join(problems),
            "a claim that reads, or sorts, more than the rows that it takes gets slower with every job that waits",
            fix,
        )
    return ok(f"a range of {index}, in its order")
