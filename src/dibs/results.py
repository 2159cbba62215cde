"""What of a result is not stored, since the work was done all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.settings import MOST_RESULT

if TYPE_CHECKING:
    from dibs.app import Dibs


def problem_with_length(text: str) -> str | None:
    """Return why a result, as JSON, is too long to be stored, or None."""
    return f"it is {len(text)} characters of JSON, the most is {MOST_RESULT}" if len(text) > MOST_RESULT else None


def leave_out(app: Dibs, task: str, problem: str) -> None:
    """Say, once for each task, that a result is not stored."""
    app.warn_once(f"result {task}", "the result of %s is not stored: %s", task, problem)
