"""Two things at a time: the database works on a statement, and this thread on what comes after it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

from dibs import ops
from dibs.ops import Answers, Op, Request

T = TypeVar("T")

#: So long (seconds) the thread that asks is let alone at first: with the interpreter's lock to itself it has sent the statement by
#: then. Without that this thread has the lock for 5 ms (sys.getswitchinterval), which is what a chunk takes to be read.
SENDING = 0.0002


def run(op: Op[T], connection: Answers) -> T:
    """Run an op to its end as `ops.run` does, and do what its requests say can be done meanwhile.

    For a connection of dibs' own, which no thread owns. One of the user's may belong to the thread that asks.
    """
    asking = _Asking(connection)
    try:
        return ops.run(op, asking)
    finally:
        asking.end()


class _Asking:
    """Asks in a thread of its own where there is something to be done meanwhile.

    That is done in the thread which runs the op: it may be somebody's generator, which knows that thread. What it raises
    counts, whatever the database says: a generator that has raised has ended, and to try again would write the first half.
    """

    def __init__(self, connection: Answers) -> None:
        self._connection = connection
        self._thread: ThreadPoolExecutor | None = None

    def answer(self, request: Request) -> Any:
        if request.meanwhile is None:
            return self._connection.answer(request)
        try:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "dibs-asking")
            answer = self._thread.submit(self._connection.answer, request)
        except RuntimeError:  # the interpreter is ending, and begins no thread
            return self._connection.answer(request)
        try:
            wait([answer], SENDING)
            request.meanwhile()
        finally:
            wait([answer])
        return answer.result()

    def end(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
