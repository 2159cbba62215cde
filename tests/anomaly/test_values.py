"""Values that other queues changed on the way, could not store, or stored and could not read: the same verdict on every
database, at the call.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from anomaly.invariants import nothing_lost_nothing_twice
from databases import Database
from dibs import InvalidArgument
from worker.harness import Site
from worker.program import Program
from worker.users import users_connection


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: Decimal


BERLIN = ZoneInfo("Europe/Berlin")

#: What comes back equal and of its type, with the annotation that says what it is.
KEPT: dict[str, tuple[Any, Any]] = {
    "emoji": (str, "😀"),
    "quotes": (str, """'";%s {} \\ \\u0041 :id -- /* \r\n\t"""),
    "beyond 64 bits": (int, 2**63),
    "far beyond": (int, -(2**200)),
    "decimal": (Decimal, Decimal("0.10")),
    "uuid": (uuid.UUID, uuid.UUID(int=7)),
    "datetime": (datetime, datetime(2024, 10, 27, 0, 30, 0, 1, tzinfo=UTC)),
    "the second of two equal hours": (datetime, datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1)),
    "date": (date, date(2024, 2, 29)),
    "enum": (Colour, Colour.RED),
    "bytes": (bytes, b"\x00\xff"),
    "set": (set[int], {1, 2}),
    "tuple": (tuple[int, str], (1, "a")),
    "dict with numbers for keys": (dict[int, str], {1: "a", 2**63: "b"}),
    "dataclass": (Point, Point(1, Decimal("0.10"))),
}

#: What is refused, with the path to it.
REFUSED: dict[str, tuple[Any, str]] = {
    "nan": (float("nan"), "value"),
    "infinity": ({"k": [1.0, float("inf")]}, "value['k'][1]"),
    "minus infinity": (float("-inf"), "value"),
    "no number": (Decimal("NaN"), "value"),
    "NUL": ({"k": "a\x00b"}, "value['k']"),
    "NUL in a key": ({"\x00": 1}, "value"),
    "half a surrogate pair": (["\ud83d"], "value[0]"),
    "naive": (datetime(2024, 1, 1), "value"),
    "generator": ((number for number in range(3)), "value"),
    "object": (object(), "value"),
}


def plainly(value: Any) -> Any:
    """Return a time in UTC: Python says that one in an hour that comes twice is equal to none of another zone's."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value


class Values(Program):
    """A task for each of the types, which gives back what it was given; and one that returns what can't be stored."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)
        self.echo = {name: self._echo(name, kind) for name, (kind, _) in KEPT.items()}

        @self.app.task(name="anything")
        def anything(value: Any) -> Any:
            return value

        @self.app.task(name="returns")
        def returns(name: str) -> Any:
            with self.diary.run():
                return REFUSED[name][0]

        self.anything, self.returns = anything, returns

    def _echo(self, name: str, kind: Any) -> Any:
        def echo(value: Any) -> Any:
            with self.diary.run():
                assert plainly(value) == plainly(KEPT[name][1])
                return value

        echo.__annotations__ = {"value": kind, "return": kind}
        return self.app.task(name=f"echo {name}")(echo)


@pytest.fixture
def values(db: Database, tmp_path: Path) -> Iterator[Site[Values]]:
    with Site(db, tmp_path, Values) as site:
        yield site


def test_what_is_kept_and_what_is_refused(values: Site[Values]) -> None:
    """To a worker and back: equal, and of its type. What would not come back is refused at the call, with its path, before
    anything is sent: the user's transaction goes on. What a task returns of that is left out, with a warning."""
    program = values.program
    with users_connection(values.app) as connection:
        cursor = connection.cursor()
        kept = {name: program.echo[name].using(connection=connection).enqueue(KEPT[name][1]) for name in KEPT}
        for value, path in REFUSED.values():
            with pytest.raises(InvalidArgument) as refused:
                program.anything.using(connection=connection).enqueue(value)
            assert refused.value.path.startswith(path)
            cursor.execute("SELECT 1")
            assert cursor.fetchone()[0] == 1
        connection.commit()
    worker = values.start()
    for name, job in kept.items():
        result = job.join(timeout=20)
        assert (plainly(result), type(result)) == (plainly(KEPT[name][1]), type(KEPT[name][1])), name
    without = [program.returns.enqueue(name).id for name in REFUSED]
    done = values.wait_ended(without)
    assert [(job.status, job.result, job.attempts) for job in done] == [("done", None, 1)] * len(without)
    nothing_lost_nothing_twice(values, [*without, *(job.id for job in kept.values())], crashed=False)
    assert worker.lines("WARNING", "returns", "result")
    assert len(worker.complaints()) == len(worker.lines("WARNING"))
