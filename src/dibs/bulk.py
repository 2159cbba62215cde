"""Bulk enqueue: many calls written in chunks, all or nothing, read from a list or a generator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dibs import ops
from dibs.errors import DatabaseUnavailable, InvalidArgument
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
        self._moved_on = False
        self.connection = connection if connection is not None else app.whose(Options())
        self._named = connection is not None
        self._first = self._next_chunk()
        self._second = self._next_chunk()
        #: A bulk of one chunk whose jobs all have keys may be asked again when its outcome is unknown.
        self.once = bool(self._second) or any(new.task_key is None for new in self._first)
        self.together = "a bulk enqueue of more than one chunk" if self._second else app.takes_transaction(self._first)

    def op(self) -> Op[list[Enqueued]]:
        """Write the chunks. Calls of a generator are read only once, so only a single chunk can be tried again."""
        if self._moved_on:
            raise DatabaseUnavailable(
                "the connection was lost in the middle of a bulk enqueue, and the calls read by then can't be read "
                "again: nothing was stored, so enqueue them anew"
            )
        if not self._second:
            return (yield from self._app.enqueue_op(self._first)) if self._first else []
        self._moved_on = True
        answers = yield from ops.together(self._app.enqueue_op(self._first))
        chunk = self._second
        while chunk:
            answers += yield from self._app.enqueue_op(chunk)
            chunk = self._next_chunk()
        return answers

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
