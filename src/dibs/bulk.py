"""Bulk enqueue: many calls written in chunks, all or nothing, read from a list or a generator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dibs import ops
from dibs.errors import InvalidArgument
from dibs.jobs import Enqueued, NewJob
from dibs.ops import Op
from dibs.settings import Options
from dibs.tasks import Call, Job, Task

if TYPE_CHECKING:
    from dibs.app import Dibs

#: Payload bytes in one statement, at most (servers limit the size of a packet).
CHUNK_BYTES = 1_000_000


class Bulk:
    """A bulk enqueue: reads the calls in chunks, writes each with one statement, all in one transaction."""

    def __init__(self, app: Dibs, calls: Iterable[Call[Any]], connection: Any) -> None:
        self._app = app
        self._calls = iter(enumerate(calls))
        self._read: list[tuple[Task[Any, Any], NewJob]] = []
        self._chunks: list[list[NewJob]] = []
        self.connection = connection if connection is not None else app.whose(Options())
        self._named = connection is not None
        first, second = self._chunk(0), self._chunk(1)
        #: A bulk of one chunk whose jobs all have keys may be asked again when its outcome is unknown.
        self.once = bool(second) or any(new.task_key is None for new in first)
        self.together = "a bulk enqueue of more than one chunk" if second else app.takes_transaction(first)

    def op(self) -> Op[list[Enqueued]]:
        """Write the chunks. Tried again it writes those that were read from the calls by then, and reads on."""
        if not self._chunk(1):
            return (yield from self._app.enqueue_op(self._chunk(0))) if self._chunk(0) else []
        answers: list[Enqueued] = []
        number = 0
        while chunk := self._chunk(number):
            answers += yield from ops.together(self._app.enqueue_op(chunk))
            number += 1
        return answers

    def _chunk(self, number: int) -> list[NewJob]:
        """Return a chunk, reading as far as that; [] if there are not so many. The calls are read once."""
        while len(self._chunks) <= number:
            self._chunks.append(self._next_chunk())
        return self._chunks[number]

    def _next_chunk(self) -> list[NewJob]:
        chunk: list[NewJob] = []
        size = 0
        for index, call in self._calls:
            if not isinstance(call, Call):
                raise InvalidArgument(f"[{index}]", f"takes calls made by task.call(…), not {type(call).__name__}")
            if call.options.connection is not None and call.options.connection is not self.connection:
                if self._named or self._read:
                    raise InvalidArgument(f"[{index}].connection", "is another one than that of the calls before it")
                self.connection, self._named = call.options.connection, True
            try:
                new = self._app.new_job(call)
            except InvalidArgument as error:
                dot = "." if error.path and not error.path.startswith("[") else ""
                raise InvalidArgument(f"[{index}]{dot}{error.path}", error.problem) from None
            chunk.append(new)
            self._read.append((call.task, new))
            size += len(bytes(new.payload)) + (len(bytes(new.meta)) if new.meta is not None else 0) + 200
            if len(chunk) >= self._app.dialect.chunk or size >= CHUNK_BYTES:
                break
        return chunk

    def jobs(self, answers: list[Enqueued]) -> list[Job[Any]]:
        return [self._app.handle(task, new, answer) for (task, new), answer in zip(self._read, answers, strict=True)]
