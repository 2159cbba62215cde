"""The options by which jobs are chosen without their ids, alike for every command that takes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import update_wrapper
from typing import Any, TypeVar

import click

from dibs.cli.options import queue_name
from dibs.cli.problems import WrongUsage
from dibs.filters import Filters
from dibs.states import State

R = TypeVar("R")

_UNITS = {"S": "seconds", "M": "minutes", "H": "hours", "D": "days", "W": "weeks"}
_AGO = re.compile(r"(\d+(?:\.\d+)?)([SMHDW])")


def since_of(text: str) -> timedelta | datetime:
    """Return how long ago, or when.

    >>> since_of("1h30m"), since_of("2026-11-30 03:00")
    (datetime.timedelta(seconds=5400), datetime.datetime(2026, 11, 30, 3, 0, tzinfo=datetime.timezone.utc))
    """
    text = text.strip().upper()
    if re.fullmatch(rf"({_AGO.pattern})+", text):
        try:
            return sum((timedelta(**{_UNITS[unit]: float(number)}) for number, unit in _AGO.findall(text)), timedelta())
        except OverflowError:
            raise click.BadParameter(f"{text.lower()} is longer than any queue has been there") from None
    try:
        moment = datetime.fromisoformat(text.removesuffix("UTC").rstrip())
    except ValueError:
        raise click.BadParameter(
            f"{text.lower()!r} is neither a duration, such as 90m, 2h or 3d, nor a time, such as 2026-11-30T03:00Z"
        ) from None
    # As every time that is printed here: whoever copies one gets the same moment.
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


_OPTIONS = {
    "task": click.option("--task", metavar="NAME", help="Only those of this task."),
    "queue": click.option("-q", "--queue", metavar="QUEUE", type=queue_name, help="Only those of this queue."),
    "status": click.option(
        "--status", type=click.Choice([str(state) for state in State]), multiple=True, help="Only these; repeatable."
    ),
    "since": click.option(
        "--since",
        metavar="WHEN",
        type=since_of,
        help="Only what ended, or is open and was enqueued, since then: 90m, 2h, 3d ago, or a time (UTC).",
    ),
    "key": click.option("--key", help="Only those with this idempotency key."),
    "error": click.option("--error", metavar="TEXT", help="Only those whose last error has this text in it."),
}


def filter_options(*names: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Let a command take these options (all, if none is named), and get those that were given as `which`."""

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        def command(*args: Any, **kwargs: Any) -> R:
            which = {name: kwargs.pop(name) for name in names or _OPTIONS}
            given = {name: value for name, value in which.items() if value not in (None, ())}
            return function(*args, which=given, **kwargs)

        wrapped = update_wrapper(command, function)
        for name in reversed(names or list(_OPTIONS)):
            wrapped = _OPTIONS[name](wrapped)
        return wrapped

    return decorate


def by_filters(job_ids: tuple[int, ...], which: Filters, **others: object) -> bool:
    """Are the jobs of an order chosen by filters? Raises WrongUsage where it can't be told which are meant."""
    if job_ids and which:
        raise WrongUsage("name jobs by their ids or by filters, not by both")
    if not job_ids and not which:
        raise WrongUsage(f"which jobs? Name their ids, or say {', '.join(f'--{name}' for name in _OPTIONS)}")
    if job_ids and (odd := [name for name, value in others.items() if value]):
        raise WrongUsage(f"--{odd[0]} goes with filters, and these jobs are named by their ids")
    return not job_ids
