"""Bulk enqueue: many calls written in chunks, all or nothing, read from a list or a generator."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from dibs import ops
from dibs.errors import DatabaseUnavailable, InvalidArgument
from dibs.jobs import Enqueued, NewJob
from dibs.ops import Op
from dibs.settings import Options
from dibs.tasks import Call, Job, Task

if TYPE_CHECKING:
    from dibs.app import Dibs

#: Payload bytes in one statement: a chunk ends with the job that reaches them. Servers limit the size of a packet, some of them
#: to 1 MB, and values that are written into the text may take twice their bytes.
CHUNK_BYTES = 409_600

#: So many jobs are kept to be written again if the connection is lost; of a longer generator only what became of each.
MOST_KEPT = 20_000

#: What became of a call; the job itself only where it is still to be told of.
Outcome = tuple[Task[Any, Any], NewJob | None, Enqueued]


class Bulk:
    """A bulk enqueue: reads the calls in chunks, writes each with one statement, all in one transaction.

    On a connection of dibs' own the calls are read and encoded while the database writes those before.
    """

    def __init__(self, app: Dibs, calls: Iterable[Call[Any]], connection: Any) -> None:
        self._app = app
        self._calls = iter(enumerate(calls))
        self._chunks: list[list[tuple[Task[Any, Any], NewJob]]] = []
        self._kept = 0
        self._forgot = False
        self.connection = connection if connection is not None else app.whose(Options())
        self._named = connection is not None
        first, second = self._chunk(0), self._chunk(1)
        news = [new for _, new in first]
        #: A bulk of one chunk whose jobs all have keys may be asked again when its outcome is unknown.
        self.once = bool(second) or any(new.task_key is None for new in news)
        self.together = "a bulk enqueue of more than one chunk" if second else app.takes_transaction(news)

    def op(self) -> Op[list[Outcome]]:
        """Write the chunks. Tried again it writes those that were read from the calls by then, and reads on.

        Raises DatabaseUnavailable where those are no longer kept.
        """
        if self._forgot:
            raise DatabaseUnavailable(
                f"the connection was lost in a bulk of more than {MOST_KEPT:,} jobs, which are not kept to be written again: "
                "nothing was enqueued, so do it again"
            )
        outcomes: list[Outcome] = []
        number = 0
        alone = not self._chunk(1)
        while chunk := self._chunk(number):
            op = self._app.enqueue_op([new for _, new in chunk])
            answers = yield from op if alone else ops.together(op, meanwhile=partial(self._chunk, number + 2))
            outcomes += self._outcomes(chunk, answers)
            if self._kept > MOST_KEPT:
                self._forgot = True
                self._chunks[: number + 1] = [[] for _ in range(number + 1)]
            number += 1
        return outcomes

    def _outcomes(self, chunk: list[tuple[Task[Any, Any], NewJob]], answers: list[Enqueued]) -> list[Outcome]:
        told = bool(self._app.events.handlers)
        return [
            (task, new if told or not answer.created else None, answer)
            for (task, new), answer in zip(chunk, answers, strict=True)
        ]

    def _chunk(self, number: int) -> list[tuple[Task[Any, Any], NewJob]]:
        """Return a chunk, reading as far as that; [] if there are not so many. The calls are read once."""
        while len(self._chunks) <= number:
            self._chunks.append(self._next_chunk())
        return self._chunks[number]

    def _next_chunk(self) -> list[tuple[Task[Any, Any], NewJob]]:
        chunk: list[tuple[Task[Any, Any], NewJob]] = []
        size = 0
        for index, call in self._calls:
            if not isinstance(call, Call):
                raise InvalidArgument(f"[{index}]", f"takes calls made by task.call(…), not {type(call).__name__}")
            if call.options.connection is not None and call.options.connection is not self.connection:
                if self._named or index:
                    raise InvalidArgument(f"[{index}].connection", "is another one than that of the calls before it")
                self.connection, self._named = call.options.connection, True
            try:
                new = self._app.new_job(call)
            except InvalidArgument as error:
                dot = "." if error.path and not error.path.startswith("[") else ""
                raise InvalidArgument(f"[{index}]{dot}{error.path}", error.problem) from None
            chunk.append((call.task, new))
            size += len(bytes(new.payload)) + (len(bytes(new.meta)) if new.meta is not None else 0) + 200
            if len(chunk) >= self._app.dialect.chunk or size >= CHUNK_BYTES:
                break
        self._kept += len(chunk)
        return chunk

    def jobs(self, outcomes: list[Outcome]) -> list[Job[Any]]:
        return [self._app.handle(task, new, answer) for task, new, answer in outcomes]
