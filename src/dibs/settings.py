"""What a person may set, its defaults, and what is refused at the call, alike on every database. Pure.

The reasons for the defaults are in docs/defaults.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from dibs.errors import InvalidArgument
from dibs.limits import check_text
from dibs.retries import Backoff

Seconds = timedelta | float | int

#: Where a task's code may run, and until when a job holds its key.
RunsIn = Literal["thread", "loop", "process"]
KeyUntil = Literal["finished", "pruned"]

DEFAULT_BACKOFF = Backoff()
LONGEST_QUEUE = 200
LONGEST_TASK = 255
LONGEST_KEY = 255
HIGHEST_PRIORITY = 32_767
MOST_ATTEMPTS = 100_000
LONGEST_DELAY = 3_660 * 86_400.0  # ten years: further off is a mistake in the unit
LONGEST_LEASE = 86_400.0
MOST_PAYLOAD = 1_000_000
WARN_PAYLOAD = 65_536
MOST_RESULT = 65_536
MOST_CHECKPOINT = 65_536
LONGEST_NOTE = 500
MOST_ERROR = 16_384
MOST_RELEASES = 1_000


def seconds(value: Seconds, path: str, *, low: float = 0.0, high: float = LONGEST_DELAY) -> float:
    """Return a duration in seconds; raise InvalidArgument unless it is a number between `low` and `high`."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidArgument(path, f"takes seconds or a timedelta, not {type(value).__name__}")
    if not low <= value <= high:  # also False for NaN
        raise InvalidArgument(path, f"must be between {low:g} and {high:g} seconds, not {_shown(value)}")
    return float(value)


def integer(value: int, path: str, *, low: int, high: int) -> int:
    """Return a whole number; raise InvalidArgument unless it is one between `low` and `high`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(path, f"takes a whole number, not {type(value).__name__}")
    if not low <= value <= high:
        raise InvalidArgument(path, f"must be between {low} and {high}, not {_shown(value)}")
    return value


def _shown(value: float) -> str:
    try:
        return f"{value!r:.40}"
    except ValueError:  # Python itself does not write a whole number of more than some thousand digits
        return "a number of thousands of digits"


def name(value: str, path: str, *, longest: int) -> str:
    """Return a queue's, task's or key's name; raise InvalidArgument if it is empty, too long or can't be stored."""
    if not isinstance(value, str):
        raise InvalidArgument(path, f"takes a string, not {type(value).__name__}")
    if not value:
        raise InvalidArgument(path, "must not be empty")
    if len(value) > longest:
        raise InvalidArgument(path, f"is {len(value)} characters long, the most is {longest}")
    check_text(value, path)
    return value


def reason_of(value: str | None) -> str | None:
    """Return the reason that a person gives; raise InvalidArgument unless it can be stored as an error."""
    return value if value is None or value == "" else name(value, "reason", longest=MOST_ERROR)


def prefix_of(value: str) -> str:
    """Return what tables' names begin with; raise InvalidArgument unless it is a short plain identifier."""
    if not isinstance(value, str) or not re.fullmatch(r"([a-z][a-z0-9_]{0,23})?", value):
        raise InvalidArgument("prefix", f"is up to 24 of a-z, 0-9 and _, the first a letter, not {value!r:.40}")
    return value


def moment(value: datetime, path: str) -> datetime:
    """Return a time as aware UTC; raise InvalidArgument if it is naive or absurdly far off."""
    if not isinstance(value, datetime):
        raise InvalidArgument(path, f"takes a datetime, not {type(value).__name__}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidArgument(
            path, "has no time zone, so nobody can tell which moment it is: make it aware, such as datetime.now(UTC)"
        )
    # The past is clamped to now by the database; some can't write the first years at all.
    earliest = datetime(1971, 1, 1, tzinfo=UTC)
    try:
        value = value.astimezone(UTC)
        # Only against absurdity: whether it is past or not is for the database's clock to say.
        far = value - datetime.now(UTC) > timedelta(seconds=LONGEST_DELAY)
    except OverflowError:  # in UTC it is beyond the first or the last moment that Python knows
        if value.year == 1:
            return earliest
        far = True
    if far:
        raise InvalidArgument(path, f"is more than {LONGEST_DELAY / 86_400:.0f} days ahead: {value}")
    return max(value, earliest)


class Options(msgspec.Struct, frozen=True):
    """How a job is written: a task's own options, and what `using(…)` changes of them for one enqueue.

    `run_at` and `delay` (seconds) exclude each other. `timeout` and `retention` are seconds.
    """

    queue: str = "default"
    priority: int = 0
    max_attempts: int = 12
    timeout: float | None = None
    retention: float | None = None
    key: str | None = None
    key_until: str | None = None
    run_at: datetime | None = None
    delay: float | None = None
    backoff: Backoff = DEFAULT_BACKOFF
    connection: Any = None
    own: bool = False
    retry_on: tuple[type[BaseException], ...] | None = None
    fail_on: tuple[type[BaseException], ...] = ()
    runs_in: str | None = None

    def changed(self, **given: Any) -> Options:
        """Return these options with those that were given (are not None) checked and put in."""
        checked = {option: _CHECKS[option](value) for option, value in given.items() if value is not None}
        options = msgspec.structs.replace(self, **checked)
        if options.run_at is not None and options.delay is not None:
            raise InvalidArgument("delay", "goes without run_at: say one of them")
        return options


def _key_until(value: str) -> str:
    if value not in ("finished", "pruned"):
        raise InvalidArgument("key_until", f"is 'pruned' (the default) or 'finished', not {value!r:.40}")
    return value


def _backoff(value: Backoff) -> Backoff:
    if not isinstance(value, Backoff):
        raise InvalidArgument("backoff", f"takes a dibs.Backoff, not {type(value).__name__}")
    return Backoff(
        first=seconds(value.first, "backoff.first"),
        factor=_number(value.factor, "backoff.factor", low=1.0, high=1e6),
        cap=seconds(value.cap, "backoff.cap"),
        jitter=_number(value.jitter, "backoff.jitter", low=0.0, high=1.0),
    )


def _number(value: float, path: str, *, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidArgument(path, f"takes a number, not {type(value).__name__}")
    if not low <= value <= high:  # also False for NaN
        raise InvalidArgument(path, f"must be between {low:g} and {high:g}, not {_shown(value)}")
    return float(value)


def _exceptions(path: str) -> Callable[[Any], tuple[type[BaseException], ...]]:
    def check(value: Any) -> tuple[type[BaseException], ...]:
        kinds = value if isinstance(value, tuple | list) else (value,)
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise InvalidArgument(path, f"takes exception classes, not {kind!r:.60}")
        return tuple(kinds)

    return check


def _runs_in(value: str) -> str:
    if value not in ("thread", "loop", "process"):
        raise InvalidArgument("runs_in", f"is 'thread', 'loop' or 'process', not {value!r:.40}")
    return value


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "queue": lambda value: name(value, "queue", longest=LONGEST_QUEUE),
    "priority": lambda value: integer(value, "priority", low=-HIGHEST_PRIORITY, high=HIGHEST_PRIORITY),
    "max_attempts": lambda value: integer(value, "max_attempts", low=1, high=MOST_ATTEMPTS),
    "timeout": lambda value: seconds(value, "timeout", low=0.001),
    "retention": lambda value: seconds(value, "retention"),
    "key": lambda value: name(value, "key", longest=LONGEST_KEY),
    "key_until": _key_until,
    "run_at": lambda value: moment(value, "run_at"),
    "delay": lambda value: seconds(value, "delay"),
    "backoff": _backoff,
    "connection": lambda value: value,
    "own": bool,
    "retry_on": _exceptions("retry_on"),
    "fail_on": _exceptions("fail_on"),
    "runs_in": _runs_in,
}
