"""Which jobs a person means, where they are not named by their ids. Pure: what is asked for is checked here, and found
by the dialects.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TypedDict

import msgspec
from msgspec.structs import replace

from dibs.errors import InvalidArgument
from dibs.settings import LONGEST_KEY, LONGEST_QUEUE, LONGEST_TASK, name, seconds
from dibs.states import FINAL, State

#: The longest way back (seconds) that every database can count: a century.
LONGEST_AGO = 36_525 * 86_400.0

#: Characters of `error=`, at most: longer ones are not on a row either.
LONGEST_ERROR = 16_384


class Filters(TypedDict, total=False):
    """What jobs may be chosen by. Those that are given must all hold; None is as good as not given.

    - `task`, `queue`, `key`: the whole name, as it is stored; a renamed task's older jobs have its older name.
    - `status`: one of the five, or several.
    - `since`: what ended since then, and of what has not ended what was enqueued since then. A timedelta or seconds
      before now, by the database's clock, or a datetime with a time zone.
    - `error`: a text within the last error, letter by letter (no pattern), such as the name of an exception.
    """

    task: str | None
    queue: str | None
    status: str | Iterable[str] | None
    since: timedelta | float | datetime | None
    key: str | None
    error: str | None


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """`Filters`, checked. `statuses` is empty where any will do; `ago` are seconds before the database's now."""

    task: str | None = None
    queue: str | None = None
    statuses: tuple[State, ...] = ()
    since: datetime | None = None
    ago: float | None = None
    key: str | None = None
    error: str | None = None

    @property
    def has_since(self) -> bool:
        return self.since is not None or self.ago is not None


def filter_of(
    *,
    task: str | None = None,
    queue: str | None = None,
    status: str | Iterable[str] | None = None,
    since: timedelta | float | datetime | None = None,
    key: str | None = None,
    error: str | None = None,
) -> Filter:
    """Return these filters, checked. Raises InvalidArgument that names the one that makes no sense."""
    moment = _moment(since) if isinstance(since, datetime) else None
    ago = None if since is None or isinstance(since, datetime) else seconds(since, "since", high=LONGEST_AGO)
    if error is not None:
        name(error, "error", longest=LONGEST_ERROR)
    return Filter(
        task=None if task is None else name(task, "task", longest=LONGEST_TASK),
        queue=None if queue is None else name(queue, "queue", longest=LONGEST_QUEUE),
        statuses=_statuses(status),
        since=moment,
        ago=ago,
        key=None if key is None else name(key, "key", longest=LONGEST_KEY),
        error=error,
    )


def cancellable(chosen: Filter) -> Filter:
    """Return a filter for `cancel`. Raises InvalidArgument when it names a status in which a job has ended."""
    if wrong := FINAL.intersection(chosen.statuses):
        raise InvalidArgument(
            "status", f"is {' or '.join(sorted(wrong))}: only ready and running jobs can be cancelled"
        )
    return chosen if chosen.statuses else replace(chosen, statuses=(State.READY, State.RUNNING))


def requeuable(chosen: Filter, *, force: bool) -> Filter:
    """Return a filter for `requeue`. Raises InvalidArgument when it names a status that can't be requeued."""
    if wrong := set(chosen.statuses) - FINAL:
        raise InvalidArgument("status", f"is {' or '.join(sorted(wrong))}: only jobs that have ended can be requeued")
    if State.DONE in chosen.statuses and not force:
        raise InvalidArgument("status", "is done: work that was done is only done again with force")
    return chosen if chosen.statuses else replace(chosen, statuses=(State.FAILED,))


def _statuses(given: str | Iterable[str] | None) -> tuple[State, ...]:
    if given is None:
        return ()
    words = [given] if isinstance(given, str) else list(given)
    for word in words:
        if word not in list(State):
            raise InvalidArgument("status", f"is one of {', '.join(State)}, not {word!r:.40}")
    if not words:
        raise InvalidArgument("status", "is a list of none: leave it out for any")
    return _ordered(State(word) for word in words)


def _ordered(statuses: Iterable[State]) -> tuple[State, ...]:
    chosen = set(statuses)
    return tuple(state for state in State if state in chosen)


def _moment(value: datetime) -> datetime:
    """Return a time as aware UTC, within what every database can write."""
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidArgument("since", "has no time zone, so nobody can tell which moment it is: make it aware")
    earliest, latest = datetime(1971, 1, 1, tzinfo=UTC), datetime(9998, 1, 1, tzinfo=UTC)
    return min(max(value, earliest), latest).astimezone(UTC)
