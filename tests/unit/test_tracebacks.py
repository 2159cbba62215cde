"""What a stored error text says about how its run ended."""

from __future__ import annotations

import asyncio
import traceback

import pytest

from dibs.tracebacks import kind_of
from dibs.worker.settling import last_line
from dibs.worker.verdicts import shorten


class OutOfPaper(Exception):
    pass


def raised(error: BaseException, cause: BaseException | None = None) -> str:
    """Return the text that is stored of an exception."""
    try:
        raise error from cause
    except BaseException as caught:
        return "".join(traceback.format_exception(caught)).strip()


async def _group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.wait_for(asyncio.Event().wait(), 0.001))


def _grouped() -> str:
    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(_group())
    return "".join(traceback.format_exception(caught.value)).strip()


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (raised(ValueError("bad: very\nsecond line")), "ValueError", "bad: very"),
        (raised(ValueError()), "ValueError", ""),
        (raised(OutOfPaper("A4")), f"{__name__}.OutOfPaper", "A4"),
        (raised(KeyError("a"), cause=ValueError("first")), "KeyError", "'a'"),
        (shorten(raised(ValueError("x" * 5_000)), 800), "ValueError", "x"),
        (_grouped(), "ExceptionGroup", "unhandled errors in a TaskGroup (1 sub-exception)"),
        ("timed out after 5 s (attempt 3 of 12)", "timed out after 5 s", ""),
        ("its lease ran out 5 times: it seems to kill its workers (last held by vm:7)", "its lease ran out 5 times: it seems to kill its workers", ""),
        ("shop.errors.Declined: card", "shop.errors.Declined", "card"),
        ("", "", ""),
    ],
)  # fmt: skip
def test_how_a_run_ended(text: str, kind: str, said: str) -> None:
    """By the exception that ended it, not by what that was raised from; without one by the worker's words. Either is a
    text by which the job is found again."""
    found = kind_of(text)
    assert found[0] == kind
    assert found[1].startswith(said)
    assert kind in text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (raised(ValueError("no paper")), "ValueError: no paper"),
        (raised(ExceptionGroup("several", [ValueError("no paper")])), "ValueError: no paper"),
        ("\n", "no reason given"),
        (None, "no reason given"),
    ],
)
def test_what_the_log_says(error: str | None, said: str) -> None:
    """The last line that says anything: that of a group of exceptions is drawn."""
    assert last_line(error).lstrip(" |") == said
