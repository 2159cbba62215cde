"""The ways to claim a row where rows can be locked. What a database spells in its own way is in its file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dibs.dialects.bench.measuring import BATCH, Measuring, Strategy
from dibs.ops import Op, fetch


class Locking(Measuring):
    """Statements that lock rows. `{next}` is the next row in the order of the index, `{next_batch}` the next ten."""

    LOOK: ClassVar[str] = "{next}"
    BLOCK: ClassVar[str] = "{next} FOR UPDATE"
    SKIP: ClassVar[str] = "{next} FOR UPDATE SKIP LOCKED"
    SKIP_BATCH: ClassVar[str] = "{next_batch} FOR UPDATE SKIP LOCKED"
    NOWAIT: ClassVar[str] = "{next} FOR UPDATE NOWAIT"
    ADVISE: ClassVar[str]

    def _taken(self, text: str) -> Op[list[int]]:
        rows = yield from fetch(text)
        return [row[0] for row in rows]

    def skip(self, seen: Sequence[int]) -> Op[list[int]]:
        """Take the next row that nobody has locked."""
        return self._taken(self.SKIP)

    def skip_batch(self, seen: Sequence[int]) -> Op[list[int]]:
        """Take the next ten rows that nobody has locked."""
        return self._taken(self.SKIP_BATCH)

    def nowait(self, seen: Sequence[int]) -> Op[list[int]]:
        """Take the next row, or fail at once if somebody has it."""
        return self._taken(self.NOWAIT)

    def block(self, seen: Sequence[int]) -> Op[list[int]]:
        """Take the next row, waiting for whoever has it; if it is done then, the one after it, waiting again."""
        return self._taken(self.BLOCK)

    def take_seen(self, seen: Sequence[int]) -> Op[list[int]]:
        """Take the row that was seen, if it is still ready."""
        return self.mark_if_ready(seen)

    def advise(self, seen: Sequence[int]) -> Op[list[int]]:
        """Take the next row whose number nobody has locked, if it is still ready."""
        rows = yield from fetch(self.ADVISE, table=self.dialect.prefix)
        return (yield from self.mark_if_ready([row[0] for row in rows])) if rows else []

    def let_go(self) -> Op[None]:
        """Let go of locks that outlive their transaction."""
        yield from ()


#: In the order in which they are measured.
LOCKING = (
    Strategy("skip locked", "FOR UPDATE SKIP LOCKED, one row", "skip"),
    Strategy("skip locked × 10", "FOR UPDATE SKIP LOCKED, ten rows a claim", "skip_batch", rows=BATCH),
    Strategy("nowait", "FOR UPDATE NOWAIT; refused, it tries again after a moment", "nowait", expects_refusal=True),
    Strategy("blocking", "FOR UPDATE; all wait for the same row", "block", waits=True),
    Strategy(
        "optimistic",
        "SELECT, then UPDATE … WHERE status = 'ready'; changed nothing, it tries again",
        "take_seen",
        look="look",
        marks=True,
        waits=True,
    ),
    Strategy(
        "advisory lock",
        "a lock on the row's number instead of the row, then UPDATE … WHERE status = 'ready'",
        "advise",
        marks=True,
        after="let_go",
    ),
)
