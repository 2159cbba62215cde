"""Runs the checks one after the other on one connection. One that goes wrong says so, and the others go on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

import msgspec

from dibs import migrations, ops, privileges
from dibs.bindings.binding import OwnConnection
from dibs.connections import Connections
from dibs.dialects.doctor import examining
from dibs.dialects.doctor.examining import LONGEST_AFTERWARDS, LONGEST_STATEMENT, Ended
from dibs.dialects.spelling import TABLES
from dibs.doctor.drift import drift, made
from dibs.doctor.service import expired, failures, leases, unknown, unserved
from dibs.errors import DatabaseError, ReadOnlyDatabase, UnsuitableDatabase
from dibs.findings import Finding, Level, Limits, Report, fail, ok, skipped, warn
from dibs.jobs import Lane
from dibs.meanings import is_of_a_driver
from dibs.ops import Op, fetch
from dibs.register import WorkerRecord, alive
from dibs.troubles import Trouble

T = TypeVar("T")

#: Connections that one worker may open: its own and those of its app's.
OF_A_WORKER = 11

#: Lanes that are looked into, at most.
MOST_LANES = 200

#: An answer that does not come for so long (seconds) is not waited for: the server ends statements before.
PATIENCE = 2 * LONGEST_STATEMENT


class Examination:
    """One look at a queue. What several checks need is asked once."""

    def __init__(self, app: Connections, limits: Limits, clock: Callable[[], float]) -> None:
        self.app = app
        self.limits = limits
        self.clock = clock
        self.dialect = app.dialect
        self.examining = examining(app.dialect, app.url)
        self._connection: OwnConnection | None = None
        self._gone: DatabaseError | None = None
        self.longest = LONGEST_STATEMENT

    # -- asking --------------------------------------------------------------------------------------

    @property
    def connection(self) -> OwnConnection:
        """One that a worker would have, opened anew where it was lost. Not from the store, which refuses old tables."""
        if self._gone is not None:
            raise self._gone
        if self._connection is None:
            try:
                connection = self.app.store.open()
            except DatabaseError as error:
                self._gone = error  # the other checks need not wait for it, too
                raise
            connection.prefer_indexes()
            if connection.patience is not None:
                connection.patience = min(connection.patience, PATIENCE)
            self._connection = connection
        return self._connection

    def ask(self, op: Op[T]) -> T:
        """Run an op that reads, in a transaction that is undone."""
        connection = self.connection
        connection.begin(writes=False)
        try:
            ops.run(self.examining.hurry(self.longest), connection)
            return ops.run(op, connection)
        finally:
            with contextlib.suppress(Exception):
                connection.rollback()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @cached_property
    def version(self) -> tuple[int, int]:
        return migrations.version(self.dialect, self.connection)

    @cached_property
    def workers(self) -> list[WorkerRecord]:
        return self.ask(self.dialect.workers())

    @cached_property
    def lanes(self) -> list[Lane]:
        return self.ask(self.dialect.lanes(None))[:MOST_LANES]

    @cached_property
    def due(self) -> dict[Lane, float]:
        """For how long (seconds) the oldest job of each lane is due."""
        found = {lane: self.ask(self.dialect.lane_depth(lane, limit=1)).oldest for lane in self.lanes}
        return {lane: oldest for lane, oldest in found.items() if oldest is not None and oldest > self.limits.waiting}

    @cached_property
    def tasks(self) -> dict[Lane, list[str]]:
        return {lane: self.ask(self.examining.tasks(lane)) for lane in self.due}

    @cached_property
    def newest(self) -> list[Ended]:
        return self.ask(self.examining.newest(self.limits.sample))

    # -- checks --------------------------------------------------------------------------------------

    def schema(self) -> Finding:
        there, oldest_code = self.version
        if there == 0 or there < migrations.OLDEST_SCHEMA or oldest_code > migrations.SCHEMA:
            found = "there are no tables" if there == 0 else f"version {there}; this code knows {migrations.SCHEMA}"
            fix = "install a newer dibs" if oldest_code > migrations.SCHEMA else "dibs migrate"
            return fail(found, "this code can't work on these tables", fix)
        if there < migrations.SCHEMA:
            return warn(
                f"version {there}; this code knows {migrations.SCHEMA}",
                "what is newer (such as the register of workers) is missing",
                "dibs migrate",
            )
        return ok(f"version {there}" if there == migrations.SCHEMA else f"version {there}, newer than this code")

    def tables(self) -> Finding:
        there, _ = self.version
        texts = [text for number, _, text in migrations.files(self.dialect) if number <= there]
        return drift(made(texts), self.ask(self.examining.catalogue()), self.examining)

    def claim(self) -> Finding:
        lane = self.lanes[0] if self.lanes else Lane("default", 0)
        tasks = self.tasks.get(lane) or ["?"]
        return self.ask(self.examining.plan(lane, tasks))

    def server(self) -> Finding:
        try:
            return self.ask(self.examining.server())
        except (ReadOnlyDatabase, UnsuitableDatabase) as error:
            found, _, advice = str(error).rpartition(": ")
            return fail(found or advice, "no queue can run there", advice)

    def storage(self) -> Finding:
        return self.ask(self.examining.storage())

    def pooler(self) -> Finding:
        if self.dialect.channel is None:
            return skipped("sessions carry nothing here that a pooler could lose")
        if not self.connection.pooled:
            return ok("sessions are not lent by the transaction")
        if not getattr(self.app, "notify", True):
            return ok("sessions are lent by the transaction; the app sends no notifications")
        return warn(
            "a pooler lends sessions by the transaction",
            "notifications are not heard behind it: jobs wait up to half a second for a poll",
            "point workers past the pooler, or at a pool of sessions; or Dibs(notify=False), if that is short enough",
        )

    def isolation(self) -> Finding:
        return self.ask(self.examining.isolation())

    def timeouts(self) -> Finding:
        return self.ask(self.examining.timeouts(self.limits))

    def connections(self) -> Finding:
        wanted = len(alive(self.workers)) * OF_A_WORKER
        return self.ask(self.examining.connections(self.limits, wanted=wanted))

    def time(self) -> Finding:
        if self.dialect.migrates_itself:
            return skipped("the database's clock is this machine's")
        best: tuple[float, float] | None = None
        for _ in range(3):  # the quickest answer says most
            before, began = self.clock(), time.monotonic()
            moment = self.dialect.moment(ops.run(self.dialect.clock(), self.connection))
            took = time.monotonic() - began
            apart = moment.timestamp() - before - took / 2
            best = min(best, (took, apart)) if best else (took, apart)
        assert best
        found = f"the database is {abs(best[1]):.3f} s {'ahead' if best[1] > 0 else 'behind'}, ± {best[0] / 2:.3f} s"
        if abs(best[1]) - best[0] / 2 > self.limits.clock:
            return warn(
                found,
                "a run_at that your code makes comes early or late by that; leases go by the database's clock alone",
                "have both machines set their clocks by NTP: timedatectl set-ntp true",
            )
        return ok(found)

    def zones(self) -> Finding:
        return self.ask(self.examining.zones(wanted=self.app.wants_zones))

    def snapshots(self) -> Finding:
        return self.ask(self.examining.snapshots(self.limits))

    def dead(self) -> Finding:
        return self.ask(self.examining.dead(self.limits))

    def deadlocks(self) -> Finding:
        return self.ask(self.examining.deadlocks(self.limits))

    def unserved(self) -> Finding:
        waiting: dict[str, float] = {}
        for lane, oldest in self.due.items():
            waiting[lane.queue] = max(oldest, waiting.get(lane.queue, 0.0))
        paused = {row[0] for row in self.ask(self.dialect.paused())}
        return unserved(waiting, self.workers, paused)

    def unknown(self) -> Finding:
        return unknown((task for tasks in self.tasks.values() for task in tasks), self.workers)

    def expired(self) -> Finding:
        return expired(self.ask(self.examining.past_leases()))

    def leases(self) -> Finding:
        return leases(self.newest)

    def failures(self) -> Finding:
        return failures(self.newest, self.limits)

    def retention(self) -> Finding:
        return self.ask(self.examining.retention(self.limits))


Check = Callable[[Examination], Finding]

#: The checks of the tables and of the server, and those that need the tables to be there.
CHECKS: dict[str, Check] = {
    "schema": Examination.schema,
    "server": Examination.server,
    "storage": Examination.storage,
    "pooler": Examination.pooler,
    "isolation": Examination.isolation,
    "timeouts": Examination.timeouts,
    "clock": Examination.time,
    "time zones": Examination.zones,
    "old snapshots": Examination.snapshots,
    "deadlocks": Examination.deadlocks,
}
OF_TABLES: dict[str, Check] = {
    "tables": Examination.tables,
    "claim plan": Examination.claim,
    "dead rows": Examination.dead,
    "connections": Examination.connections,
    "unserved queues": Examination.unserved,
    "unknown tasks": Examination.unknown,
    "expired leases": Examination.expired,
    "lease length": Examination.leases,
    "failures": Examination.failures,
    "retention": Examination.retention,
}


def examine(
    app: Connections,
    limits: Limits | None = None,
    *,
    clock: Callable[[], float] = time.time,
    step: Callable[[str], None] = lambda check: None,
) -> Report:
    """Look at an app's queue; `step` is called before each check. Raises DatabaseUnavailable if nothing can be asked."""
    began = time.monotonic()
    examination = Examination(app, limits or Limits(), clock)
    with _closed(examination):
        examination.connection  # noqa: B018 - where there is none there is nothing to say of the rest
        findings = [_examined(examination, name, check, step) for name, check in CHECKS.items()]
        there = findings[0].level is not Level.FAIL
        for name, check in OF_TABLES.items():
            if there:
                findings.append(_examined(examination, name, check, step))
            else:
                findings.append(Finding(name, Level.SKIPPED, "see schema"))
    return Report(str(app.url), worst(findings), round(time.monotonic() - began, 3), findings)


def worst(findings: Iterable[Finding]) -> Level:
    levels = {finding.level for finding in findings}
    return next((level for level in (Level.FAIL, Level.WARN) if level in levels), Level.OK)


@contextmanager
def _closed(examination: Examination) -> Iterator[None]:
    try:
        yield
    finally:
        examination.close()


def _examined(examination: Examination, name: str, check: Check, step: Callable[[str], None]) -> Finding:
    step(name)
    try:
        finding = check(examination)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other checks should be heard
        finding = _unanswered(examination, error)
    return msgspec.structs.replace(finding, check=name)


def _unanswered(examination: Examination, error: Exception) -> Finding:
    """Say why a check has no answer. A bug of dibs' own is none of the database's, and is raised."""
    said = str(error).strip().partition("\n")[0] or type(error).__name__
    if isinstance(error, DatabaseError):
        examination.close()
        return warn(f"it could not be asked: {said}", "what it would have found is not known", "ask again")
    if not is_of_a_driver(error):
        raise error
    trouble = examination.connection.trouble(error)
    if trouble is Trouble.DENIED:
        why = "what this account may not see is not checked"
        return warn(f"it may not be asked by this account: {said}", why, _to_grant(examination, said))
    if trouble in (Trouble.READ_ONLY, Trouble.UNSUITABLE):
        return skipped("see server")
    if trouble is Trouble.LOST:
        examination.close()
    fix = "see what `schema` and `tables` say"
    if trouble in (Trouble.LOCKED, Trouble.LOST):
        if trouble is Trouble.LOCKED:
            said = f"no answer within {examination.longest:g} s ({said})"
            examination.longest = LONGEST_AFTERWARDS
        fix = "ask again; look for who locks the table (a migration, a backup), for old snapshots and dead rows"
    return warn(f"it could not be asked: {said}", "what it would have found is not known", fix)


def _to_grant(examination: Examination, said: str) -> str:
    """Return what gives the account a look: at dibs' tables, if it is one of these that it may not read, or at the server."""
    dialect = examination.dialect
    ((account,),) = examination.ask(fetch(dialect.ACCOUNT))
    if not any(table in said for table in (*TABLES, f"schema {dialect.schema}")):
        return examination.examining.look(account)
    needed = [*privileges.needed_by_worker(dialect), ("SELECT", "dibs_workers")]
    lacking = privileges.missing(dialect, examination.connection, needed)
    return "; ".join(dialect.grant(privilege, on, account) for privilege, on in lacking)
