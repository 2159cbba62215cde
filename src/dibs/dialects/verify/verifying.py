"""What `dibs verify` asks and writes beside what a queue does: facts about the server, sessions, effects of tasks.

The effects are the rows that a task of the user's would write; they are in a table beside the scratch queue's, which
goes when the queue's tables go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from dibs.dialects.dialect import Dialect
from dibs.dialects.spelling import spell_constants
from dibs.ops import Op, execute, fetch


class Verifying(ABC):
    """The statements that verify one database. Only for tables that were made for it."""

    #: Has the connection a session on a server, that somebody could end?
    has_sessions: ClassVar[bool] = True

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.effects = f"{dialect.quote(dialect.schema)}.{dialect.prefix}effects"
        spell_constants(self, lambda text: dialect.spell(text).replace("{effects}", self.effects))

    # -- the server --------------------------------------------------------------------------------

    @abstractmethod
    def facts(self) -> Op[list[str]]:
        """Return what there is to know of the server and of how we reach it, each as a few words."""

    # -- sessions ------------------------------------------------------------------------------------

    SESSION: ClassVar[str] = "SELECT 0"

    def session(self) -> Op[int]:
        """Return the number by which the server knows this connection."""
        ((number,),) = yield from fetch(self.SESSION, alone=True)
        return int(number)

    def end_session(self, number: int, *, name: str) -> Op[bool]:
        """End a session that was opened under this name; False where it is not there. What forbids it is raised."""
        del number, name
        yield from ()
        return False

    # -- rows that are locked --------------------------------------------------------------------------

    LOCK: ClassVar[str] = "SELECT id FROM dibs_jobs WHERE id = :id FOR UPDATE NOWAIT"

    def lock(self, job_id: int) -> Op[None]:
        """Lock a job's row, or fail at once if somebody has it."""
        yield from fetch(self.LOCK, id=job_id)

    # -- effects ---------------------------------------------------------------------------------------

    MAKE_EFFECTS: ClassVar[str] = """
        CREATE TABLE {effects} (job_id BIGINT NOT NULL, claims INTEGER NOT NULL, pid INTEGER NOT NULL)
    """

    def make_effects(self) -> Op[None]:
        """Make the table that tasks write their effects to. It has no unique key: what happens twice is seen."""
        yield from execute(self.MAKE_EFFECTS, alone=True)

    WRITE_EFFECT: ClassVar[str] = "INSERT INTO {effects} (job_id, claims, pid) VALUES (:job, :claims, :pid)"

    def write_effect(self, job_id: int, *, claims: int, pid: int) -> Op[None]:
        yield from execute(self.WRITE_EFFECT, job=job_id, claims=claims, pid=pid)

    EFFECTS: ClassVar[str] = "SELECT claims, pid FROM {effects} WHERE job_id = :job ORDER BY claims"

    def effects_of(self, job_id: int) -> Op[list[tuple[int, int]]]:
        """Return a job's effects: the fence under which each was written, and the process."""
        rows = yield from fetch(self.EFFECTS, alone=True, job=job_id)
        return [(int(claims), int(pid)) for claims, pid in rows]
