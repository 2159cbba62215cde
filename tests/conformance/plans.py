"""What a statement reads, as the database itself counts it, and what its plan says.

A plan's text can look right and read a hundred thousand rows: a row comparison that is a filter, a range that is
bounded at one end only. So the rows are counted while the op really runs; each server has a way of its own to tell.
Nothing is left behind: all of it is rolled back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from psycopg import sql

from databases import Database
from dibs import ops
from dibs.bindings.binding import OwnConnection
from dibs.ops import Execute, Fetch, Insert, Op, Request
from dibs.params import Style, render

T = TypeVar("T")

#: Tables with a row for each queue, chore or worker at most: there a scan is the best plan.
SMALL = {"dibs_queues", "dibs_chores", "dibs_workers"}

#: SQLite counts no rows, but steps of its virtual machine: so many for a row that is read, and for one that is written
#: with all its indexes.
STEPS_READING, STEPS_WRITING = 15, 400


#: Pages with versions of rows that were undone, at most: PostgreSQL runs each statement three times here.
UNDONE = 50


@dataclass
class Reading:
    """What an op read of large tables, and what is wrong with its plans."""

    rows: int = 0
    #: Is it wrong to sort? Lists of ids are sorted, ranges of an index never.
    in_order: bool = False
    odd: list[str] = field(default_factory=list)


def counting(db: Database, connection: OwnConnection) -> Reader:
    """Return what runs ops on this connection, whose statements may be prepared already, and counts."""
    return {"postgres": PostgresCounter, "mysql": MySQLReader, "sqlite": SQLiteReader}[db.kind](connection)


@contextmanager
def reading(db: Database) -> Iterator[Reader]:
    """Yield what runs ops and counts, on a connection that has just been opened; undo it all."""
    connection = db.connect()
    try:
        connection.begin()
        yield {"postgres": PostgresReader, "mysql": MySQLReader, "sqlite": SQLiteReader}[db.kind](connection)
        connection.rollback()
    finally:
        connection.close()


class Reader:
    """Answers an op's requests on a real connection, and takes note of what each of them read."""

    def __init__(self, connection: OwnConnection) -> None:
        self.connection = connection
        self._raw: Any = cast("Any", connection)._raw
        self._reading = Reading()

    def run(self, op: Op[T], *, in_order: bool = False) -> tuple[T, Reading]:
        """Run an op to its end; return its result and what it read."""
        self._reading = Reading(in_order=in_order)
        return ops.run(self._looked_at(op), self), self._reading

    def _looked_at(self, op: Op[T]) -> Op[T]:
        """Have the session's settings, which have no plan, set beside what is looked at."""
        answer: Any = None
        try:
            while True:
                request = op.send(answer)
                setting = request.sql.lstrip().startswith("SET ")
                answer = self.connection.answer(request) if setting else (yield request)
        except StopIteration as end:
            result: T = end.value
            return result

    def do(self, op: Op[T]) -> T:
        """Run an op without looking."""
        return ops.run(op, self.connection)

    def answer(self, request: Request) -> Any:
        raise NotImplementedError

    def note(self, request: Request, what: str) -> None:
        """Take note of what is wrong with a request's plan."""
        self._reading.odd.append(f"{what}: {' '.join(request.sql.split())[:90]}…")


class PostgresReader(Reader):
    """By EXPLAIN ANALYZE of the prepared statement: planned for these values, and planned for any."""

    def answer(self, request: Request) -> Any:
        rows = max(self._explained(request, plan) for plan in ("force_custom_plan", "force_generic_plan"))
        self._reading.rows += rows
        return self.connection.answer(request)

    def _explained(self, request: Request, mode: str) -> int:
        text, names = render(request.sql, Style.DOLLAR)
        values = ", ".join(sql.Literal(request.values[name]).as_string(self._raw) for name in names)
        for statement in ("SAVEPOINT looking", f"SET LOCAL plan_cache_mode = {mode}", f"PREPARE looked AS {text}"):
            self._raw.execute(statement)
        execute = f"EXECUTE looked{f' ({values})' if names else ''}"
        ((explained,),) = self._raw.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {execute}")
        self._raw.execute("ROLLBACK TO looking")
        self._raw.execute("DEALLOCATE looked")
        plan = json.loads(explained)[0]["Plan"]
        return sum(self._read(request, node, mode) for node in _nodes(plan))

    def _read(self, request: Request, node: dict[str, Any], mode: str) -> int:
        """Return how much one node read. Pages count too: an index's entries are passed over without being rows."""
        kind, table = node["Node Type"], node.get("Relation Name", "")
        if "Sort" in kind and self._reading.in_order and any("Relation Name" in below for below in _nodes(node)):
            self.note(request, f"{kind} ({mode})")
        if not kind.endswith("Scan") or (not table.startswith("dibs_") and kind != "Bitmap Index Scan"):
            return 0
        if table in SMALL:
            return 0
        if kind == "Seq Scan":
            self.note(request, f"Seq Scan of {table} ({mode})")
        if kind == "Bitmap Heap Scan":
            return 0  # its index has been counted
        rows = (
            node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        )
        loops = node["Actual Loops"]
        # Down the tree (at most 4 pages) and to the row, for each of a list; and to versions that this test has undone. What
        # is above that was passed over: each page has about two hundred entries.
        pages = node["Shared Hit Blocks"] + node["Shared Read Blocks"] - 5 * (rows + 1) * loops - UNDONE
        return int(max(rows * loops, pages))


class PostgresCounter(Reader):
    """By what the transaction has read so far, with the plans that the session has."""

    COUNTERS = """
        SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_xact_user_tables WHERE relname LIKE 'dibs%'
    """

    def answer(self, request: Request) -> Any:
        before = self._counted()
        answer = self.connection.answer(request)
        self._reading.rows += self._counted() - before
        return answer

    def _counted(self) -> int:
        return int(self._raw.execute(self.COUNTERS).fetchone()[0])


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


class MySQLReader(Reader):
    """By the session's Handler_read counters. Rows that a condition refuses within the index would not be counted, so
    that is switched off while they are."""

    PUSHDOWN = "SET SESSION optimizer_switch = 'index_condition_pushdown={}'"
    COUNTERS = "SHOW SESSION STATUS LIKE 'Handler_read%'"
    #: Our tables, by their names or the aliases that the statements have for them.
    NAMES = re.compile(r"^(dibs_\w+|j|k)$")

    def __init__(self, connection: OwnConnection) -> None:
        super().__init__(connection)
        before = self._counted()
        self._asking = self._counted() - before  # what it costs to ask

    def answer(self, request: Request) -> Any:
        if not isinstance(request, Insert):
            self._explain(request)
        self.connection.answer(Execute(self.PUSHDOWN.format("off"), {}))
        before = self._counted()
        answer = self.connection.answer(request)
        self._reading.rows += max(self._counted() - before - self._asking, 0)
        self.connection.answer(Execute(self.PUSHDOWN.format("on"), {}))
        return answer

    def _counted(self) -> int:
        rows = self.connection.answer(Fetch(self.COUNTERS, {}))
        return sum(int(number) for name, number in rows)

    def _explain(self, request: Request) -> None:
        plain = re.sub(r"/\*M!\d+ SET .*?\*/", "", request.sql)
        for row in self.connection.answer(Fetch(f"EXPLAIN FORMAT=TRADITIONAL {plain}", request.values)):
            # MySQL has two columns more than MariaDB, `partitions` and `filtered`.
            table, access, extra = row[2], row[4 if len(row) == 12 else 3], row[-1] or ""
            if row[1] == "INSERT" or not table or not self.NAMES.match(table) or table in SMALL:
                continue
            if access in ("ALL", "index"):
                self.note(request, f"{access} of {table}")
            if "filesort" in extra and self._reading.in_order:
                self.note(request, f"filesort of {table}")


class SQLiteReader(Reader):
    """By the steps of its virtual machine, and what a step may cost."""

    EVERY = 5

    def answer(self, request: Request) -> Any:
        for row in self.connection.answer(Fetch(f"EXPLAIN QUERY PLAN {request.sql}", request.values)):
            # A walk through an index in its order, USING it, may stop at its LIMIT: its steps tell.
            scanned = re.match(r"SCAN (?:TABLE )?(dibs_\w+|j|k)\b(?! USING)", row[3])
            if (scanned and scanned[1] not in SMALL) or ("B-TREE FOR ORDER" in row[3] and self._reading.in_order):
                self.note(request, row[3])
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += self.EVERY
            return 0

        self._raw.set_progress_handler(step, self.EVERY)
        before = self._raw.total_changes
        answer = self.connection.answer(request)
        self._raw.set_progress_handler(None, 0)
        left = steps - STEPS_WRITING * (self._raw.total_changes - before)
        self._reading.rows += max(left, 0) // STEPS_READING
        return answer
