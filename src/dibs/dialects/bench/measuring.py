"""What can be measured on every database: raw SQL of the same shape as dibs' own, and the ways to claim a row.

The ways to claim all work on one table, in the order of the same index, and differ in nothing but how they see to it
that two connections do not take the same row. Each claim is one transaction: take, work, mark, commit.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from dibs.dialects.dialect import Dialect
from dibs.dialects.spelling import spell_constants
from dibs.ops import Execute, Op, execute, fetch

T = TypeVar("T")

#: What the names of a run's tables begin with; eight hexadecimal digits and a _ follow.
SCRATCH = "dibs_bench_"
_SCRATCH_TABLE = re.compile(rf"{SCRATCH}[0-9a-f]{{8}}_")

#: Rows in one statement of the raw bulk insert.
BULK = 1_000

#: Rows in one claim of a batch.
BATCH = 10


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to claim a row."""

    name: str
    about: str
    #: The op (a method here) that takes rows, in the claim's transaction; it is given those that `look` found.
    take: str
    #: Asked before the transaction begins, where a way looks first and takes after: the ids that it will try for.
    look: str | None = None
    #: Has `take` marked the rows already, by an UPDATE that looks at the status again?
    marks: bool = False
    #: Run after the commit, such as to let go of locks that outlive a transaction.
    after: str | None = None
    #: Does a try that came to nothing wait for whoever had the row? Then it is made again without a pause.
    waits: bool = False
    #: Is a refusal of the lock what it expects, and no error?
    expects_refusal: bool = False
    #: Rows in one claim.
    rows: int = 1


class Measuring(ABC):
    """The statements that measure one database. Only for tables that `dibs bench` made."""

    strategies: ClassVar[Sequence[Strategy]]
    #: What is to be said of the ways to claim on this database, if anything.
    note: ClassVar[str] = ""
    #: Put into the statements in place of `{words}`, before the dialect's own.
    words: ClassVar[dict[str, str]] = {}

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._bulks: dict[int, str] = {}  # by the number of rows
        #: The table that rows are claimed from.
        self.claims = f"{dialect.quote(dialect.schema)}.{dialect.prefix}claims"
        spell_constants(self, self._spelt)

    def _spelt(self, text: str) -> str:
        text = text.replace("{row}", self.RAW_ROW)
        for word, spelt in self.words.items():
            text = text.replace("{" + word + "}", spelt)
        return self.dialect.spell(text).replace("{claims}", self.claims)

    # -- the server --------------------------------------------------------------------------------

    @abstractmethod
    def version(self) -> Op[str]:
        """Return the server's name and version."""

    @abstractmethod
    def durability(self) -> Op[tuple[bool, str]]:
        """Return whether a commit survives a power cut, and the settings that say so."""

    ROUND_TRIP: ClassVar[str] = "SELECT 1"

    def round_trip(self) -> Op[None]:
        """Ask what costs nothing but the way there and back."""
        yield from fetch(self.ROUND_TRIP, alone=True)

    # -- scratch tables ------------------------------------------------------------------------------

    def hold(self, name: str) -> Op[bool]:
        """Take a lock of this name until the transaction ends, or the connection; False if another holds it. Waits for
        nothing."""
        del name
        yield from ()
        return True

    TABLES: ClassVar[str] = """
        SELECT table_name FROM information_schema.tables WHERE table_schema = :schema AND table_type = 'BASE TABLE'
    """

    def tables(self) -> Op[dict[str, list[str]]]:
        """Return the tables that runs of the bench have made in this schema, by their prefix."""
        found: dict[str, list[str]] = {}
        for (table,) in (yield from fetch(self.TABLES, alone=True, schema=self.dialect.schema)):
            if match := _SCRATCH_TABLE.match(table):
                found.setdefault(match[0], []).append(table)
        return found

    def drop(self, tables: Sequence[str]) -> Op[None]:
        """Drop these tables."""
        schema = self.dialect.quote(self.dialect.schema)
        for table in tables:
            yield from execute(f"DROP TABLE IF EXISTS {schema}.{self.dialect.quote(table)}", alone=True)

    # -- jobs ----------------------------------------------------------------------------------------

    EMPTY: ClassVar[str] = "TRUNCATE TABLE dibs_jobs"

    def empty(self) -> Op[None]:
        """Delete all jobs."""
        yield from execute(self.EMPTY, alone=True)

    def take_statistics(self) -> Op[None]:
        """Let the planner know what is in the jobs' table."""
        yield from ()

    # A commit that changed nothing is not written to the disk anywhere.
    CHANGE_A_ROW: ClassVar[str] = "INSERT INTO dibs_duplicates (job_id, times, created_at) VALUES (0, 1, {now})"

    def change_a_row(self) -> Op[None]:
        """Write as little as can be, so that the commit after it has something to make durable."""
        yield from execute(self.CHANGE_A_ROW)

    RAW_ENQUEUE: ClassVar[str] = """
        INSERT INTO dibs_jobs (queue, task, payload, run_at, created_at) VALUES {row}
    """
    RAW_BULK: ClassVar[str] = """
        INSERT INTO dibs_jobs (queue, task, payload, run_at, created_at) VALUES {rows}
    """
    RAW_ROW: ClassVar[str]

    def raw_enqueue(self, payload: str) -> Op[None]:
        """Write a job as plain SQL would."""
        yield from execute(self.RAW_ENQUEUE, alone=True, payload=payload)

    def raw_bulk(self, payloads: Sequence[str]) -> Op[None]:
        """Write up to BULK jobs with one multi-row INSERT."""
        values = {f"payload_{number}": payload for number, payload in enumerate(payloads)}
        if len(values) not in self._bulks:
            rows = ", ".join(self.RAW_ROW.replace(":payload", f":{name}") for name in values)
            self._bulks[len(values)] = self.RAW_BULK.replace("{rows}", rows)
        yield Execute(self._bulks[len(values)], values)

    @abstractmethod
    def raw_claim(self, limit: int) -> Op[list[int]]:
        """Claim up to so many jobs as plain SQL would: no fence, no lease. A transaction of its own."""

    RAW_FINISH: ClassVar[str] = """
        UPDATE dibs_jobs SET status = 'done', finished_at = {now} WHERE id {in_ids} AND status = 'running'
    """

    def raw_finish(self, ids: Sequence[int]) -> Op[int]:
        return (yield from execute(self.RAW_FINISH, alone=True, ids=self.dialect.ids(ids)))

    # -- claims --------------------------------------------------------------------------------------

    MAKE_CLAIMS: ClassVar[str]
    INDEX_CLAIMS: ClassVar[str | None] = None
    EMPTY_CLAIMS: ClassVar[str] = "TRUNCATE TABLE {claims}"
    FILL_CLAIMS: ClassVar[str]

    def make_claims(self) -> Op[None]:
        """Make the table that rows are claimed from."""
        yield from execute(self.MAKE_CLAIMS, alone=True)
        if self.INDEX_CLAIMS is not None:
            yield from execute(self.INDEX_CLAIMS, alone=True)

    def fill_claims(self, rows: int) -> Op[None]:
        """Begin anew, with so many ready rows and statistics that know of them."""
        yield from execute(self.EMPTY_CLAIMS, alone=True)
        yield from execute(self.FILL_CLAIMS, alone=True, rows=rows)
        yield from self.take_claims_statistics()

    def take_claims_statistics(self) -> Op[None]:
        yield from ()

    MARK: ClassVar[str] = "UPDATE {claims} SET status = 'done', times = times + 1 WHERE id {in_ids}"
    MARK_IF_READY: ClassVar[str] = f"{MARK} AND status = 'ready'"

    def seen_by(self, strategy: Strategy) -> Op[list[int]]:
        """Look for rows before the transaction; [] where the way does not, or where there are none."""
        op: Op[list[int]] = getattr(self, strategy.look)() if strategy.look is not None else _nothing([])
        return op

    def taken_by(self, strategy: Strategy, seen: Sequence[int]) -> Op[list[int]]:
        """Take rows, in the claim's transaction."""
        op: Op[list[int]] = getattr(self, strategy.take)(seen)
        return op

    def let_go_by(self, strategy: Strategy) -> Op[None]:
        """Do what comes after the commit."""
        op: Op[None] = getattr(self, strategy.after)() if strategy.after is not None else _nothing(None)
        return op

    def mark(self, ids: Sequence[int]) -> Op[int]:
        """Mark rows as done. Relies on the claim alone: a row that two have claimed is counted twice, and seen."""
        return (yield from execute(self.MARK, ids=self.dialect.ids(ids)))

    def mark_if_ready(self, ids: Sequence[int]) -> Op[list[int]]:
        """Mark a row as done if it is still ready; return it, or [] where another was faster."""
        changed = yield from execute(self.MARK_IF_READY, ids=self.dialect.ids(ids))
        return list(ids) if changed else []

    ANY_READY: ClassVar[str] = "SELECT 1 FROM {claims} WHERE status = 'ready' LIMIT 1"

    def any_ready(self) -> Op[bool]:
        return bool((yield from fetch(self.ANY_READY, alone=True)))

    COUNT_CLAIMS: ClassVar[str] = """
        SELECT count(*), coalesce(sum(times), 0), coalesce(sum(CASE WHEN times > 1 THEN 1 ELSE 0 END), 0)
        FROM {claims} WHERE status = 'done'
    """

    def count_claims(self) -> Op[tuple[int, int, int]]:
        """Return how many rows are done, how often rows were marked in all, and how many more than once."""
        ((done, times, twice),) = yield from fetch(self.COUNT_CLAIMS, alone=True)
        return int(done), int(times), int(twice)

    LOOK: ClassVar[str]

    def look(self) -> Op[list[int]]:
        """Return the next row without locking it."""
        rows = yield from fetch(self.LOOK, alone=True)
        return [row[0] for row in rows]


def _nothing(answer: T) -> Op[T]:
    yield from ()
    return answer
