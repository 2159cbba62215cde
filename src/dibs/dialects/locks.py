"""Who holds rows of the queue: what every dialect is asked. How a database can be asked is in a file of each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from dibs.dialects.spelling import Spelling
from dibs.holders import Found, Who
from dibs.ops import Op

#: What is said of the rows where somebody keeps all readers from their table.
ROWS_OUT_OF_REACH = "who holds which rows can't be read just now: somebody has the whole table, or waits for it"


class Question(NamedTuple):
    """One part of who holds what. What to say where a privilege is missing (`lacks`), and where a lock is in the way."""

    make: Callable[[], Op[Found]]
    lacks: str
    locked: str = ""


class Locks(Spelling):
    """Ops that look for who holds rows. They lock nothing, but where a database tells of a lock only who waits for it."""

    #: Are the holders of rows found by waiting for them?
    finds_by_waiting: ClassVar[bool] = False

    #: What would have the server tell who has a whole table, where it does not.
    to_be_told_of_tables: ClassVar[str] = ""

    @abstractmethod
    def lock_questions(self, queue: str | None) -> Sequence[Question]:
        """Return what to ask, each in a transaction of its own: where a privilege is missing the others still answer."""

    @abstractmethod
    def end_session(self, session: int) -> Op[bool]:
        """End a session, whatever it does; its transaction is rolled back. Return False where there is none."""

    def held_rows(self, queue: str | None) -> Op[dict[int, str]]:
        """Return the jobs that are held just now, with their queues, by locking those that are free; none where their
        holders can be seen without any privilege."""
        return {}
        yield

    def wait_for_row(self, job_id: int, waiting: dict[int, int]) -> Op[None]:
        """Wait for a row, for a second at most; note in `waiting` which session waits for which job."""
        raise NotImplementedError

    def waited_for(self) -> Op[list[tuple[int, Who]]]:
        """Return which sessions wait for whose row."""
        raise NotImplementedError
