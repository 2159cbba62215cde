"""Log records: of which job they are, and how they are written."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from dibs.cli.logs import _ScrubbedJson
from dibs.logs import JobFilter, JsonFormatter, TextFormatter, mark_records

SHOUT = "it went wrong"


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


def record(message: str = "a line", *args: object, extra: dict[str, Any] | None = None, **settings: Any) -> Any:
    return logging.getLogger("shop").makeRecord(
        "shop", logging.INFO, "shop.py", 7, message, args, settings.pop("exc_info", None), "sell", extra, **settings
    )


def written(*args: Any, **settings: Any) -> dict[str, Any]:
    line = JsonFormatter().format(record(*args, **settings))
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.fixture(autouse=True)
def factory() -> Iterator[None]:
    """Records as a program makes them in which no worker has run."""
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(logging.LogRecord)
    yield
    logging.setLogRecordFactory(before)


def test_json() -> None:
    """One object on one line: what it is, and what was given beside it, under its own name and as it was."""
    said = written("sold %d of\n%s", 3, "tea", extra={"tenant": "acme", "level": "high", "sizes": {"S": [1, None]}})
    assert said["time"].endswith("+00:00")
    del said["time"], said["process"]
    assert said == {
        "level": "INFO",
        "logger": "shop",
        "message": "sold 3 of\ntea",
        "tenant": "acme",
        "level_": "high",
        "sizes": {"S": [1, None]},
    }


def test_json_of_an_exception() -> None:
    """Its traceback is one text, and so is a stack."""
    try:
        raise ValueError(SHOUT)
    except ValueError:
        said = written(exc_info=sys.exc_info(), sinfo="Stack\n  here")
    assert said["exception"].startswith("Traceback (most recent call last):\n")
    assert said["exception"].endswith(f"ValueError: {SHOUT}")
    assert said["stack"] == "Stack\n  here"
    assert "exception" not in written(exc_info=(None, None, None))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (float("nan"), None),
        (2**70, str(2**70)),
        ({1: {2}}, {"1": [2]}),
        (b"ab", "YWI="),
        ("\ud800", "\\ud800"),
        (ValueError("x"), "x"),
        ({("a", "b"): 1}, "{('a', 'b'): 1}"),
        (Unprintable(), "(Unprintable)"),
    ],
)
def test_json_of_odd_values(value: object, told: object) -> None:
    """Whatever it is, the line is written, and is JSON."""
    line = JsonFormatter().format(record(extra={"odd": value}))
    said = json.loads(line.replace(":NaN", ":null"))
    assert said["odd"] == told


def test_json_of_a_loop() -> None:
    """Also what has itself in it."""
    loop: list[Any] = []
    loop.append(loop)
    assert written(extra={"odd": loop})["odd"] == "[[...]]"


def test_passwords_in_json() -> None:
    """Are not in it, wherever they were."""
    url = 'postgresql://me:s3"cr3t@host/db'
    line = _ScrubbedJson().format(record("at %s", url, extra={"where": [{"url": url}]}))
    assert "cr3t" not in line
    assert json.loads(line)["where"] == [{"url": "postgresql://me:***@host/db"}]


def test_records_outside_of_jobs() -> None:
    """A program that marks its records, twice even, has the attributes everywhere; outside of a job they are None."""
    mark_records()
    mark_records()
    made = record()
    assert (made.dibs_job, made.dibs_task, made.dibs_queue, made.dibs_attempt) == (None, None, None, None)
    assert "dibs_job" not in written()
    assert TextFormatter().format(made).endswith(" INFO shop: a line")


def test_filter() -> None:
    """It sees to it that a format may name the attributes where nothing was marked, and keeps those that are there."""
    made = record()
    assert not hasattr(made, "dibs_job")
    assert JobFilter().filter(made)
    assert logging.Formatter("%(dibs_job)s %(message)s").format(made) == "None a line"
    made.dibs_job, made.dibs_task = 7, "mail"
    assert JobFilter().filter(made)
    assert TextFormatter().format(made).endswith(" INFO shop [job 7 mail]: a line")


def test_what_steers_a_terminal() -> None:
    """In lines for people it is written out: whoever enqueues may have put it there. Lines and tabs stay as they are."""
    record = logging.makeLogRecord({"msg": "job of %s\n\tand 😀", "args": ("a\x1b]0;b\x07\r\x9b2J\u202e",)})
    assert TextFormatter().format(record).endswith("job of a\\x1b]0;b\\x07\\r\\x9b2J\\u202e\n\tand 😀")
