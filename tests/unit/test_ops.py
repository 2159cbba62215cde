"""Ops: described database work is answered by hand, and run the same blocking and awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dibs import ops
from dibs.ops import Execute, Fetch, Insert, Op, Request, execute, fetch, insert, together


class Answering:
    """A connection of a kind: answers with what it was given, and remembers what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []

    def answer(self, request: Request) -> Any:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class AsyncAnswering(Answering):
    async def answer(self, request: Request) -> Any:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().answer(request)


def both(make: Callable[[], Op[Any]], *answers: Any) -> tuple[Any, list[Request]]:
    """Run an op blocking and awaited; return what both returned and asked."""
    blocking, awaited = Answering(*answers), AsyncAnswering(*answers)
    results = [ops.run(make(), blocking), asyncio.run(ops.arun(make(), awaited))]
    assert results[0] == results[1]
    assert blocking.asked == awaited.asked
    return results[0], blocking.asked


def moved(queue: str) -> Op[tuple[int, int]]:
    """Move what is there and say how much it was."""
    rows = yield from fetch("SELECT id FROM t WHERE queue = :queue", queue=queue)
    if not rows:
        return 0, 0
    changed = yield from execute("UPDATE t SET moved = 1 WHERE id = :id", id=rows[0][0])
    new_id = yield from insert("INSERT INTO log (n) VALUES (:n)", n=changed)
    return changed, new_id


def test_an_op_asks_and_is_answered() -> None:
    """Each request is sent with its values, and its answer goes back into the op."""
    result, asked = both(lambda: moved("q"), [(7,)], 3, 99)
    assert result == (3, 99)
    assert asked == [
        Fetch("SELECT id FROM t WHERE queue = :queue", {"queue": "q"}),
        Execute("UPDATE t SET moved = 1 WHERE id = :id", {"id": 7}),
        Insert("INSERT INTO log (n) VALUES (:n)", {"n": 3}),
    ]
    assert [type(request) for request in asked] == [Fetch, Execute, Insert]


def test_an_op_may_end_early() -> None:
    """What is not needed is not asked."""
    result, asked = both(lambda: moved("q"), [])
    assert result == (0, 0)
    assert len(asked) == 1


def test_an_op_may_ask_nothing() -> None:
    """Then no connection is needed at all."""

    def nothing() -> Op[str]:
        yield from ()
        return "done"

    assert both(nothing) == ("done", [])


def test_an_error_ends_the_op() -> None:
    """Whatever the connection raises comes out as it is, and the op is closed."""
    closed = []

    def op() -> Op[None]:
        try:
            yield from fetch("SELECT 1")
        finally:
            closed.append(True)

    error = ConnectionError("gone")
    with pytest.raises(ConnectionError) as caught:
        ops.run(op(), Answering(error))
    assert caught.value is error
    with pytest.raises(ConnectionError):
        asyncio.run(ops.arun(op(), AsyncAnswering(error)))
    assert closed == [True, True]


def test_alone_is_said_of_one_request() -> None:
    """It goes with the request that it was said of; a part of something larger is not alone."""

    def op() -> Op[int]:
        return (yield from execute("UPDATE t SET n = 1", alone=True))

    assert both(op, 5)[1][0].alone
    result, asked = both(lambda: together(op()), 5)
    assert (result, asked[0].alone, asked[0].sql) == (5, False, "UPDATE t SET n = 1")
    assert type(asked[0]) is Execute


def test_a_value_may_have_any_name() -> None:
    """Also those that the functions' own parameters have."""
    assert both(lambda: fetch("SELECT :sql, :name", sql=1, name=2), [])[1][0].values == {"sql": 1, "name": 2}
