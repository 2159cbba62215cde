"""What every dialect is: the SQL of one database, as ops.

Statements are class constants with `:named` values, each right above the op that runs it. A few words in them
are spelt by each database in its own way (`{now}`, `{in_ids}`, …) and the tables are qualified with the schema;
both happen once, when the dialect is made, so a statement's text never changes afterwards.

What databases do differently (enqueue, claim, renew, settle) is in the file of each. What they do alike is in
`people` (what a person asks for), `upkeep` (what one worker does for all), `reports` (what a running job says of
itself), `here` (jobs that are run without a worker), `register` (who works), `depths` (how much there is of everything)
and `reasons` (why nothing is claimed).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from dibs.dialects.claims import CLAIM_COLUMNS
from dibs.dialects.depths import Depths
from dibs.dialects.here import Here
from dibs.dialects.locks import Locks
from dibs.dialects.people import People
from dibs.dialects.reasons import Reasons
from dibs.dialects.register import Register
from dibs.dialects.urls import DatabaseUrl
from dibs.jobs import Claim, Enqueued, Lane, NewJob, Renewal, Settled, Verdict, Wanted
from dibs.ops import Fetch, Op, fetch, together

T = TypeVar("T")


class Dialect(People, Here, Register, Depths, Reasons, Locks):
    """The SQL of one database. Only its ops are public; nobody asks for its name to decide something."""

    family: ClassVar[str]  # which bindings speak it
    name: ClassVar[str]  # for a person to read
    idle_poll: ClassVar[timedelta]  # the longest an idle worker sleeps between two looks
    one_writer: ClassVar[bool] = False  # does a writer keep all others waiting?
    chunk: ClassVar[int] = 1000  # jobs in one statement of a bulk enqueue, at most
    migrations: ClassVar[str]  # the folder of its migrations
    migrates_itself: ClassVar[bool] = False  # an embedded database has no administrator to do it
    #: Takes a keyed enqueue more than one writing statement? Then it is refused on a connection in autocommit.
    keys_take_a_transaction: ClassVar[bool] = True
    #: Are keys that somebody's transaction holds written down, to be let go of later?
    frees_keys_later: ClassVar[bool] = False
    #: Where the database can tell waiting workers of new jobs: the name to listen under.
    channel: str | None = None

    # -- hot ops ---------------------------------------------------------------------------------

    @abstractmethod
    def enqueue(self, jobs: Sequence[NewJob], *, tell: bool) -> Op[list[Enqueued]]:
        """Write jobs (at most `chunk`); return what became of each, in their order.

        A job whose key is held is a duplicate: recorded, not written. `tell` wakes waiting workers at commit.
        """

    @abstractmethod
    def lanes(self, queues: Sequence[str] | None, *, known: Sequence[Lane] = ()) -> Op[list[Lane]]:
        """Return the lanes that have ready jobs, due or not, by stepping through the ready index.

        Those that are `known` may be answered without a look at what they have.
        """

    @abstractmethod
    def claim(self, wanted: Wanted, *, turn: float | None = None) -> Op[list[Claim]]:
        """Claim what is wanted, in order. A paused queue gives nothing.

        `turn`: where many who claim much at a time would hinder each other, wait so long (seconds) for the others' claims;
        then the op fails, and nothing was claimed.
        """

    @abstractmethod
    def settle(self, verdicts: Sequence[Verdict], *, worker: str, haste: float | None = None) -> Op[dict[int, Settled]]:
        """Carry verdicts out; return what became of each, by job id.

        A job that a person wants cancelled ends cancelled whatever its verdict says. Rows that somebody's
        transaction holds are not waited for; unless with `haste`, which may be quicker where there are none: then for so
        long (seconds) at most, after which the op fails and has changed nothing. Only on a connection of dibs' own.
        """

    def settle_and_claim(
        self, verdicts: Sequence[Verdict], wanted: Wanted, *, haste: float
    ) -> Op[tuple[dict[int, Settled], list[Claim]]]:
        """Carry out verdicts that are plain, in haste, and claim, in one transaction: one commit instead of two.

        A job without an answer was not settled: that has to be tried and looked into by itself.
        """
        answers = yield from together(self.settle(verdicts, worker=wanted.worker, haste=haste))
        claims = yield from together(self.claim(wanted))
        return {job_id: answer for job_id, answer in answers.items() if answer is Settled.NOW}, claims

    @abstractmethod
    def renew(self, held: Sequence[tuple[int, int]], *, worker: str, lease: float) -> Op[Renewal]:
        """Make the leases of claims `(id, claims)` end `lease` seconds from now. Locked rows are not lost; those that are
        gone are: somebody has settled them."""

    @abstractmethod
    def finish(
        self, job_id: int, *, claims: int, worker: str, attempts: int, result: str | None, keep: float, frees_key: bool
    ) -> Op[bool]:
        """Settle one claim as done in the user's own transaction; return False when it is not ours any more.

        Also False when a person wants the job cancelled. Waits for the row if a renewal holds it for a moment.
        """

    # -- what dialects share ---------------------------------------------------------------------

    ADOPT: ClassVar[str] = f"SELECT {CLAIM_COLUMNS} FROM dibs_jobs WHERE status = 'running' AND lease_owner = :worker"

    def adopt(self, worker: str) -> Op[list[Claim]]:
        """Return all that the database says this worker holds, after a claim whose answer was lost."""
        rows = yield from fetch(self.ADOPT, alone=True, worker=worker)
        return self.claims_from(rows)

    def over_users_connection(self, op: Op[T]) -> Op[T]:
        """Return an op as it may be sent over a connection that the user brought, set up in whatever way."""
        return op

    TIME: ClassVar[str] = "SELECT {now}"

    def time(self) -> Op[Any]:
        """Return the database's time, as a `Position` has it."""
        rows = yield from fetch(self.TIME, alone=True)
        return rows[0][0]

    # -- the server and the schema -----------------------------------------------------------------

    @classmethod
    @abstractmethod
    def default_schema(cls, url: DatabaseUrl) -> str:
        """Return the schema that dibs' tables are in unless another one is asked for."""

    def suitable(self) -> Op[None]:
        """Raise ReadOnlyDatabase or UnsuitableDatabase where no queue can run on this server as it is set."""
        yield from ()

    HAS_TABLES: ClassVar[str] = """
        SELECT count(*) FROM information_schema.tables WHERE table_schema = :schema AND table_name = :meta
    """

    def has_tables(self) -> Op[bool]:
        rows = yield from fetch(self.HAS_TABLES, alone=True, schema=self.schema, meta=f"{self.prefix}dibs_meta")
        return bool(rows[0][0])

    ACCOUNT: ClassVar[str] = "SELECT CURRENT_USER"

    def may(self, privilege: str, on: str) -> Fetch | None:
        """Return the question whether this account has a privilege on a table, on SCHEMA or on JOB_IDS.

        It has it if there is a row in the answer. None where nobody needs such a privilege.
        """
        del privilege, on
        return None

    def locking(self, table: str) -> str:
        """Return the privilege that locking rows of a table takes, beside SELECT."""
        del table
        return "UPDATE"

    def grant(self, privilege: str, on: str, account: str) -> str:
        """Return the statement that grants what `may` asks about to an account, as ACCOUNT names it."""
        return f"GRANT {privilege} ON {self.qualify(on)} TO {account}"

    def make_room(self) -> list[str]:
        """Return the statements that come before the first migration, such as making the schema."""
        return []

    #: Seconds after which a wait for a table is ended from another session, where the server knows no moment as short for
    #: `hurry`.
    longest_wait: ClassVar[float | None] = None

    def waits_for_table(self, session: int) -> Op[bool]:
        """Does a session wait for a table's lock just now? Only where there is a `longest_wait`."""
        del session
        yield from ()
        return False

    def stop_waiting(self, session: int) -> Op[None]:
        """Have the statement of a session that waits give up."""
        del session
        yield from ()

    def lock_migrations(self) -> Op[None]:
        """Wait until no other process migrates this schema."""
        yield from ()

    def unlock_migrations(self) -> Op[None]:
        yield from ()

    def session(self) -> Op[int]:
        """Return the number of the server's session that serves this connection; only where there is a `channel`
        or a `longest_wait`."""
        yield from ()
        return 0

    def listen(self) -> Op[None]:
        """Hear what `tell` says, on this connection; only where there is a `channel`.

        The session goes on listening whoever has it next, so not where sessions are lent: see `sessions`.
        """
        yield from ()
