"""Who holds rows, on SQLite: nobody holds a row. One transaction at a time writes, and all others wait for it.

Which process that is the file itself does not say; what the system knows of it is in `bindings.file_locks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dibs.dialects.locks import Locks, Question
from dibs.holders import Found
from dibs.ops import Op, execute

_WRITES = "a transaction writes just now, and all others wait for it"


class SQLiteLocks(Locks):
    def lock_questions(self, queue: str | None) -> Sequence[Question]:
        return (Question(self.free_to_write, _WRITES),)

    NOTHING: ClassVar[str] = "DELETE FROM dibs_workers WHERE worker = ''"

    def free_to_write(self) -> Op[Found]:
        """Begin to write, and write nothing; fails where somebody else writes."""
        yield from execute(self.NOTHING)
        return Found(notes=["the file can be written: no transaction is in the way"])

    def end_session(self, session: int) -> Op[bool]:
        raise NotImplementedError("there are no sessions, only processes")
        yield
