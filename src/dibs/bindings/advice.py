"""What is said, once, of a transaction that a bare enqueue joins in vain, or does not join though it was meant to."""

from __future__ import annotations

import logging
import sys
from types import FrameType
from typing import Any
from weakref import WeakSet

from dibs.bindings.leftovers import is_leftover
from dibs.bindings.surroundings import Address
from dibs.dialects.urls import DatabaseUrl

logger = logging.getLogger("dibs")

#: The lines of the user's of which was said that they enqueue after a commit.
_after_a_commit: set[str] = set()

#: The apps of which was said that the connection they name leads elsewhere.
_elsewhere: WeakSet[Any] = WeakSet()


def mind_the_commit(connection: Any) -> None:
    """Warn of an enqueue in a transaction that nobody may ever commit; once for each line."""
    if not is_leftover(connection):
        return
    place = _users_line()
    if place not in _after_a_commit:
        _after_a_commit.add(place)
        logger.warning(
            "%s enqueues after a commit of its session, in a new transaction that has written nothing: unless that is "
            "committed, too, there will be no job (enqueue before you commit, or using(own=True))",
            place,
        )


def not_joined(app: Any, address: Address, url: DatabaseUrl) -> None:
    """Warn that the connection which an app names is to another database than its queue's; once for each app."""
    if app not in _elsewhere:
        _elsewhere.add(app)
        logger.warning(
            "the transactions of Dibs(connection=…) are in another database (%s) than the queue (%s): jobs are no part "
            "of them. If it is the same database at another address, say so with app.transaction(connection)",
            address,
            url,
        )


def _users_line() -> str:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "dibs":
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}, line {frame.f_lineno},"
