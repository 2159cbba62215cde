"""Database work, described without doing it.

An **op** is a generator that yields requests and is sent answers. Two small drivers run any op on any
connection, blocking or async, so there is one copy of the logic; a test answers an op by hand.

    def depth(queue: str) -> Op[int]:
        rows = yield from fetch("SELECT count(*) FROM dibs_jobs WHERE queue = :queue", queue=queue)
        return rows[0][0]

This file knows no database, no connection and no transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, TypeAlias, TypeVar

Value: TypeAlias = "str | int | float | bool | datetime | Sequence[int | float | str | None] | None"
Row: TypeAlias = tuple[Any, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One statement with its named values, `:like_this` in the text.

    `alone` says that the op makes no other request that writes, so that a connection of dibs' own may
    send it without a transaction around it and save two round trips. `compact` says that its answer may be long, and is
    of types that every driver reads in whatever form costs it least. `long` says that the database works on it for as long as
    something else takes, and `meanwhile` is what can be done then; whoever has no use for that leaves it.
    """

    sql: str
    values: Mapping[str, Value]
    alone: bool = False
    compact: bool = False
    long: bool = False
    meanwhile: Callable[[], object] | None = None


class Fetch(Request):
    """Answered with the rows, as a list of plain tuples in the statement's own order."""


class Execute(Request):
    """Answered with the number of rows changed."""


class Insert(Request):
    """Answered with the id that the database gave to the first row (for databases without RETURNING)."""


Op: TypeAlias = Generator[Request, Any, T]


def fetch(sql: str, /, *, alone: bool = False, **values: Value) -> Op[list[Row]]:
    rows: list[Row] = yield Fetch(sql, values, alone)
    return rows


def execute(sql: str, /, *, alone: bool = False, **values: Value) -> Op[int]:
    changed: int = yield Execute(sql, values, alone)
    return changed


def insert(sql: str, /, *, alone: bool = False, **values: Value) -> Op[int]:
    first_id: int = yield Insert(sql, values, alone)
    return first_id


def together(op: Op[T], *, meanwhile: Callable[[], object] | None = None) -> Op[T]:
    """Return the op as one part of a larger one: it is not alone, whatever its first request says. `meanwhile` is what can be
    done for the next part while the database works on something `long`; doing it twice does nothing."""
    return _changed(op, lambda each: replace(each, alone=False, meanwhile=meanwhile if each.long else None))


def long(op: Op[T]) -> Op[T]:
    """Return the op with all its requests said to be long."""
    return _changed(op, lambda each: replace(each, long=True))


def _changed(op: Op[T], change: Callable[[Request], Request]) -> Op[T]:
    answer: Any = None
    try:
        while True:
            answer = yield change(op.send(answer))
    except StopIteration as end:
        result: T = end.value
        return result


class Answers(Protocol):
    """What `run` needs: something that answers one request, blocking."""

    def answer(self, request: Request) -> Any: ...


class AsyncAnswers(Protocol):
    """What `arun` needs: something that answers one request, awaited."""

    async def answer(self, request: Request) -> Any: ...


def run(op: Op[T], connection: Answers) -> T:
    """Run an op to its end on a blocking connection; whatever the connection raises ends the op."""
    answer: Any = None
    try:
        while True:
            answer = connection.answer(op.send(answer))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        op.close()


async def arun(op: Op[T], connection: AsyncAnswers) -> T:
    """Run an op to its end on an async connection."""
    answer: Any = None
    try:
        while True:
            answer = await connection.answer(op.send(answer))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        op.close()
