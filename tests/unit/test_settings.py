"""What a person may set, and what is refused at the call, by name and alike everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

from dibs import Backoff, Dibs
from dibs.errors import ConfigurationError, InvalidArgument
from dibs.settings import (
    HIGHEST_PRIORITY,
    LONGEST_DELAY,
    LONGEST_KEY,
    LONGEST_QUEUE,
    LONGEST_TASK,
    MOST_ATTEMPTS,
    Options,
    moment,
    seconds,
)


@pytest.fixture
def app() -> Dibs:
    """An app that never opens its database."""
    return Dibs("sqlite:///nowhere.db")


REFUSED = [
    ("queue", ""),
    ("queue", "x" * (LONGEST_QUEUE + 1)),
    ("queue", "a\0b"),
    ("queue", "\ud800"),
    ("queue", 7),
    ("queue", b"bytes"),
    ("key", ""),
    ("key", "x" * (LONGEST_KEY + 1)),
    ("key", "a\0"),
    ("key", "\udfff"),
    ("key", 7),
    ("priority", HIGHEST_PRIORITY + 1),
    ("priority", -HIGHEST_PRIORITY - 1),
    ("priority", 1.0),
    ("priority", True),
    ("priority", "high"),
    ("max_attempts", 0),
    ("max_attempts", -1),
    ("max_attempts", MOST_ATTEMPTS + 1),
    ("max_attempts", 2.0),
    ("max_attempts", True),
    ("retention", -0.001),
    ("retention", float("nan")),
    ("retention", LONGEST_DELAY * 1.01),
    ("retention", "1 day"),
    ("delay", -1),
    ("delay", timedelta(microseconds=-1)),
    ("key_until", "done"),
    ("key_until", ""),
]


@pytest.mark.parametrize(("option", "value"), REFUSED)
def test_what_is_refused(app: Dibs, option: str, value: Any) -> None:
    """When the task is made, and when it is used; and the error says which one it was."""
    task = app.task(name="t")(lambda: None)
    with pytest.raises(InvalidArgument) as caught:
        task.using(**{option: value})
    assert caught.value.path == option
    assert isinstance(caught.value, ValueError)
    if option not in ("key", "delay", "key_until"):
        with pytest.raises(InvalidArgument) as caught:
            app.task(name="other", **{option: value})
        assert caught.value.path == option
        assert "other" not in app.tasks


ALLOWED = [
    ("queue", "x" * LONGEST_QUEUE),
    ("queue", "🍏 ü"),
    ("key", "k" * LONGEST_KEY),
    ("key", " "),
    ("priority", HIGHEST_PRIORITY),
    ("priority", -HIGHEST_PRIORITY),
    ("max_attempts", 1),
    ("max_attempts", MOST_ATTEMPTS),
    ("retention", 0.0),
    ("retention", LONGEST_DELAY),
    ("delay", 0.0),
    ("key_until", "finished"),
    ("key_until", "pruned"),
]


@pytest.mark.parametrize(("option", "value"), ALLOWED)
def test_what_is_allowed(option: str, value: Any) -> None:
    """Up to the stated limits."""
    assert getattr(Options().changed(**{option: value}), option) == value


def test_what_is_not_given_stays() -> None:
    """None means: as it was."""
    options = Options(queue="q", priority=3)
    assert options.changed(queue=None, priority=None, delay=None) == options
    assert options.changed(priority=0).priority == 0


def test_run_at_and_delay_exclude_each_other() -> None:
    """Whichever was said first."""
    later = datetime.now(UTC) + timedelta(hours=1)
    with pytest.raises(InvalidArgument, match="one of them"):
        Options().changed(run_at=later, delay=1)
    with pytest.raises(InvalidArgument, match="one of them"):
        Options(delay=1.0).changed(run_at=later)


@pytest.mark.parametrize(
    ("value", "expected"), [(5, 5.0), (0.25, 0.25), (timedelta(minutes=1), 60.0), (timedelta(0), 0.0)]
)
def test_seconds(value: Any, expected: float) -> None:
    """A number, or a timedelta."""
    assert seconds(value, "x") == expected


class Odd(tzinfo):
    """A zone that does not know its offset."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    dst = utcoffset

    def tzname(self, _: datetime | None) -> None:
        return None


@pytest.mark.parametrize(
    "value",
    [
        datetime(2030, 1, 1),
        datetime(2030, 1, 1, tzinfo=Odd()),
        "2030-01-01T00:00:00Z",
        1_900_000_000,
        datetime.max.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_moments_that_are_refused(value: Any) -> None:
    """Naive, of the wrong type, or absurdly far."""
    with pytest.raises(InvalidArgument) as caught:
        moment(value, "run_at")
    assert caught.value.path == "run_at"


def test_moments() -> None:
    """The same instant in UTC; the distant past is the past, also where no database could write it."""
    when = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    assert moment(when, "run_at") == when
    assert moment(when, "run_at").tzinfo is UTC
    for ancient in (datetime.min.replace(tzinfo=UTC), datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))):
        assert moment(ancient, "run_at") < datetime(2000, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "backoff",
    [
        Backoff(first=-1),
        Backoff(first=float("nan")),
        Backoff(factor=0.5),
        Backoff(factor=float("inf")),
        Backoff(cap=-1),
        Backoff(cap=LONGEST_DELAY * 2),
        Backoff(jitter=-0.1),
        Backoff(jitter=1.5),
        Backoff(jitter="a bit"),  # type: ignore[arg-type]
        Backoff(first="5"),  # type: ignore[arg-type]
        Backoff(factor=True),
        "5 s",
        5.0,
    ],
    ids=str,
)
def test_a_backoff_that_makes_no_sense(app: Dibs, backoff: Any) -> None:
    """Refused when the task is made, not when its first job has failed."""
    with pytest.raises(InvalidArgument, match="backoff"):
        app.task(name="t", backoff=backoff)


def test_a_backoff_of_whole_numbers_and_timedeltas() -> None:
    """As people write them."""
    options = Options().changed(backoff=Backoff(first=timedelta(seconds=2), factor=2, cap=timedelta(hours=1)))  # type: ignore[arg-type]
    assert options.backoff == Backoff(first=2.0, factor=2.0, cap=3600.0)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "5", True, timedelta(0)])
def test_a_timeout_that_makes_no_sense(app: Dibs, timeout: Any) -> None:
    """A task with no time at all could never end."""
    with pytest.raises(InvalidArgument, match="timeout"):
        app.task(name="t", timeout=timeout)


@pytest.mark.parametrize("name", ["", "x" * (LONGEST_TASK + 1), "a\0", 7])
def test_task_names(app: Dibs, name: Any) -> None:
    """A name that can be stored, or none and it is the function's."""
    with pytest.raises(InvalidArgument, match="name"):
        app.task(name=name)(lambda: None)


def test_a_name_is_given_once(app: Dibs) -> None:
    """Two tasks of one name: the second is refused, and it says where the first one is."""
    app.task(name="t")(lambda: None)
    with pytest.raises(ConfigurationError, match=r"test_settings\.py"):
        app.task(name="t")(lambda: None)
    with pytest.raises(ConfigurationError, match="task already"):
        app.task(app.tasks["t"])  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "settings", [{"max_payload": 0}, {"max_payload": "1 MB"}, {"max_releases": -1}, {"max_releases": 1.5}]
)
def test_settings_of_the_app(settings: Any) -> None:
    """Refused when it is made."""
    with pytest.raises(InvalidArgument, match=next(iter(settings))):
        Dibs("sqlite:///nowhere.db", **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"lease": 0.99},
        {"lease": 86_401},
        {"lease": float("nan")},
        {"lease": "60"},
        {"concurrency": 0},
        {"concurrency": 10_001},
        {"concurrency": 2.0},
        {"grace": -1},
        {"queues": "exports"},
        {"queues": [""]},
        {"queues": ["x" * 300]},
    ],
    ids=str,
)
def test_settings_of_a_worker(app: Dibs, settings: Any) -> None:
    """Refused before anything is opened."""
    app.task(name="t")(lambda: None)
    with pytest.raises(InvalidArgument):
        app.worker(**settings)


def test_a_worker_without_tasks(app: Dibs) -> None:
    """It says what was probably forgotten."""
    with pytest.raises(ConfigurationError, match="import"):
        app.worker()


def test_payloads_have_a_limit() -> None:
    """Refused before anything is sent, with the size, what is allowed, and what to do."""
    app = Dibs("sqlite:///nowhere.db", max_payload=100)

    @app.task(name="t")
    def take(data: str) -> None: ...

    with pytest.raises(InvalidArgument, match=r"t are 111 bytes long, the most is 100.*max_payload"):
        take.enqueue(data="x" * 100)
